"""What a change would do: two states at rest, compared; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from apps.allocation.engine.model.plan import Placement, Preempt, Wait
from apps.allocation.engine.model.snapshot import (
    Id,
    PolicySnapshot,
    PoolSnapshot,
    QueuedGroup,
    QueueSnapshot,
    RunningGroup,
    Snapshot,
)
from apps.allocation.whatif.steady_state import SteadyState
from apps.allocation.whatif.usage_counts import reservations_of
from apps.tasks.feasibility import EmptyPool, PolicyBounds, feasibility_problems


@dataclass(frozen=True, slots=True)
class RejectedGroup:
    """Waiting tasks that could never run any more; `problems` are sentences per field.

    `index` is the place of their group in the snapshot's `queued_groups`.
    """

    index: int
    queued: QueuedGroup
    problems: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """What the change does to single tasks, compared with what happens without it.

    * starts: wait now, and run only with the change
    * preempted: run now, and stop only because of the change
    * moved: run on, elsewhere in their pool, only with the change
    * delayed: would start without the change, and wait with it
    * no_longer_preempted: would be preempted without the change, and run on with it
    * rejected: could never run any more
    """

    starts: tuple[Placement, ...]
    preempted: tuple[Preempt, ...]
    moved: tuple[Id, ...]
    delayed: tuple[Id, ...]
    no_longer_preempted: tuple[Id, ...]
    rejected: tuple[RejectedGroup, ...]
    waiting: tuple[tuple[QueuedGroup, Wait], ...]


def compare(now: Snapshot, before: SteadyState, after: SteadyState) -> PlanDifference:
    """The difference that a change makes.

    Args:
        now: the current state.
        before, after: that state at rest, without and with the change.
    """
    runs_now = _running(now)
    without, with_it = _running(before.snapshot), _running(after.snapshot)
    rejected = tuple(_rejected(before.snapshot, after.snapshot))
    hopeless = {one.index for one in rejected}
    moved_anyway = set(before.moved)
    return PlanDifference(
        starts=tuple(
            placement
            for task, placement in after.placed.items()
            if task in with_it and task not in without and task not in runs_now
        ),
        preempted=tuple(
            one
            for task, one in after.preempted.items()
            if task in runs_now and task in without and task not in with_it
        ),
        moved=tuple(
            task
            for task in after.moved
            if task in with_it and task in without and task not in moved_anyway
        ),
        delayed=tuple(one for one in without if one not in runs_now and one not in with_it),
        no_longer_preempted=tuple(one for one in runs_now if one in with_it and one not in without),
        rejected=rejected,
        waiting=tuple(
            (after.snapshot.queued_groups[wait.index], wait)
            for wait in after.waiting
            if wait.count and wait.index not in hopeless
        ),
    )


def _running(snapshot: Snapshot) -> dict[Id, RunningGroup]:
    return {
        running_task.task: group
        for group in snapshot.running
        if not group.is_stopping
        for running_task in group.tasks
    }


def _rejected(before: Snapshot, after: Snapshot) -> Iterator[RejectedGroup]:
    """Groups that wait, could run one day before, and never after."""
    feasible_before, feasible_after = _Fits(before), _Fits(after)
    for index, queued in enumerate(after.queued_groups):
        if queued.count:
            problems = feasible_after.problems(queued)
            if problems and not feasible_before.problems(queued):
                yield RejectedGroup(index, queued, problems)


class _Fits:
    """Judges groups as enqueueing does, on the configuration of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._queues: dict[Id, QueueSnapshot] = {queue.id: queue for queue in snapshot.queues}
        self._profiles = {profile.id: profile for profile in snapshot.profiles}
        self._policies: dict[Id, PolicySnapshot] = {
            policy.id: policy for policy in snapshot.policies
        }
        self._pools: dict[Id, PoolSnapshot] = {pool.id: pool for pool in snapshot.pools}
        self._reserved = reservations_of(snapshot.policies)
        self._known: dict[tuple[object, ...], Mapping[str, str]] = {}

    def problems(self, queued: QueuedGroup) -> Mapping[str, str]:
        """Empty where it can run; nothing is said of a queue that this side does not have."""
        queue = self._queues.get(queued.queue)
        if queue is None:
            return {}
        key = (
            queue.policy,
            queue.profile,
            queued.request,
            queued.replicas,
            queued.is_preemptible,
            queued.can_exceed_limit,
        )
        if key not in self._known:
            self._known[key] = feasibility_problems(
                request=queued.request.as_dict(),
                replicas=queued.replicas,
                is_preemptible=queued.is_preemptible,
                policy_bounds=self._policy_bounds(queue.policy, skips_own=queued.can_exceed_limit),
                empty_pools=self._empty_pools(queue.profile),
            )
        return self._known[key]

    def _policy_bounds(self, policy: Id, *, skips_own: bool) -> list[PolicyBounds]:
        policy_bounds: list[PolicyBounds] = []
        at: Id | None = policy
        while at is not None:
            row = self._policies[at]
            limit = {} if skips_own and at == policy else row.limit.as_dict()
            policy_bounds.append(PolicyBounds(self._reserved[at], limit, row.user_limit.as_dict()))
            at = row.parent
        return policy_bounds

    def _empty_pools(self, profile: Id) -> list[EmptyPool]:
        pools = [self._pools[one] for one in self._profiles[profile].pools if one in self._pools]
        return [
            EmptyPool(
                capacity=pool.capacity.as_dict(),
                nodes=tuple(node.capacity.as_dict() for node in pool.nodes) or None,
            )
            for pool in pools
        ]
