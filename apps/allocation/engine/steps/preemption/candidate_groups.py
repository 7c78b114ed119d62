"""Running work that may be preempted, in groups of equal tasks, and work that is protected."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from apps.allocation.engine.compile.compiled_snapshot import (
    UNCOUNTED,
    Amounts,
    CompiledShape,
    CompiledSnapshot,
    GroupState,
    ServingKey,
)
from apps.allocation.engine.model.snapshot import (
    Id,
    PreemptionMode,
    QueueSnapshot,
    RunningGroup,
    RunningTask,
)
from apps.allocation.engine.quota.ledger import Ledger

SECOND = 1_000_000


@dataclass(slots=True, eq=False)
class CandidateGroup:
    """Equal tasks of one pool that nothing protects; those that lose least come first.

    `group` is set where the same pass placed them: they start now, so the smallest id goes first,
    as it would in the next pass.
    """

    pool: int
    chain: tuple[int, ...]
    shape: CompiledShape
    # Zero of each key that the shape names: asks whether a policy is over as it is.
    none_more: Amounts
    priority: int
    profile_place: int
    policy_place: int
    user: Id | None
    is_exempt: bool
    is_removed: bool
    left: list[RunningTask]
    group: GroupState | None = None
    # The least that a task of it could lose, once they are sorted; nothing in this pass's own work.
    lowest_loss: tuple[int, Id] | tuple[()] | None = None

    def first(self) -> RunningTask:
        """The task that would lose least; sorted only when needed."""
        if self.lowest_loss is None:
            self._sort()
        return self.left[0]

    def order(self) -> tuple[object, ...]:
        """Within its policy, worst first: none of its tasks ever comes before this."""
        if self.lowest_loss is None:
            self._sort()
        return (self.priority, self.lowest_loss)

    def _sort(self) -> None:
        """Before any task is taken from it."""
        self.left.sort(key=least_loss)
        self.lowest_loss = least_loss(self.left[0]) if self.left else ()

    def restore(self, running_task: RunningTask) -> None:
        """Insert into `left`, once that is sorted."""
        self.left.insert(
            bisect_left(self.left, least_loss(running_task), key=least_loss), running_task
        )

    @property
    def policy(self) -> int:
        return self.chain[-1]

    @property
    def place(self) -> tuple[int, int, int]:
        """The order in the pool, without the time of submission."""
        return (self.profile_place, self.policy_place, -self.priority)

    def serving_key(self, running_task: RunningTask) -> ServingKey:
        return (*self.place, 1, running_task.submitted_us, running_task.task)

    def book(self, ledger: Ledger, count: int) -> None:
        """Charge `count` of its tasks; a negative count releases them."""
        ledger.book(
            self.chain,
            tuple((key, count * amount) for key, amount in self.shape.amounts),
            is_preemptible=True,
            is_exempt=self.is_exempt,
            user=self.user,
        )


def find_candidate_groups(
    compiled: CompiledSnapshot, stopping_or_waiting: set[Id]
) -> dict[int, list[CandidateGroup]]:
    """By pool, what may be preempted or moved. Left out: work that is not preemptible, stops, waits
    for others to stop, started less than its queue's `min_runtime` ago, or was preempted as often
    as its queue allows.

    Where preemption is off, only moves need it.
    """
    queues = compiled.queues
    can_move = compiled.snapshot.settings.has_consolidation
    found: dict[int, list[CandidateGroup]] = {}
    for group in compiled.snapshot.running:
        pool = compiled.pool_index.get(group.pool)
        if pool is None or not group.is_preemptible or group.is_stopping:
            continue
        if compiled.levels[pool] is PreemptionMode.NONE and not can_move:
            continue
        queue = queues.get(group.queue) if group.queue is not None else None
        left = list(group.tasks)
        if stopping_or_waiting or (
            queue and (queue.min_runtime_s or queue.max_preemptions is not None)
        ):
            left = [
                running_task
                for running_task in left
                if running_task.task not in stopping_or_waiting
                and protected_until(compiled, queue, running_task) is None
            ]
        if left:
            found.setdefault(pool, []).append(_candidate_group(compiled, pool, group, left))
    return found


@dataclass(frozen=True, slots=True)
class ProtectedTask:
    """A running task that others may have a right to later."""

    candidate: CandidateGroup
    task: Id
    until_us: int


def find_protected(compiled: CompiledSnapshot) -> dict[int, list[ProtectedTask]]:
    """By pool, the preemptible work that only the settings of its queue protect now."""
    queues = {
        queue.id: queue
        for queue in compiled.snapshot.queues
        if queue.min_runtime_s or queue.max_preemptions is not None
    }
    found: dict[int, list[ProtectedTask]] = {}
    if not queues:
        return found
    for group in compiled.snapshot.running:
        pool = compiled.pool_index.get(group.pool)
        queue = queues.get(group.queue) if group.queue is not None else None
        if pool is None or queue is None or not group.is_preemptible or group.is_stopping:
            continue
        for running_task in group.tasks:
            until = protected_until(compiled, queue, running_task)
            if until is not None and compiled.levels[pool] is not PreemptionMode.NONE:
                candidate = _candidate_group(compiled, pool, group, [running_task])
                found.setdefault(pool, []).append(
                    ProtectedTask(candidate, running_task.task, until)
                )
    return found


def protected_until(
    compiled: CompiledSnapshot, queue: QueueSnapshot | None, running_task: RunningTask
) -> int | None:
    """Until when a task is protected: `UNCOUNTED` for ever, None when it is not."""
    if queue is None:
        return None
    if queue.max_preemptions is not None and running_task.preemptions >= queue.max_preemptions:
        return UNCOUNTED
    if not queue.min_runtime_s:
        return None
    until = running_task.started_us + queue.min_runtime_s * SECOND
    return until if compiled.snapshot.now_us < until else None


def least_loss(running_task: RunningTask) -> tuple[int, Id]:
    """Sort key: the latest of its start and its last checkpoint, latest first."""
    return (
        -max(running_task.started_us, running_task.checkpointed_us or running_task.started_us),
        running_task.task,
    )


def candidate_group_of(group: GroupState, pool: int) -> CandidateGroup:
    """An empty group for tasks that this pass placed."""
    profile_place, policy_place, *_ = group.prefixes[pool]
    return CandidateGroup(
        pool=pool,
        chain=group.chain,
        shape=group.shape,
        none_more=_none_more(group.shape),
        priority=group.queued.priority,
        profile_place=profile_place,
        policy_place=policy_place,
        user=group.queued.user,
        is_exempt=group.has_exceeded,
        is_removed=False,
        left=[],
        group=group,
        lowest_loss=(),
    )


def _candidate_group(
    compiled: CompiledSnapshot, pool: int, group: RunningGroup, left: list[RunningTask]
) -> CandidateGroup:
    policy = compiled.policy_index[group.policy]
    profile = compiled.profiles.get(group.profile)
    models = profile.models if profile else ()
    shape = compiled.shape_of(group.request, group.replicas, models)
    return CandidateGroup(
        pool=pool,
        chain=compiled.chains[policy],
        shape=shape,
        none_more=_none_more(shape),
        priority=group.priority,
        profile_place=compiled.profile_places.get((pool, group.profile), UNCOUNTED),
        policy_place=compiled.policy_places.get((group.profile, group.policy), UNCOUNTED),
        user=group.user,
        is_exempt=group.can_exceed_limit,
        is_removed=compiled.policies[policy].is_removed,
        left=left,
    )


def _none_more(shape: CompiledShape) -> Amounts:
    return tuple((key, 0) for key, _ in shape.amounts)
