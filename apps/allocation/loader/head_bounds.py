"""How many tasks of a group could start at most, so that no more heads are read than needed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import (
    Id,
    OverQuotaMode,
    PolicySnapshot,
    PreemptionMode,
    ProfileSnapshot,
    RunningGroup,
)
from apps.allocation.loader.configuration import Configuration

# No group can place more in one pass; the next pass follows at once.
MOST_HEADS = 1000

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class GroupDemand:
    """A queued group: what one of its tasks takes in all, and by which rights."""

    profile: ProfileSnapshot
    policy: Id
    total: Quantities
    is_preemptible: bool = True
    skips_own_limit: bool = False


class HeadBounds:
    """Upper bounds, from what is free and what may be preempted; never too few.

    Work that stops for a beneficiary is left out: its beneficiary is counted.
    """

    def __init__(self, configuration: Configuration, running: tuple[RunningGroup, ...]) -> None:
        self._policies = {policy.id: policy for policy in configuration.policies}
        self._reserved = _reservations(configuration.policies)
        self._settings = configuration.settings
        self._levels = {
            pool.id: pool.preemption or configuration.settings.preemption
            for pool in configuration.pools
        }
        serving = [one for one in configuration.pools if one.has_server and not one.is_paused]
        used, kept = _by_pool(running)
        self._free = {one.id: _less(one.capacity.as_dict(), used[one.id]) for one in serving}
        self._preemptible = {
            one.id: _less(one.capacity.as_dict(), kept[one.id])
            if self._levels[one.id] is not PreemptionMode.NONE
            else self._free[one.id]
            for one in serving
        }
        self._usage, self._fixed = _by_policy(self._policies, running)

    def most(self, queued: GroupDemand) -> int:
        """At least 1: the first task is always read, so that it has a reason."""
        pools = [pool for pool in queued.profile.pools if pool in self._free]
        levels = {self._levels[pool] for pool in pools}
        count = sum(_times(self._free[pool], queued.total) for pool in pools)
        if levels - {PreemptionMode.NONE}:
            claims = self._claims(queued, levels)
            most = sum(_times(self._preemptible[pool], queued.total) for pool in pools)
            count = min(most, count + claims + 1)
        for policy in self._chain(queued.policy)[queued.skips_own_limit :]:
            count = min(count, self._left(policy, queued.total, levels))
        return max(1, min(count, MOST_HEADS))

    def _chain(self, policy: Id) -> list[Id]:
        chain = [policy]
        while (parent := self._policies[chain[-1]].parent) is not None:
            chain.append(parent)
        return chain

    def _claims(self, queued: GroupDemand, levels: set[PreemptionMode]) -> int:
        """How many tasks might get others' capacity: those that some policy above them covers.

        A reservation can be claimed while it is not used; what its own policy gives up for the
        group, and what an ancestor's other children give up, counts as unused.
        """
        if PreemptionMode.RANK in levels or self._settings.over_quota is OverQuotaMode.FAIR_SHARE:
            return MOST_HEADS
        own, *above = self._chain(queued.policy)
        can_preempt_own = PreemptionMode.PRIORITY in levels or not queued.is_preemptible
        claims = [_covered(self._unused(one, self._fixed), queued.total) for one in above]
        claims.append(_covered(self._unused(own, self._usage), queued.total))
        if can_preempt_own:
            ours = _less(self._usage[own], self._fixed[own])
            claims.append(
                sum(-(-ours.get(key, 0) // one) for key, one in queued.total.items() if one)
            )
        return max(claims)

    def _unused(self, policy: Id, usage: Mapping[Id, Amounts]) -> Amounts:
        return _less(self._reserved[policy], usage[policy])

    def _left(self, policy: Id, total: Quantities, levels: set[PreemptionMode]) -> int:
        """One more than the limit leaves, so that the limit shows as the reason beyond it."""
        usage = self._fixed if levels - {PreemptionMode.NONE} else self._usage
        free = _less(self._policies[policy].limit.as_dict(), usage[policy])
        counts = [free[key] // amount for key, amount in total.items() if key in free and amount]
        return min(counts) + 1 if counts else MOST_HEADS


def _by_pool(
    running: Iterable[RunningGroup],
) -> tuple[Mapping[Id, Amounts], Mapping[Id, Amounts]]:
    """What is used in each pool, and the part of it that cannot be preempted."""
    used: dict[Id, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    kept: dict[Id, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for group, count in _counted(running):
        for key, amount in group.request.items():
            used[group.pool][key] += amount * group.replicas * count
            if not _can_be_preempted(group):
                kept[group.pool][key] += amount * group.replicas * count
    return used, kept


def _by_policy(
    policies: Mapping[Id, PolicySnapshot], running: Iterable[RunningGroup]
) -> tuple[Mapping[Id, Amounts], Mapping[Id, Amounts]]:
    used: dict[Id, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    kept: dict[Id, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for group, count in _counted(running):
        at: Id | None = group.policy
        while at is not None:
            for key, amount in group.request.items():
                used[at][key] += amount * group.replicas * count
                if not _can_be_preempted(group):
                    kept[at][key] += amount * group.replicas * count
            at = policies[at].parent
    return used, kept


def _counted(running: Iterable[RunningGroup]) -> Iterable[tuple[RunningGroup, int]]:
    for group in running:
        if group.is_stopping:
            yield group, sum(one.stops_for is None for one in group.tasks)
        else:
            yield group, len(group.tasks)


def _can_be_preempted(group: RunningGroup) -> bool:
    return group.is_preemptible and not group.is_stopping


def _reservations(policies: tuple[PolicySnapshot, ...]) -> dict[Id, dict[str, int]]:
    """With what each parent reserves by its children."""
    children: dict[Id, list[PolicySnapshot]] = defaultdict(list)
    for policy in policies:
        if policy.parent is not None and not policy.is_removed:
            children[policy.parent].append(policy)
    found: dict[Id, dict[str, int]] = {}

    def reserve(policy: PolicySnapshot) -> dict[str, int]:
        summed: dict[str, int] = defaultdict(int)
        for child in children[policy.id]:
            for key, amount in reserve(child).items():
                summed[key] += amount
        found[policy.id] = {**summed, **policy.reserved.as_dict()}
        return found[policy.id]

    for policy in policies:
        if policy.id not in found and (policy.parent is None or policy.is_removed):
            reserve(policy)
    return found


def _less(amounts: Amounts, used: Amounts) -> dict[str, int]:
    return {key: max(0, amount - used.get(key, 0)) for key, amount in amounts.items()}


def _times(free: Amounts, total: Quantities) -> int:
    counts = [free[key] // amount for key, amount in total.items() if amount and key in free]
    return min(counts) if counts else MOST_HEADS


def _covered(reserved: Amounts, total: Quantities) -> int:
    """A task that requests none of the keys that are reserved is not covered."""
    counts = [
        reserved[key] // amount for key, amount in total.items() if amount and key in reserved
    ]
    return min(counts) if counts else 0
