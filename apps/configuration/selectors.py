"""Reads the draft and the live configuration as documents, with a fixed number of queries."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from django.db.models import QuerySet

from apps.accounts.models import User
from apps.accounts.selectors import Person, is_admin
from apps.configuration.models import Revision
from apps.events.models import Event
from apps.policies.budgets import decimal_text
from apps.policies.document import (
    POOL_COLUMNS,
    PROFILE_COLUMNS,
    Document,
    DocumentChange,
    Link,
    PolicyEntry,
    PoolEntry,
    ProfileEntry,
    QueueEntry,
    Settings,
    compare,
    parse,
)
from apps.policies.models import (
    DraftPool,
    DraftPoolLink,
    DraftProfile,
    DraftQueueRank,
    DraftState,
    LiveState,
    Policy,
    PolicyAmount,
    Pool,
    PoolLink,
    Profile,
    Queue,
)


@dataclass(frozen=True, slots=True)
class ConfigurationModels:
    """The models of one side: the live rows or their draft twins."""

    pools: type[Pool] | type[DraftPool]
    profiles: type[Profile] | type[DraftProfile]
    links: type[PoolLink] | type[DraftPoolLink]


LIVE = ConfigurationModels(Pool, Profile, PoolLink)
DRAFT = ConfigurationModels(DraftPool, DraftProfile, DraftPoolLink)

_SETTINGS = Settings.__struct_fields__
_QUEUE_COPIED = tuple(set(QueueEntry.__struct_fields__) - {"profile"})


def last_revision() -> int:
    """The number of the last revision; 0 where there is none."""
    last = Revision.objects.order_by("-number").values_list("number", flat=True).first()
    return last or 0


def live_document() -> Document:
    """The live configuration that the engine, queues and nodes use, policies included."""
    queues = list(
        Queue.objects.filter(removed_at__isnull=True)
        .select_related("profile")
        .order_by("queuing_rank", "id")
    )
    order = defaultdict(list)
    for queue in queues:
        order[queue.profile_id].append(queue.name)
    document = _document(LIVE, LiveState.objects.get(id=1), order)
    return msgspec.structs.replace(document, policies=_policy_entries(queues))


def draft_document() -> Document:
    """The draft, as administrators saved it last."""
    order = defaultdict(list)
    ranks = DraftQueueRank.objects.filter(queue__removed_at__isnull=True)
    for rank in ranks.select_related("queue").order_by("rank", "id"):
        order[rank.profile_id].append(rank.queue.name)
    return _document(DRAFT, DraftState.objects.get(id=1), order)


def draft_changes() -> list[DocumentChange]:
    """The changes that provisioning would make."""
    return compare(live_document(), draft_document())


def draft_history(since: int) -> str:
    """The last five saves of the draft after version `since`, as sentences."""
    saved = Event.objects.filter(object_type="draft", data__version__gt=since)
    lines = []
    for event in reversed(saved.select_related("actor").order_by("-id")[:5]):
        what = ", ".join(event.data.get("changes", [])[:5]) or "the draft"
        lines.append(f"{event.actor or 'The system'} changed {what}.")
    return " ".join(lines)


def revisions_visible_to(user: Person) -> QuerySet[Revision]:
    """Revisions hold everything, so they are for administrators."""
    return Revision.objects.all() if is_admin(user) else Revision.objects.none()


def revision_document(revision: Revision) -> Document:
    """The stored document, parsed with the same checks as any other."""
    return parse(revision.document)


def last_author() -> User | None:
    """The user who saved the draft last."""
    return DraftState.objects.select_related("saved_by").get(id=1).saved_by


# --- rows to entries -------------------------------------------------------------------------


def _document(
    models: ConfigurationModels, state: LiveState | DraftState, order: dict[int, list[str]]
) -> Document:
    pools = list(_current_rows(models.pools).select_related("dedicated_to"))
    profiles = list(_current_rows(models.profiles))
    links: list[Any] = list(models.links._default_manager.select_related("pool", "profile"))
    kept = {p.pk for p in pools}, {p.pk for p in profiles}
    links = [k for k in links if k.pool_id in kept[0] and k.profile_id in kept[1]]
    serving: dict[int, list[str]] = defaultdict(list)
    routing: dict[int, list[Link]] = defaultdict(list)
    for link in sorted(links, key=lambda k: (k.execution_rank, k.profile_id)):
        serving[link.pool_id].append(link.profile.name)
    for link in sorted(links, key=lambda k: (k.routing_rank, k.pool_id)):
        routing[link.profile_id].append(Link(pool=link.pool.name, name=link.name))
    return Document(
        settings=Settings(**_copied_fields(state, _SETTINGS)),
        pools=tuple(_pool_entry(pool, serving[pool.pk]) for pool in pools),
        profiles=tuple(
            _profile_entry(profile, routing[profile.pk], order.get(profile.pk, []))
            for profile in profiles
        ),
    )


def _current_rows(model: type[Any]) -> QuerySet[Any]:
    rows: QuerySet[Any] = model._default_manager.order_by("position", "id")
    return rows.filter(removed_at__isnull=True) if hasattr(model, "removed_at") else rows


def _copied_fields(row: object, names: Iterable[str]) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in names}
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def _pool_entry(pool: Pool | DraftPool, profiles: Iterable[str]) -> PoolEntry:
    dedicated = pool.dedicated_to
    return PoolEntry(
        **_copied_fields(pool, POOL_COLUMNS),
        key=str(pool.key),
        dedicated_to=dedicated.name if dedicated is not None else None,
        profiles=tuple(profiles),
    )


def _profile_entry(
    profile: Profile | DraftProfile, links: Iterable[Link], queues: Iterable[str]
) -> ProfileEntry:
    return ProfileEntry(
        **_copied_fields(profile, PROFILE_COLUMNS),
        key=str(profile.key),
        pools=tuple(links),
        queues=tuple(queues),
    )


def _policy_entries(queues: Iterable[Queue]) -> tuple[PolicyEntry, ...]:
    amounts = defaultdict(list)
    for amount in PolicyAmount.objects.filter(pool__isnull=True).order_by("key"):
        amounts[amount.policy_id].append(amount)
    connected = defaultdict(list)
    for queue in sorted(queues, key=lambda q: q.pk):
        entry = QueueEntry(profile=queue.profile.name, **_copied_fields(queue, _QUEUE_COPIED))
        connected[queue.policy_id].append(entry)
    policies = Policy.objects.filter(removed_at__isnull=True).select_related("group", "parent")
    return tuple(
        PolicyEntry(
            id=policy.pk,
            name=policy.name,
            description=policy.description,
            group=policy.group.name,
            parent=policy.parent.name if policy.parent is not None else None,
            reserved={a.key: a.reserved_text for a in amounts[policy.pk] if a.reserved_text},
            limit={a.key: a.limit_text for a in amounts[policy.pk] if a.limit_text},
            weight=policy.weight,
            is_strict=policy.is_strict,
            user_limit=policy.user_limit,
            logs_open_to_group=policy.logs_open_to_group,
            budget=None if policy.budget is None else decimal_text(policy.budget),
            budget_stops=policy.budget_stops,
            queues=tuple(connected[policy.pk]),
        )
        for policy in policies
    )
