"""What ran where and when: attempts with the devices that they held, as far as a user sees them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import (
    Case,
    DurationField,
    ExpressionWrapper,
    F,
    Prefetch,
    QuerySet,
    Value,
    When,
)
from django.db.models.functions import Coalesce

from apps.accounts.models import User
from apps.nodes.models import Device, Node
from apps.nodes.selectors import devices_not_replaced
from apps.policies.models import Policy, Pool
from apps.tasks.models import Attempt, Member, PastTier, Task, TaskGroup
from apps.tasks.selectors.eligibility import ELIGIBLE
from apps.tasks.selectors.visibility import tasks_seen_with_queue
from apps.usage.selectors.usage_history import overlapping_attempts

# Attempts that one tape shows at most: the reader's policies first, and what lasts longest.
MOST_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class HeldStretch:
    """A device, or thousandths of it, that an attempt held."""

    attempt: UUID
    node: int
    index: int
    milli: int


@dataclass(frozen=True, slots=True)
class TapeAttempts:
    """The latest first; `past_tiers` of each, oldest first; `is_cut`: there are more."""

    attempts: tuple[Attempt, ...]
    past_tiers: dict[UUID, list[PastTier]]
    is_cut: bool


def attempts_between(
    began: datetime,
    ended: datetime,
    *,
    seen: Collection[int],
    policy_ids: Collection[int] | None = None,
    pools: Collection[Pool] | None = None,
) -> TapeAttempts:
    """Attempts that held something between two moments, in three or four queries.

    Args:
        seen: policies that the reader sees: others are left out before these.
        policy_ids: None: of all policies, the removed ones with them.
        pools: None: in all pools.
    """
    if policy_ids is None:
        # With the policies named, the database finds those that ended lately by an index.
        policy_ids = list(Policy.objects.order_by().values_list("pk", flat=True))
    rows = overlapping_attempts(policy_ids, began=began, until=ended)
    if pools is not None:
        rows = rows.filter(pool__in=pools)
    rows = rows.annotate(
        lasted=ExpressionWrapper(
            Coalesce("ended_at", Value(ended)) - F("allocated_at"), output_field=DurationField()
        ),
        is_other=Case(When(policy__in=seen, then=0), default=1),
    ).order_by("is_other", "-lasted", "-pk")
    found = list(_columns(rows)[: MOST_ATTEMPTS + 1])
    shown = sorted(found[:MOST_ATTEMPTS], key=lambda one: (one.allocated_at, one.pk), reverse=True)
    past: dict[UUID, list[PastTier]] = defaultdict(list)
    ids = [one.pk for one in shown]
    for change in PastTier.objects.filter(attempt__in=ids, until__gt=began).order_by("until", "pk"):
        past[change.attempt_id].append(change)
    return TapeAttempts(tuple(shown), past, is_cut=len(found) > len(shown))


def _columns(rows: QuerySet[Attempt]) -> QuerySet[Attempt]:
    """Without the content of tasks, which is most of a row."""
    names = [field.attname for field in Attempt._meta.concrete_fields]
    task = ("name", "time_limit_s", "owner_id")
    owner = ("username", "first_name", "last_name")
    members = Member.objects.only("attempt", "node", "devices", "is_stop_asked", "exit_code")
    return (
        rows.select_related("task__owner")
        .prefetch_related(Prefetch("members", members))
        .only(
            *names,
            *(f"task__{name}" for name in task),
            *(f"task__owner__{name}" for name in owner),
        )
    )


def held_by(attempts: Iterable[Attempt], nodes: Collection[Node]) -> Iterator[HeldStretch]:
    """The devices of these nodes that the attempts held, from their members."""
    wanted = {node.pk for node in nodes}
    for attempt in attempts:
        for member in attempt.members.all():
            if member.node_id in wanted:
                for index, milli in member.devices:
                    yield HeldStretch(attempt.pk, member.node_id, index, milli)


def nodes_of(pools: Collection[Pool]) -> tuple[list[Node], dict[int, list[Device]]]:
    """The nodes of these pools and their devices, in two queries."""
    live = Node.objects.filter(pool__in=pools, removed_at__isnull=True).order_by("name", "pk")
    nodes = list(live.defer("report", "labels", "environment"))
    devices: dict[int, list[Device]] = defaultdict(list)
    for device in devices_not_replaced().filter(node__in=nodes).order_by("index"):
        devices[device.node_id].append(device)
    return nodes, devices


def packed(stretches: Sequence[tuple[datetime, datetime, int]]) -> list[int]:
    """Offsets at which these (from, until, amount) stand without overlap, each as low as it can.

    Taken in the order of their beginnings; answers are in the order given.
    """
    offsets = [0] * len(stretches)
    active: list[tuple[int, int, datetime]] = []
    for at in sorted(range(len(stretches)), key=lambda one: (stretches[one][0], one)):
        began, ended, amount = stretches[at]
        active = sorted(one for one in active if one[2] > began)
        offset = 0
        for low, high, _ in active:
            if low - offset >= amount:
                break
            offset = max(offset, high)
        offsets[at] = offset
        active.append((offset, offset + amount, ended))
    return offsets


def next_tasks(user: User, most: int) -> list[Task]:
    """The first waiting tasks of their groups, as far as the user sees them, in one query."""
    heads = TaskGroup.objects.filter(head_id__isnull=False).values("head_id")
    tasks = tasks_seen_with_queue(user).filter(pk__in=heads)
    tasks = tasks.filter(ELIGIBLE)
    tasks = tasks.select_related("owner", "queue__policy", "task_group").defer("content")
    return list(tasks.order_by("-priority", "is_preemptible", "submitted_at", "pk")[:most])
