"""Lookup of queues by name or id, with the permission to enqueue or manage."""

import re
from collections.abc import Collection
from typing import Any, NamedTuple

from django.db.models import Field, Q, QuerySet

from apps.access.permissions import verbs_held
from apps.access.selectors import queues_managed_by, queues_open_to, queues_visible_to
from apps.accounts.memberships import memberships, with_groups_of_now
from apps.accounts.models import User
from apps.core.errors import NotAllowed, NotFound, RpmError
from apps.core.statements import Parameter, Statement
from apps.policies.models import Queue
from apps.tasks.models import Task
from apps.tasks.permissions import MANAGE

_DIGITS = re.compile(r"[0-9]{1,19}")
_NAME = re.compile(r"[^\0]{1,100}")


class QueueRef(NamedTuple):
    """A queue in which the user may enqueue, and the tenant of its policy."""

    pk: int
    tenant_id: int | None


def queue_open_to(user: User, given: str | int, *, is_exclusive: bool = True) -> Queue:
    """The queue of this name or id, in which the user may enqueue; locked until the commit.

    The permission is asked once, under the lock. Only a refusal looks again, for its reason.

    Args:
        is_exclusive: False lets other requests store tasks in the queue at the same moment; it
            still excludes closing the queue and regrouping its tasks.

    Raises:
        NotFound: there is none that the user may see.
        NotAllowed: the user sees it and may not enqueue.
    """
    by_name, by_id = _LOCKS[is_exclusive]
    if isinstance(given, str) and not _DIGITS.fullmatch(given):
        found = by_name.first(given=given) if _NAME.fullmatch(given) else None
    else:
        # Digits may be a name or an id, which depends on what is open to the user.
        pk = queue_ref(user, given).pk if isinstance(given, str) else _as_id(given)
        found = by_id.first(given=pk) if pk is not None else None
    if found is not None and _is_open_now(user, found.pk):
        return found
    queue_ref(user, given)
    raise queue_not_found(given)


def queue_ref(user: User, given: str | int) -> QueueRef:
    """The queue of this name or id, in which the user may enqueue; not locked.

    Raises:
        NotFound, NotAllowed: as `queue_open_to`.
    """
    found = queue_refs(user, [given])[given]
    if isinstance(found, RpmError):
        raise found
    return found


def queue_lock(user: User, queue_id: int, given: str | int) -> Queue:
    """The queue of the reference, locked until the commit.

    Raises:
        NotFound: it is not open to the user any more.
    """
    queue = queues_lock(user, [queue_id]).get(queue_id)
    if queue is None:
        raise queue_not_found(given)
    return queue


def queue_refs(user: User, given: Collection[str | int]) -> dict[str | int, QueueRef | RpmError]:
    """Each given queue, or why the user may not enqueue there.

    The number of queries does not grow with the names.
    """
    if not given:
        return {}
    wanted = _any_of(given)
    open_ones = _by_name_and_id(queues_open_to(user).filter(wanted))
    found: dict[str | int, QueueRef | RpmError] = {
        name: queue for name in given if (queue := _named(open_ones, name)) is not None
    }
    if len(found) < len(set(given)):
        visible = _by_name_and_id(queues_visible_to(user).filter(wanted))
        for name in given:
            if name not in found:
                is_seen = _named(visible, name) is not None
                found[name] = _not_open(name) if is_seen else queue_not_found(name)
    return found


def queues_lock(user: User, ids: Collection[int]) -> dict[int, Queue]:
    """The queues in which the user may enqueue, by id, locked until the commit.

    A queue that is being closed must take no task, so the permission is checked again after the
    lock. All requests lock in the order of the ids, so that two never deadlock.
    """
    if not ids:
        return {}
    rows = Queue.objects.select_for_update(no_key=True, of=("self",)).select_related("profile")
    live = rows.filter(pk__in=ids, removed_at__isnull=True).order_by("pk")
    locked = {queue.pk: queue for queue in live}
    still_open = queues_open_to(user).filter(pk__in=list(locked))
    return {pk: locked[pk] for pk in sorted(still_open.values_list("pk", flat=True))}


def queue_share(queue_id: int) -> Queue | None:
    """The queue, which is neither closed nor regrouped until the commit; None: it is closed."""
    return _LOCKS[False][1].first(given=queue_id)


def _locked_by(field: "Field[Any, Any]", clause: str) -> Statement[Queue]:
    column = {field.name: Parameter("given", field)}
    return Statement(
        lambda: Queue.objects.filter(removed_at__isnull=True, **column).order_by(), lock=clause
    )


_NAME_FIELD, _ID_FIELD = Queue._meta.get_field("name"), Queue._meta.get_field("id")
_LOCKS = {
    is_exclusive: (_locked_by(_NAME_FIELD, clause), _locked_by(_ID_FIELD, clause))
    for is_exclusive, clause in ((True, "FOR NO KEY UPDATE"), (False, "FOR SHARE"))
}

_MOST_READERS = 1000
_open: dict[object, Statement[Queue]] = {}


def _is_open_now(user: User, queue_id: int) -> bool:
    """Whether the user may enqueue there at this moment.

    Groups and permissions are read again. What is kept is the SQL alone, which depends on nothing
    but the key: `queues_open_to` reads nothing more of such a user.
    """
    reader = with_groups_of_now(user)
    key = (reader.pk, reader.is_active, reader.acted_by_id, memberships(reader))
    statement = _open.get(key)
    if statement is None:
        if len(_open) >= _MOST_READERS:
            _open.clear()
        given = Parameter("queue", _ID_FIELD)
        statement = _open[key] = Statement(
            lambda: queues_open_to(reader).filter(pk=given).order_by().values_list("pk")
        )
    return bool(statement.rows(queue=queue_id))


def can_manage_queue(user: User, queue_id: int | None) -> bool:
    """Whether the user may reorder the queue and abort others' tasks in it."""
    return queue_id is not None and queues_managed_by(user).filter(pk=queue_id).exists()


def check_can_manage_task(user: User, task: Task) -> None:
    """Allow the owner, users who manage the queue of the task, and administrators.

    Raises:
        NotAllowed: the user is none of these.
    """
    if MANAGE in verbs_held(user, task, [MANAGE]):
        return
    raise NotAllowed("This task has another owner, and you do not manage its queue.")


def check_open_to_owner(task: Task, queue: Queue) -> None:
    """Check that the owner of a task may enqueue in the queue, also where another user moves it.

    A waiting task is charged to its owner and runs with the owner's vaults.

    Raises:
        NotAllowed: the owner may not enqueue there.
    """
    if not queues_open_to(task.owner).filter(pk=queue.pk).exists():
        problem = f"is not open to {task.owner}, the owner of the task"
        raise NotAllowed(f"Queue {queue.name} {problem}.", fields={"queue": problem})


def queue_not_found(given: str | int) -> NotFound:
    return NotFound(
        f"There is no queue {given}, or you may not see it.",
        fields={"queue": "is unknown: give the name or id of a queue"},
    )


def _not_open(given: str | int) -> NotAllowed:
    return NotAllowed(f"You may not enqueue in queue {given}.", fields={"queue": "is not open"})


# By name, and by id.
Known = tuple[dict[str, QueueRef], dict[int, QueueRef]]


def _any_of(given: Collection[str | int]) -> Q:
    """Queues that match; names that no queue can have are not looked up."""
    names = [one for one in given if isinstance(one, str) and _NAME.fullmatch(one)]
    ids = [pk for one in given if (pk := _as_id(one)) is not None]
    return Q(name__in=names) | Q(pk__in=ids)


def _by_name_and_id(queues: QuerySet[Queue]) -> Known:
    rows = list(queues.order_by().values_list("name", "pk", "policy__tenant_id"))
    return (
        {name: QueueRef(pk, tenant_id) for name, pk, tenant_id in rows},
        {pk: QueueRef(pk, tenant_id) for _, pk, tenant_id in rows},
    )


def _named(queues: Known, given: str | int) -> QueueRef | None:
    """A name comes first: it may consist of digits."""
    by_name, by_id = queues
    if isinstance(given, str) and given in by_name:
        return by_name[given]
    pk = _as_id(given)
    return None if pk is None else by_id.get(pk)


def _as_id(given: str | int) -> int | None:
    """The id, if it is one; larger numbers are no ids, and SQLite cannot hold them."""
    if isinstance(given, str):
        if not _DIGITS.fullmatch(given):
            return None
        given = int(given)
    return given if 0 < given < 2**63 else None
