"""Passes carried out one after another: starts, victims that stop and are gone, ends, arrivals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from apps.allocation.engine.plan import Place, Plan
from apps.allocation.engine.snapshot import Head, Held, Id, Queue, Run, Running, Snapshot
from tests.allocation.engine.oracle import World, world_after

SECOND = 1_000_000
Decide = Callable[[Snapshot], Plan]


@dataclass(frozen=True, slots=True)
class Step:
    """What happens after a pass: victims go, some running tasks end, new ones come."""

    is_drained: bool = True
    # Places among the running tasks, in order of id, counted round and round.
    ends: tuple[int, ...] = ()
    arrivals: tuple[Run, ...] = ()
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
    def runs(self) -> dict[Id, Run]:
        return {head.task: run for run in self.snapshot.runs for head in run.heads}

    @cached_property
    def heads(self) -> dict[Id, Head]:
        return {head.task: head for run in self.snapshot.runs for head in run.heads}

    @cached_property
    def places(self) -> dict[Id, Place]:
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
    known = {held.task for group in later.running for held in group.tasks}
    known.update(head.task for run in later.runs for head in run.heads)
    arrivals = [run for run in step.arrivals if run.heads[0].task not in known]
    return replace(
        later,
        runs=merged([*later.runs, *arrivals]),
        now_us=snapshot.now_us + step.seconds * SECOND,
    )


def carried_out(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Placed tasks hold their room, victims are stopping for whom they were taken."""
    takers = {one.task: one.beneficiary for one in plan.preempted}
    moved = {one.task: one.members for one in plan.moved}
    groups = []
    for group in snapshot.running:
        kept = [
            replace(held, members=moved.get(held.task, held.members))
            for held in group.tasks
            if held.task not in takers
        ]
        taken = [
            replace(held, stops_for=takers[held.task])
            for held in group.tasks
            if held.task in takers
        ]
        if kept:
            groups.append(replace(group, tasks=tuple(kept)))
        if taken:
            groups.append(replace(group, tasks=tuple(taken), is_stopping=True))
    places = {place.task: place for place in plan.placed}
    queues = {queue.id: queue for queue in snapshot.queues}
    runs = []
    for run in snapshot.runs:
        left = tuple(head for head in run.heads if head.task not in places)
        groups += [
            _started(run, head, places[head.task], queues[run.queue], snapshot.now_us)
            for head in run.heads
            if head.task in places
        ]
        if left:
            runs.append(replace(run, heads=left, count=len(left)))
    return replace(snapshot, runs=tuple(runs), running=tuple(groups))


def _started(run: Run, head: Head, place: Place, queue: Queue, now_us: int) -> Running:
    return Running(
        pool=place.pool,
        policy=queue.policy,
        profile=queue.profile,
        request=run.request,
        tasks=(Held(head.task, head.submitted_us, started_us=now_us, members=place.members),),
        queue=queue.id,
        replicas=run.replicas,
        priority=run.priority,
        is_preemptible=run.is_preemptible,
        user=run.user,
        can_exceed_limit=run.can_exceed_limit,
    )


def drained(snapshot: Snapshot) -> Snapshot:
    """Stopping work is gone; what was preempted waits again with its original time."""
    stopping = [group for group in snapshot.running if group.is_stopping]
    requeued = [
        Run(
            queue=group.queue,
            request=group.request,
            count=1,
            heads=(Head(held.submitted_us, held.task),),
            replicas=group.replicas,
            priority=group.priority,
            is_preemptible=group.is_preemptible,
            user=group.user,
            can_exceed_limit=group.can_exceed_limit,
        )
        for group in stopping
        for held in group.tasks
        if held.stops_for is not None and group.queue is not None
    ]
    running = tuple(group for group in snapshot.running if not group.is_stopping)
    return replace(snapshot, runs=merged([*snapshot.runs, *requeued]), running=running)


def merged(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Equal tasks of a queue are one run."""
    found: dict[Run, list[Head]] = {}
    for run in runs:
        found.setdefault(replace(run, heads=(), count=0), []).extend(run.heads)
    return tuple(
        replace(run, heads=tuple(sorted(heads, key=_by_time)), count=len(heads))
        for run, heads in found.items()
    )


def _by_time(head: Head) -> tuple[int, Id]:
    return head.submitted_us, head.task


def _ended(snapshot: Snapshot, ends: tuple[int, ...]) -> Snapshot:
    tasks = sorted(held.task for group in snapshot.running for held in group.tasks)
    gone = {tasks[place % len(tasks)] for place in ends} if tasks else set()
    groups = [
        replace(group, tasks=tuple(held for held in group.tasks if held.task not in gone))
        for group in snapshot.running
    ]
    return replace(snapshot, running=tuple(group for group in groups if group.tasks))
