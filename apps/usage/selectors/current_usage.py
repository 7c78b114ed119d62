"""Who holds how much now, labelled as people read it."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from django.db.models import FilteredRelation, Q, TextField
from django.db.models.functions import Cast

from apps.policies.models import Policy
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, AttemptTier
from apps.tasks.models import Attempt

GPU = "gpu"


class LiveAttempt(NamedTuple):
    """One live attempt: `amounts` in thousandths per key, all members together.

    A tuple, because pages read thousands of them.
    """

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
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Thousandths of GPU in use, and what of them counts as over quota; tasks running."""

    reserved: int = 0
    over_quota: int = 0
    tasks: int = 0

    @property
    def total(self) -> int:
        return self.reserved + self.over_quota

    def plus(self, other: "Usage") -> "Usage":
        return Usage(
            self.reserved + other.reserved,
            self.over_quota + other.over_quota,
            self.tasks + other.tasks,
        )


def live_attempts(where: Q | None = None) -> list[LiveAttempt]:
    """All live attempts that match, in one query."""
    rows = Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES).order_by()
    if where is not None:
        rows = rows.filter(where)
    found = rows.annotate(request_text=Cast("request", TextField())).values_list(
        "task_id",
        "policy_id",
        "queue_id",
        "pool_id",
        "request_text",
        "replicas",
        "task__priority",
        "task__is_preemptible",
        "started_at",
        "allocated_at",
        "task__owner_id",
    )
    return [
        LiveAttempt(
            task_id=task,
            policy_id=policy,
            queue_id=queue,
            pool_id=pool,
            amounts=_amounts(request, replicas),
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


# Few different requests run at a time.
@lru_cache(maxsize=4096)
def _amounts(request: str, replicas: int) -> Mapping[str, int]:
    """Of all members, from the stored request of one."""
    amounts: dict[str, int] = json.loads(request)
    return {key: amount * replicas for key, amount in amounts.items()}


def amounts_of(policy_ids: Iterable[int] | None = None) -> dict[int, Amounts]:
    """Reservations and limits over all pools, and parents, per policy; one query."""
    rows = Policy.objects.filter(removed_at__isnull=True)
    if policy_ids is not None:
        rows = rows.filter(pk__in=list(policy_ids))
    total = FilteredRelation("amounts", condition=Q(amounts__pool=None))
    reserved: dict[int, dict[str, int]] = defaultdict(dict)
    limit: dict[int, dict[str, int]] = defaultdict(dict)
    parents: dict[int, int | None] = {}
    fields = ("pk", "parent_id", "total__key", "total__reserved_milli", "total__limit_milli")
    for policy, parent, key, reserved_milli, limit_milli in rows.annotate(total=total).values_list(
        *fields
    ):
        parents[policy] = parent
        if reserved_milli is not None:
            reserved[policy][key] = reserved_milli
        if limit_milli is not None:
            limit[policy][key] = limit_milli
    return {
        policy: Amounts(reserved.get(policy, {}), limit.get(policy, {}), parent)
        for policy, parent in parents.items()
    }


def reservations_of(amounts: Mapping[int, Amounts]) -> dict[int, dict[str, int]]:
    """Per policy and key; where a parent sets none, the sum of its children's."""
    children: dict[int, list[int]] = defaultdict(list)
    for policy, one in amounts.items():
        if one.parent is not None:
            children[one.parent].append(policy)
    found: dict[int, dict[str, int]] = {}

    def resolve(policy: int) -> dict[str, int]:
        if policy not in found:
            sums: dict[str, int] = defaultdict(int)
            for child in children[policy]:
                for key, amount in resolve(child).items():
                    sums[key] += amount
            found[policy] = {**sums, **amounts[policy].reserved}
        return found[policy]

    for policy in amounts:
        resolve(policy)
    return found


def tiers_of(
    attempts: Iterable[LiveAttempt], amounts: Mapping[int, Amounts]
) -> dict[UUID, AttemptTier]:
    """The tier of each running task, as people read it.

    Over quota is what the topmost policy above it in `amounts` does not cover; borrowed, what it
    covers but a policy below it does not. Each policy covers its non-preemptible work first, then
    higher priority, then the longest running, while that stays within its reservation. Source:
    docs/allocation.md, "Tiers: reserved before over quota".
    """
    of_policy: dict[int, list[LiveAttempt]] = defaultdict(list)
    tiers: dict[UUID, AttemptTier] = {}
    for one in attempts:
        tiers[one.task_id] = AttemptTier.RESERVED
        for policy in _line(one.policy_id, amounts):
            of_policy[policy].append(one)
    reservations = reservations_of(amounts)
    for policy, concerned in of_policy.items():
        is_top = _topmost(policy, amounts) == policy
        for task in _uncovered(concerned, reservations.get(policy, {})):
            if is_top:
                tiers[task] = AttemptTier.OVER_QUOTA
            elif tiers[task] == AttemptTier.RESERVED:
                tiers[task] = AttemptTier.BORROWED
    return tiers


def over_quota_tasks(
    attempts: Iterable[LiveAttempt], amounts: Mapping[int, Amounts]
) -> frozenset[UUID]:
    """The running tasks that people read as over quota: those that no reservation covers."""
    tiers = tiers_of(attempts, amounts)
    return frozenset(task for task, tier in tiers.items() if tier == AttemptTier.OVER_QUOTA)


def _uncovered(attempts: Iterable[LiveAttempt], reserved: Mapping[str, int]) -> Iterator[UUID]:
    counted: dict[str, int] = defaultdict(int)
    for one in sorted(attempts, key=_reservation_order):
        if _fits_reservation(one, counted, reserved):
            for key, amount in one.amounts.items():
                counted[key] += amount
        else:
            yield one.task_id


def _line(policy: int, amounts: Mapping[int, Amounts]) -> Iterator[int]:
    """The policy and those above it."""
    at: int | None = policy
    while at is not None:
        yield at
        parent = amounts[at].parent if at in amounts else None
        at = parent if parent in amounts else None


def family_in(policy: int, amounts: Mapping[int, Amounts]) -> list[int]:
    """All policies below the topmost one above this policy, with that one."""
    top = _topmost(policy, amounts)
    return [one for one in amounts if _topmost(one, amounts) == top]


def _topmost(policy: int, amounts: Mapping[int, Amounts]) -> int:
    parent = amounts[policy].parent if policy in amounts else None
    return policy if parent is None or parent not in amounts else _topmost(parent, amounts)


def attempts_by_policy(attempts: Iterable[LiveAttempt]) -> defaultdict[int, list[LiveAttempt]]:
    """What runs under each policy itself."""
    found: defaultdict[int, list[LiveAttempt]] = defaultdict(list)
    for one in attempts:
        found[one.policy_id].append(one)
    return found


def usage_of(attempts: Iterable[LiveAttempt], over_quota: frozenset[UUID]) -> Usage:
    """GPU use of all of these together."""
    reserved = beyond = tasks = 0
    for one in attempts:
        tasks += 1
        if one.task_id in over_quota:
            beyond += one.gpu
        else:
            reserved += one.gpu
    return Usage(reserved, beyond, tasks)


def usage_by(
    attempts: Iterable[LiveAttempt], over_quota: frozenset[UUID], *, of: str
) -> defaultdict[int, Usage]:
    """GPU use per `policy_id`, `queue_id` or `pool_id` (`of`)."""
    parts: defaultdict[int, list[LiveAttempt]] = defaultdict(list)
    for one in attempts:
        parts[getattr(one, of)].append(one)
    return defaultdict(Usage, {key: usage_of(part, over_quota) for key, part in parts.items()})


def _reservation_order(one: LiveAttempt) -> tuple[bool, int, datetime, UUID]:
    return (one.is_preemptible, -one.priority, one.since, one.task_id)


def _fits_reservation(
    one: LiveAttempt, counted: Mapping[str, int], reserved: Mapping[str, int]
) -> bool:
    keys = [key for key, amount in one.amounts.items() if amount and key in reserved]
    return bool(keys) and all(counted[k] + one.amounts[k] <= reserved[k] for k in keys)
