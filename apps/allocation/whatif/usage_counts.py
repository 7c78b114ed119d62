"""What policies and pools hold in a snapshot, labelled as people read it; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from apps.allocation.engine.model.snapshot import (
    Id,
    PolicySnapshot,
    RunningGroup,
    RunningTask,
    Snapshot,
)

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PolicyUse:
    """Thousandths per key; what the policies below it hold counts too.

    `reservation` is what is set, or for a parent the sum of its children's.
    """

    reservation: Amounts
    limit: Amounts
    reserved: Amounts = field(default_factory=dict)
    over_quota: Amounts = field(default_factory=dict)
    running: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class PoolUse:
    capacity: Amounts
    use: Amounts
    running: int


def policy_uses(snapshot: Snapshot) -> dict[Id, PolicyUse]:
    """Every policy that is not removed."""
    policies = {policy.id: policy for policy in snapshot.policies}
    reservations = reservations_of(snapshot.policies)
    running: dict[Id, list[tuple[RunningGroup, RunningTask]]] = defaultdict(list)
    for group in snapshot.running:
        for above in _ancestry(group.policy, policies):
            running[above].extend((group, one) for one in group.tasks)
    waiting: dict[Id, int] = defaultdict(int)
    queues = {queue.id: queue.policy for queue in snapshot.queues}
    for queued in snapshot.queued_groups:
        for above in _ancestry(queues[queued.queue], policies):
            waiting[above] += queued.count
    return {
        policy.id: _policy_use(
            policy, reservations[policy.id], running[policy.id], waiting[policy.id]
        )
        for policy in snapshot.policies
        if not policy.is_removed
    }


def pool_uses(snapshot: Snapshot) -> dict[Id, PoolUse]:
    use: dict[Id, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    running: dict[Id, int] = defaultdict(int)
    for group in snapshot.running:
        running[group.pool] += len(group.tasks)
        for key, amount in group.request.items():
            use[group.pool][key] += amount * group.replicas * len(group.tasks)
    return {
        pool.id: PoolUse(pool.capacity.as_dict(), dict(use[pool.id]), running[pool.id])
        for pool in snapshot.pools
    }


def reservations_of(policies: Iterable[PolicySnapshot]) -> dict[Id, dict[str, int]]:
    """Of a parent, for each key that it does not set, the sum of its children's."""
    children: dict[Id | None, list[PolicySnapshot]] = defaultdict(list)
    for policy in policies:
        children[policy.parent].append(policy)
    found: dict[Id, dict[str, int]] = {}

    def total(policy: PolicySnapshot) -> dict[str, int]:
        summed: dict[str, int] = defaultdict(int)
        for child in children[policy.id]:
            for key, amount in total(child).items():
                summed[key] += amount
        found[policy.id] = {} if policy.is_removed else {**summed, **policy.reserved.as_dict()}
        return found[policy.id]

    for top in children[None]:
        total(top)
    return found


def _ancestry(policy: Id | None, policies: Mapping[Id, PolicySnapshot]) -> Iterable[Id]:
    while policy is not None and policy in policies:
        yield policy
        policy = policies[policy].parent


def _policy_use(
    policy: PolicySnapshot,
    reservation: Amounts,
    running: list[tuple[RunningGroup, RunningTask]],
    waiting: int,
) -> PolicyUse:
    """Non-preemptible work first, then higher priority, then the longest running, each counted
    as reserved while it stays within the reservation.
    """
    reserved: dict[str, int] = defaultdict(int)
    over: dict[str, int] = defaultdict(int)
    for group, _ in sorted(running, key=_label_order):
        amounts = group.request.positive().times(group.replicas).as_dict()
        named = [key for key in amounts if key in reservation]
        fits = named and all(reserved[key] + amounts[key] <= reservation[key] for key in named)
        counted = reserved if fits else over
        for key, amount in amounts.items():
            counted[key] += amount
    return PolicyUse(
        reservation=reservation,
        limit=policy.limit.as_dict(),
        reserved=dict(reserved),
        over_quota=dict(over),
        running=len(running),
        waiting=waiting,
    )


def _label_order(one: tuple[RunningGroup, RunningTask]) -> tuple[bool, int, int, str]:
    group, running_task = one
    return (group.is_preemptible, -group.priority, running_task.started_us, str(running_task.task))
