"""The fast path: one statement that checks everything, stores task and event, and commits.

The cache of the process (the owner of a credential, the facts of a queue) only saves reads:
the inserting statement checks credential, permission, queue and the version of the configuration
again, so a stale cache never decides. Where one of them does not hold, the statement inserts
nothing, and the standard path (`task_submit`) answers.

PostgreSQL only; every other database uses the standard path.
"""

import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import psycopg
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.db.models import JSONField

from apps.accounts.models import ADMINS, Scope
from apps.accounts.services.credentials import credential_by_pair, secret_hash
from apps.accounts.services.throttling import credential_admit, guesser_check
from apps.core.errors import Unavailable
from apps.core.ids import uuid7
from apps.core.notifications import NOTIFY_ALLOCATION, notify_now
from apps.policies.models import Queue
from apps.tasks.acceptance import NO_MOUNTS, Mounts, QueueFacts, accept
from apps.tasks.models import Task
from apps.tasks.selectors.facts import queue_facts
from apps.tasks.services.enqueue.new_tasks import columns
from apps.tasks.services.enqueue.queue_bounds import count_is_due
from apps.tasks.services.enqueue.storage import storage_is_due
from apps.tasks.services.task_groups import waiting_task_group_id
from apps.tasks.shapes import TaskShape
from apps.tasks.sizes import spec_bytes
from apps.tasks.task_spec import COLUMNS, TaskSpec
from apps.tasks.topics import task_topics

# The tenant of a policy and the ids of permissions are not part of the version.
FACTS_S = 10.0
# `last_used_at` of a credential is written at most this often.
PERSON_S = 60.0
MOST_REMEMBERED = 10_000

# The columns that hold a spec; PostgreSQL takes the type of a value from its column.
_SPEC_COLUMNS: Final = (*COLUMNS, "content", "size_bytes")
_JSON_COLUMNS: Final = frozenset(
    name for name in _SPEC_COLUMNS if isinstance(Task._meta.get_field(name), JSONField)
)
_TEMPLATE: Final = """
WITH gate AS (
    SELECT q.id AS queue_id, q.policy_id, u.id AS owner_id, u.username,
        u.redacted_variables
    FROM accounts_credential c
    JOIN accounts_user u ON u.id = c.user_id AND u.is_active
    CROSS JOIN policies_queue q
    WHERE c.key = %(key)s AND c.secret_hash = %(secret_hash)s AND c.user_id = %(owner)s
        AND c.scope <> 'read' AND c.revoked_at IS NULL
        AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
        AND q.id = %(queue)s AND q.name = %(queue_name)s AND q.removed_at IS NULL
        AND q.max_priority >= %(priority)s AND q.max_waiting IS NULL
        AND EXISTS (SELECT 1 FROM policies_livestate WHERE id = 1 AND version = %(version)s)
        AND NOT EXISTS (
            SELECT 1 FROM nodes_volume v
            WHERE v.name = ANY(%(volumes)s::text[]) AND v.is_restricted AND v.removed_at IS NULL
        )
        AND EXISTS (
            SELECT 1 FROM tasks_task t WHERE t.task_group_id = %(task_group)s AND t.state = 'queued'
        )
        AND ((
            EXISTS (
                SELECT 1 FROM policies_policygrouppermission g
                JOIN accounts_user_groups m ON m.group_id = g.group_id AND m.user_id = u.id
                WHERE g.content_object_id = q.policy_id
                    AND g.permission_id = %(policy_permission)s
            ) OR EXISTS (
                SELECT 1 FROM policies_policyuserpermission g
                WHERE g.content_object_id = q.policy_id AND g.user_id = u.id
                    AND g.permission_id = %(policy_permission)s
            ) OR EXISTS (
                SELECT 1 FROM policies_queueuserpermission g
                WHERE g.content_object_id = q.id AND g.user_id = u.id
                    AND g.permission_id = %(permission)s
            ) OR EXISTS (
                SELECT 1 FROM policies_queuegrouppermission g
                JOIN accounts_user_groups m ON m.group_id = g.group_id AND m.user_id = u.id
                WHERE g.content_object_id = q.id AND g.permission_id = %(permission)s
            ) OR EXISTS (
                SELECT 1 FROM auth_group_permissions g
                JOIN accounts_user_groups m ON m.group_id = g.group_id AND m.user_id = u.id
                WHERE g.permission_id IN (%(permission)s, %(policy_permission)s)
            ) OR EXISTS (
                SELECT 1 FROM accounts_user_user_permissions g
                WHERE g.user_id = u.id
                    AND g.permission_id IN (%(permission)s, %(policy_permission)s)
            ) OR EXISTS (
                SELECT 1 FROM accounts_tenant t
                JOIN accounts_user_groups m ON m.group_id = t.admin_group_id
                WHERE t.id = %(tenant)s::bigint AND m.user_id = u.id
            )
        ) AND (
            %(tenant)s::bigint IS NULL OR EXISTS (
                SELECT 1 FROM accounts_tenantgroup b
                JOIN accounts_user_groups m ON m.group_id = b.group_id AND m.user_id = u.id
                WHERE b.tenant_id = %(tenant)s::bigint
            ) OR NOT EXISTS (
                SELECT 1 FROM accounts_tenantgroup b
                JOIN accounts_user_groups m ON m.group_id = b.group_id AND m.user_id = u.id
            )
        ) OR EXISTS (
            SELECT 1 FROM accounts_user_groups m
            WHERE m.user_id = u.id AND m.group_id = %(admins)s
        ))
    FOR SHARE OF q
), task AS (
    INSERT INTO tasks_task (
        id, queue_id, task_group_id, owner_id, state, state_detail, generation, preemptions,
        failures, created_at, submitted_at, changed_at, <columns>
    )
    SELECT %(id)s, gate.queue_id, %(task_group)s, gate.owner_id, 'queued', '', 0,
        0, 0, %(now)s, %(now)s, %(now)s, <values>
    FROM gate
)
INSERT INTO events_event (
    at, kind, actor_id, object_type, object_id, queue_id, policy_id, data
)
SELECT %(now)s, 'task.queued', gate.owner_id, 'task', %(object)s::text, gate.queue_id,
    gate.policy_id, '{"from": ""}'::jsonb
FROM gate
RETURNING (SELECT username FROM gate), (SELECT redacted_variables::text FROM gate)
"""
_STATEMENT: Final = _TEMPLATE.replace("<columns>", ", ".join(_SPEC_COLUMNS)).replace(
    "<values>", ", ".join(f"%({name})s" for name in _SPEC_COLUMNS)
)


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A stored task that waits in its queue."""

    id: uuid.UUID
    owner: str
    shape: TaskShape
    facts: QueueFacts
    at: datetime
    # The owner's patterns of hidden variables.
    redacted_variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Owner:
    username: str
    redacted_variables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _CachedOwner:
    id: int
    credential_id: int
    until: float


@dataclass(frozen=True, slots=True)
class _CachedQueue:
    """The cached facts of a queue; `task_groups` by the digest of their shape."""

    facts: QueueFacts
    permission_id: int
    policy_permission_id: int
    tenant_id: int | None
    admins_id: int
    task_groups: dict[str, int]
    until: float

    def task_group(self, digest: str) -> int | None:
        """The id of the task group of this shape, where tasks of it wait."""
        found = self.task_groups.get(digest)
        if found is None:
            # One that nothing waits in counts as another one: the standard path knows the bound.
            found = waiting_task_group_id(self.facts.queue_id, digest)
            if found is not None:
                _remember(self.task_groups, digest, found)
        return found


class FastPathCache:
    """The cache of one process; all of it may be stale, see the module."""

    def __init__(self) -> None:
        self._people: dict[tuple[str, str], _CachedOwner] = {}
        self._queues: dict[str | int, _CachedQueue] = {}

    def person(self, key: str, hashed: str, *, secret: str, address: str) -> _CachedOwner | None:
        found = self._people.get((key, hashed))
        if found is not None and found.until > time.monotonic():
            return found
        # The standard path answers wrong ones, and counts them.
        guesser_check(address)
        credential = credential_by_pair(key, secret)
        if credential is None or not Scope(credential.scope).covers(Scope.ENQUEUE):
            return None
        found = _CachedOwner(credential.user_id, credential.pk, time.monotonic() + PERSON_S)
        _remember(self._people, (key, hashed), found)
        return found

    def queue(self, given: str | int) -> _CachedQueue | None:
        found = self._queues.get(given)
        if found is not None and found.until > time.monotonic():
            return found
        found = _load(given)
        if found is not None:
            _remember(self._queues, given, found)
        return found

    def forget(self, given: str | int) -> None:
        """Forget this queue: its facts have changed."""
        self._queues.pop(given, None)

    def clear(self) -> None:
        """Empty the cache."""
        self._people.clear()
        self._queues.clear()


fast_path_cache = FastPathCache()


def task_submit_fast(*, key: str, secret: str, address: str, spec: TaskSpec) -> StoredTask | None:
    """Store a task that waits in its queue, with the permission of the credential.

    None where the cache is stale or a check fails: nothing is stored, and the standard path says
    why.

    Raises:
        Unavailable: the database went away.
        TooMany: too many requests of the address or the credential.
        RpmError: by the cached facts, the queue does not take the task.
    """
    given = spec.queue
    if connection.vendor != "postgresql" or given is None or not _is_plain(given):
        return None
    if spec.secrets or spec.hold or spec.array is not None or spec.after:
        # The statement neither seals secrets nor lets a task wait for a release or for others, and
        # stores no array.
        return None
    hashed = secret_hash(secret)
    person = fast_path_cache.person(key, hashed, secret=secret, address=address)
    known = fast_path_cache.queue(given)
    if person is None or known is None:
        return None
    credential_admit(str(person.credential_id))
    facts = known.facts
    volumes = {*spec.volumes, spec.checkpoint_volume} - {""}
    if (facts.needs_image and not spec.image) or not volumes <= facts.volumes:
        # Vaults may give an image: the standard path opens them. Its error lists only volumes that
        # the owner may mount.
        return None
    # The statement refuses restricted ones.
    mounts = Mounts(dict.fromkeys(volumes, True)) if volumes else NO_MOUNTS
    shape = accept(spec, facts, owner_id=person.id, mounts=mounts)
    task_group = known.task_group(shape.digest())
    if task_group is None or count_is_due(facts.queue_id, person.id):
        # The standard path creates the group of a new shape, and counts waiting tasks.
        return None
    if storage_is_due(person.id, spec_bytes(spec)):
        # It also sums the bytes of the owner's tasks.
        return None
    stored = StoredTask(uuid7(), "", shape, facts, datetime.now(UTC))
    owner = _insert(
        {
            **_columns(spec, stored),
            "key": key,
            "secret_hash": hashed,
            "owner": person.id,
            "queue": facts.queue_id,
            "queue_name": facts.name,
            "version": facts.version,
            "permission": known.permission_id,
            "policy_permission": known.policy_permission_id,
            "tenant": known.tenant_id,
            "admins": known.admins_id,
            "task_group": task_group,
            "volumes": sorted(volumes),
        }
    )
    if owner is None:
        fast_path_cache.forget(given)
        return None
    _, *topics = task_topics(stored.id, queue_id=facts.queue_id, policy_id=facts.policy_id)
    # No page of the task can be open yet.
    notify_now(tasks=[NOTIFY_ALLOCATION], topics=topics)
    return StoredTask(stored.id, owner.username, shape, facts, stored.at, owner.redacted_variables)


def _is_plain(given: str | int) -> bool:
    """Not so: digits, which may be a name or an id, and NUL, which PostgreSQL does not take."""
    return isinstance(given, int) or (given.isprintable() and not given.isdigit())


def _columns(spec: TaskSpec, stored: StoredTask) -> dict[str, Any]:
    values = {**columns(spec), "request": stored.shape.request}
    encoded = {name: _json(values[name]) for name in _JSON_COLUMNS}
    return {
        "id": stored.id,
        "object": str(stored.id),
        "now": stored.at,
        **values,
        **encoded,
    }


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _insert(values: dict[str, Any]) -> _Owner | None:
    """The owner where the statement stored the task.

    Raises:
        Unavailable: the database did not answer.
    """
    if not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()
    connection.ensure_connection()
    raw: psycopg.Connection[Any] = connection.connection
    # Django never prepares its own statements; this one is always the same.
    raw.prepare_threshold = 0
    try:
        with psycopg.Cursor(raw) as cursor:
            row = cursor.execute(_STATEMENT, values, prepare=True).fetchone()
    except psycopg.OperationalError as error:
        connection.close()
        raise Unavailable("The database went away: ask whether the task is there.") from error
    except (psycopg.IntegrityError, psycopg.ProgrammingError):
        return None
    return _Owner(str(row[0]), tuple(msgspec.json.decode(row[1]))) if row is not None else None


def _load(given: str | int) -> _CachedQueue | None:
    """The facts to cache of the queue with this name or id, if it exists."""
    live = Queue.objects.filter(removed_at__isnull=True).select_related("profile", "policy")
    wanted = {"pk": given} if isinstance(given, int) else {"name": given}
    queue = live.filter(**wanted).first()
    if queue is None:
        return None
    permissions = dict(
        Permission.objects.filter(
            codename__in=["enqueue_queue", "enqueue_policy"], content_type__app_label="policies"
        ).values_list("codename", "pk")
    )
    return _CachedQueue(
        facts=queue_facts(queue),
        permission_id=permissions["enqueue_queue"],
        policy_permission_id=permissions["enqueue_policy"],
        tenant_id=queue.policy.tenant_id,
        admins_id=Group.objects.get(name=ADMINS).pk,
        task_groups={},
        until=time.monotonic() + FACTS_S,
    )


def _remember(place: dict[Any, Any], key: Any, value: Any) -> None:
    if len(place) >= MOST_REMEMBERED:
        place.clear()
    place[key] = value
