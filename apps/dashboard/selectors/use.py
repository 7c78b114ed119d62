"""Who holds how much now, labelled as people read it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from apps.policies.models import PolicyAmount
from apps.tasks.models import Attempt
from apps.tasks.states import LIVE_ATTEMPT_STATES

GPU = "gpu"


@dataclass(frozen=True, slots=True)
class Held:
    """One live attempt: `amounts` in thousandths per key, all members together."""

    task_id: UUID
    policy_id: int
    queue_id: int
    pool_id: int
    amounts: Mapping[str, int]
    priority: int
    is_preemptible: bool
    since: datetime
    is_started: bool
    owner_id: int

    @property
    def gpu(self) -> int:
        return self.amounts.get(GPU, 0)


@dataclass(frozen=True, slots=True)
class Amounts:
    """Reservation and limit of a policy per key, in thousandths; a key without limit has none."""

    reserved: Mapping[str, int] = field(default_factory=dict)
    limit: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Use:
    """Thousandths of GPU in use, and what of them counts as over quota; tasks running."""

    reserved: int = 0
    over: int = 0
    tasks: int = 0

    @property
    def total(self) -> int:
        return self.reserved + self.over

    def plus(self, other: "Use") -> "Use":
        return Use(self.reserved + other.reserved, self.over + other.over, self.tasks + other.tasks)


def held_now(where: Q | None = None) -> list[Held]:
    """All live attempts that match, in one query."""
    rows = Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES)
    if where is not None:
        rows = rows.filter(where)
    found = rows.values_list(
        "task_id",
        "policy_id",
        "queue_id",
        "pool_id",
        "request",
        "replicas",
        "task__priority",
        "task__is_preemptible",
        "started_at",
        "allocated_at",
        "task__owner_id",
    )
    return [
        Held(
            task_id=task,
            policy_id=policy,
            queue_id=queue,
            pool_id=pool,
            amounts={key: amount * replicas for key, amount in request.items()},
            priority=priority,
            is_preemptible=preemptible,
            since=started or allocated,
            is_started=started is not None,
            owner_id=owner,
        )
        for (
            task,
            policy,
            queue,
            pool,
            request,
            replicas,
            priority,
            preemptible,
            started,
            allocated,
            owner,
        ) in found
    ]


def amounts_of(policy_ids: Iterable[int] | None = None) -> dict[int, Amounts]:
    """Reservations and limits over all pools, per policy that is not removed; one query."""
    rows = PolicyAmount.objects.filter(pool=None, policy__removed_at__isnull=True)
    if policy_ids is not None:
        rows = rows.filter(policy__in=list(policy_ids))
    reserved: dict[int, dict[str, int]] = defaultdict(dict)
    limit: dict[int, dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row.reserved_milli is not None:
            reserved[row.policy_id][row.key] = row.reserved_milli
        if row.limit_milli is not None:
            limit[row.policy_id][row.key] = row.limit_milli
    return {
        policy: Amounts(reserved.get(policy, {}), limit.get(policy, {}))
        for policy in reserved.keys() | limit.keys()
    }


def over_quota_tasks(held: Iterable[Held], amounts: Mapping[int, Amounts]) -> frozenset[UUID]:
    """The running tasks that people read as over quota.

    A policy's non-preemptible work comes first, then higher priority, then the longest running,
    each counted while it stays within the reservation. Source: docs/allocation.md, "Standing".
    """
    of_policy: dict[int, list[Held]] = defaultdict(list)
    for one in held:
        of_policy[one.policy_id].append(one)
    over: set[UUID] = set()
    for policy, work in of_policy.items():
        reserved = amounts.get(policy, Amounts()).reserved
        counted: dict[str, int] = defaultdict(int)
        for one in sorted(work, key=_label_order):
            if _is_covered(one, counted, reserved):
                for key, amount in one.amounts.items():
                    counted[key] += amount
            else:
                over.add(one.task_id)
    return frozenset(over)


def use_by(held: Iterable[Held], over: frozenset[UUID], *, of: str) -> defaultdict[int, Use]:
    """GPU use per `policy_id`, `queue_id` or `pool_id` (`of`)."""
    sums: defaultdict[int, Use] = defaultdict(Use)
    for one in held:
        is_over = one.task_id in over
        part = Use(0 if is_over else one.gpu, one.gpu if is_over else 0, 1)
        key: int = getattr(one, of)
        sums[key] = sums[key].plus(part)
    return sums


def _label_order(one: Held) -> tuple[bool, int, datetime, UUID]:
    return (one.is_preemptible, -one.priority, one.since, one.task_id)


def _is_covered(one: Held, counted: Mapping[str, int], reserved: Mapping[str, int]) -> bool:
    keys = [key for key, amount in one.amounts.items() if amount and key in reserved]
    return bool(keys) and all(counted[k] + one.amounts[k] <= reserved[k] for k in keys)
