"""Passes run forward until they rest; pure.

Everything happens at once: placed tasks run, stopping tasks are gone, and so are preempted ones,
or they wait again where that is the queue's setting. The clock of the snapshot does not move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from apps.allocation.engine import Engine
from apps.allocation.engine.model.plan import Placement, Plan, Preempt, Wait
from apps.allocation.engine.model.snapshot import (
    Id,
    QueuedGroup,
    QueuedTask,
    RunningGroup,
    RunningTask,
    Snapshot,
)

# A chain of changes that long happens in tests only; what is left then is reported.
MOST_PASSES = 10


@dataclass(frozen=True, slots=True)
class SteadyState:
    """The state in which passes come to rest.

    `placed`, `preempted` and `moved` are the last decision about each task, whatever became of it
    after that; the `snapshot` says what runs in the end. `waiting` is of the last pass.
    """

    snapshot: Snapshot
    passes: int
    is_at_rest: bool
    placed: Mapping[Id, Placement]
    preempted: Mapping[Id, Preempt]
    moved: Collection[Id]
    waiting: tuple[Wait, ...]


def run_to_rest(
    snapshot: Snapshot, *, returning: Collection[Id], most_passes: int = MOST_PASSES
) -> SteadyState:
    """Decide and carry out until a pass decides nothing.

    Args:
        returning: queues whose preempted tasks wait again, in their old place; those of other
            queues are gone.
    """
    engine = Engine()
    placed: dict[Id, Placement] = {}
    preempted: dict[Id, Preempt] = {}
    moved: dict[Id, None] = {}
    for number in range(1, most_passes + 1):
        plan = engine.decide(snapshot)
        placed.update((one.task, one) for one in plan.placed)
        preempted.update((one.task, one) for one in plan.preempted)
        moved.update(dict.fromkeys(one.task for one in plan.moved))
        is_at_rest = not (plan.placed or plan.preempted or plan.moved)
        # What was stopping anyway has freed its capacity: another pass uses that.
        if is_at_rest and not any(group.is_stopping for group in snapshot.running):
            break
        if number < most_passes:
            snapshot = carry_out(snapshot, plan, returning=returning)
    return SteadyState(
        snapshot=snapshot,
        passes=number,
        is_at_rest=is_at_rest,
        placed=placed,
        preempted=preempted,
        moved=tuple(moved),
        waiting=plan.waiting,
    )


def carry_out(snapshot: Snapshot, plan: Plan, *, returning: Collection[Id]) -> Snapshot:
    """The state after `plan`, without the tasks that have to stop."""
    preempted = {one.task for one in plan.preempted}
    moves = {one.task: one for one in plan.moved}
    running: list[RunningGroup] = []
    back: list[tuple[RunningGroup, RunningTask]] = []
    for group in snapshot.running:
        if group.is_stopping:
            continue
        stays = tuple(
            replace(
                running_task, members=moves[running_task.task].members, started_us=snapshot.now_us
            )
            if running_task.task in moves
            else running_task
            for running_task in group.tasks
            if running_task.task not in preempted
        )
        back += [
            (group, running_task) for running_task in group.tasks if running_task.task in preempted
        ]
        if stays:
            running.append(group if stays == group.tasks else replace(group, tasks=stays))
    running += _started(snapshot, plan)
    queued_groups = _without_placed(snapshot, plan)
    queued_groups = _with_returned(
        queued_groups, [one for one in back if one[0].queue in returning]
    )
    return replace(snapshot, queued_groups=tuple(queued_groups), running=tuple(running))


def _started(snapshot: Snapshot, plan: Plan) -> list[RunningGroup]:
    placements = {placement.task: placement for placement in plan.placed}
    queues = {queue.id: queue for queue in snapshot.queues}
    started = []
    for queued in snapshot.queued_groups if placements else ():
        by_pool: dict[Id, list[RunningTask]] = defaultdict(list)
        for head in queued.heads:
            placement = placements.get(head.task)
            if placement is not None:
                running_task = RunningTask(
                    head.task, head.submitted_us, snapshot.now_us, placement.members
                )
                by_pool[placement.pool].append(running_task)
        queue = queues[queued.queue]
        started += [
            RunningGroup(
                pool=pool,
                policy=queue.policy,
                profile=queue.profile,
                request=queued.request,
                tasks=tuple(running_tasks),
                queue=queue.id,
                replicas=queued.replicas,
                priority=queued.priority,
                is_preemptible=queued.is_preemptible,
                user=queued.user,
                can_exceed_limit=queued.can_exceed_limit,
            )
            for pool, running_tasks in by_pool.items()
        ]
    return started


def _without_placed(snapshot: Snapshot, plan: Plan) -> list[QueuedGroup]:
    """Groups that are used up stay, empty, so that a group keeps its place in the list."""
    placed = {placement.task for placement in plan.placed}
    queued_groups = []
    for queued in snapshot.queued_groups:
        heads = tuple(head for head in queued.heads if head.task not in placed)
        gone = len(queued.heads) - len(heads)
        queued_groups.append(
            replace(queued, heads=heads, count=queued.count - gone) if gone else queued
        )
    return queued_groups


def _with_returned(
    queued_groups: list[QueuedGroup], back: list[tuple[RunningGroup, RunningTask]]
) -> list[QueuedGroup]:
    """Victims wait among their equals, in their old place."""
    indices = {_key_of_queued(queued): index for index, queued in enumerate(queued_groups)}
    returned: dict[tuple[object, ...], list[QueuedTask]] = defaultdict(list)
    for group, running_task in back:
        key = _key_of_running(group)
        returned[key].append(QueuedTask(running_task.submitted_us, running_task.task))
        if key not in indices:
            indices[key] = len(queued_groups)
            queued_groups.append(_empty_queued(group))
    for key, tasks in returned.items():
        queued = queued_groups[indices[key]]
        new_heads = sorted((*queued.heads, *tasks), key=lambda head: (head.submitted_us, head.task))
        queued_groups[indices[key]] = replace(
            queued, heads=tuple(new_heads), count=queued.count + len(tasks)
        )
    return queued_groups


def _key_of_queued(queued: QueuedGroup) -> tuple[object, ...]:
    return (
        queued.queue,
        queued.request,
        queued.replicas,
        queued.priority,
        queued.is_preemptible,
        queued.user,
        queued.can_exceed_limit,
    )


def _key_of_running(group: RunningGroup) -> tuple[object, ...]:
    return (
        group.queue,
        group.request,
        group.replicas,
        group.priority,
        group.is_preemptible,
        group.user,
        group.can_exceed_limit,
    )


def _empty_queued(group: RunningGroup) -> QueuedGroup:
    if group.queue is None:
        raise ValueError("only tasks of a queue can wait again")
    return QueuedGroup(
        queue=group.queue,
        request=group.request,
        count=0,
        heads=(),
        replicas=group.replicas,
        priority=group.priority,
        is_preemptible=group.is_preemptible,
        user=group.user,
        can_exceed_limit=group.can_exceed_limit,
    )
