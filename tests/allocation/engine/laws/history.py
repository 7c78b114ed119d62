"""Passes carried out one after another: starts, victims that stop and are gone, ends, arrivals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from apps.allocation.engine.model.plan import Placement, Plan
from apps.allocation.engine.model.snapshot import (
    Id,
    QueuedGroup,
    QueuedTask,
    QueueSnapshot,
    RunningGroup,
    RunningTask,
    Snapshot,
)
from tests.allocation.engine.oracle import World, world_after

SECOND = 1_000_000
Decide = Callable[[Snapshot], Plan]


@dataclass(frozen=True, slots=True)
class Step:
    """What happens after a pass: victims go, some running tasks end, new ones come."""

    is_drained: bool = True
    # Places among the running tasks, in order of id, counted round and round.
    ends: tuple[int, ...] = ()
    arrivals: tuple[QueuedGroup, ...] = ()
    seconds: int = 10


@dataclass(frozen=True, slots=True)
class Case:
    """A first state, and what happens between the passes that follow."""

    snapshot: Snapshot
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Moment:
    """One pass, and what laws ask of it."""

    snapshot: Snapshot
    plan: Plan
    decide: Decide

    @cached_property
    def before(self) -> World:
        return world_after(self.snapshot, None)

    @cached_property
    def world(self) -> World:
        """Everything placed, the victims of this pass gone."""
        return world_after(self.snapshot, self.plan)

    @cached_property
    def queued_groups(self) -> dict[Id, QueuedGroup]:
        return {
            head.task: queued for queued in self.snapshot.queued_groups for head in queued.heads
        }

    @cached_property
    def heads(self) -> dict[Id, QueuedTask]:
        return {head.task: head for queued in self.snapshot.queued_groups for head in queued.heads}

    @cached_property
    def places(self) -> dict[Id, Placement]:
        return {place.task: place for place in self.plan.placed}


def moments(case: Case, decide: Decide) -> Iterator[Moment]:
    """The pass over the first state, then one after each step."""
    snapshot = case.snapshot
    plan = decide(snapshot)
    yield Moment(snapshot, plan, decide)
    for step in case.steps:
        snapshot = advance(snapshot, plan, step)
        plan = decide(snapshot)
        yield Moment(snapshot, plan, decide)


def advance(snapshot: Snapshot, plan: Plan, step: Step) -> Snapshot:
    """The snapshot once the plan is carried out and the step has happened."""
    later = carried_out(snapshot, plan)
    if step.is_drained:
        later = drained(later)
    if step.ends:
        later = _ended(later, step.ends)
    known = {running_task.task for group in later.running for running_task in group.tasks}
    known.update(head.task for queued in later.queued_groups for head in queued.heads)
    arrivals = [queued for queued in step.arrivals if queued.heads[0].task not in known]
    return replace(
        later,
        queued_groups=merged([*later.queued_groups, *arrivals]),
        now_us=snapshot.now_us + step.seconds * SECOND,
    )


def carried_out(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Placed tasks hold their capacity, victims are stopping for their takers."""
    takers = {one.task: one.beneficiary for one in plan.preempted}
    moved = {one.task: one.members for one in plan.moved}
    groups = []
    for group in snapshot.running:
        kept = [
            replace(running_task, members=moved.get(running_task.task, running_task.members))
            for running_task in group.tasks
            if running_task.task not in takers
        ]
        taken = [
            replace(running_task, stops_for=takers[running_task.task])
            for running_task in group.tasks
            if running_task.task in takers
        ]
        if kept:
            groups.append(replace(group, tasks=tuple(kept)))
        if taken:
            groups.append(replace(group, tasks=tuple(taken), is_stopping=True))
    places = {place.task: place for place in plan.placed}
    queues = {queue.id: queue for queue in snapshot.queues}
    queued_groups = []
    for queued in snapshot.queued_groups:
        left = tuple(head for head in queued.heads if head.task not in places)
        groups += [
            _started(queued, head, places[head.task], queues[queued.queue], snapshot.now_us)
            for head in queued.heads
            if head.task in places
        ]
        if left:
            queued_groups.append(replace(queued, heads=left, count=len(left)))
    return replace(snapshot, queued_groups=tuple(queued_groups), running=tuple(groups))


def _started(
    queued: QueuedGroup, head: QueuedTask, place: Placement, queue: QueueSnapshot, now_us: int
) -> RunningGroup:
    return RunningGroup(
        pool=place.pool,
        policy=queue.policy,
        profile=queue.profile,
        request=queued.request,
        tasks=(
            RunningTask(head.task, head.submitted_us, started_us=now_us, members=place.members),
        ),
        queue=queue.id,
        replicas=queued.replicas,
        priority=queued.priority,
        is_preemptible=queued.is_preemptible,
        user=queued.user,
        can_exceed_limit=queued.can_exceed_limit,
    )


def drained(snapshot: Snapshot) -> Snapshot:
    """Stopping work is gone; what was preempted waits again with its original time."""
    stopping = [group for group in snapshot.running if group.is_stopping]
    requeued = [
        QueuedGroup(
            queue=group.queue,
            request=group.request,
            count=1,
            heads=(QueuedTask(running_task.submitted_us, running_task.task),),
            replicas=group.replicas,
            priority=group.priority,
            is_preemptible=group.is_preemptible,
            user=group.user,
            can_exceed_limit=group.can_exceed_limit,
        )
        for group in stopping
        for running_task in group.tasks
        if running_task.stops_for is not None and group.queue is not None
    ]
    running = tuple(group for group in snapshot.running if not group.is_stopping)
    return replace(
        snapshot, queued_groups=merged([*snapshot.queued_groups, *requeued]), running=running
    )


def merged(queued_groups: Iterable[QueuedGroup]) -> tuple[QueuedGroup, ...]:
    """Equal tasks of a queue are one group."""
    found: dict[QueuedGroup, list[QueuedTask]] = {}
    for queued in queued_groups:
        found.setdefault(replace(queued, heads=(), count=0), []).extend(queued.heads)
    return tuple(
        replace(queued, heads=tuple(sorted(heads, key=_by_time)), count=len(heads))
        for queued, heads in found.items()
    )


def _by_time(head: QueuedTask) -> tuple[int, Id]:
    return head.submitted_us, head.task


def _ended(snapshot: Snapshot, ends: tuple[int, ...]) -> Snapshot:
    tasks = sorted(running_task.task for group in snapshot.running for running_task in group.tasks)
    gone = {tasks[place % len(tasks)] for place in ends} if tasks else set()
    groups = [
        replace(
            group,
            tasks=tuple(
                running_task for running_task in group.tasks if running_task.task not in gone
            ),
        )
        for group in snapshot.running
    ]
    return replace(snapshot, running=tuple(group for group in groups if group.tasks))
