"""Passes run forward on paper until they rest; pure.

Everything happens at once: who is placed runs, who was stopping is gone, and so is who is
preempted, or waits again where that is the queue's setting. The clock of the snapshot stands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from apps.allocation.engine import decide
from apps.allocation.engine.plan import Place, Plan, Preempt, Wait
from apps.allocation.engine.snapshot import Head, Held, Id, Run, Running, Snapshot

# A chain of changes that long does not happen outside of tests; what is left then is said.
MOST_PASSES = 10


@dataclass(frozen=True, slots=True)
class Settled:
    """The state in which passes come to rest.

    `placed`, `preempted` and `moved` are the last decision about each task, whatever became of it
    after that; the `snapshot` says who runs in the end. `waiting` is of the last pass.
    """

    snapshot: Snapshot
    passes: int
    is_at_rest: bool
    placed: Mapping[Id, Place]
    preempted: Mapping[Id, Preempt]
    moved: Collection[Id]
    waiting: tuple[Wait, ...]


def settle(
    snapshot: Snapshot, *, returning: Collection[Id], most_passes: int = MOST_PASSES
) -> Settled:
    """Decide and carry out on paper until a pass decides nothing.

    Args:
        returning: queues whose preempted tasks wait again, in their old place; those of other
            queues are gone.
    """
    placed: dict[Id, Place] = {}
    preempted: dict[Id, Preempt] = {}
    moved: dict[Id, None] = {}
    for number in range(1, most_passes + 1):
        plan = decide(snapshot)
        placed.update((one.task, one) for one in plan.placed)
        preempted.update((one.task, one) for one in plan.preempted)
        moved.update(dict.fromkeys(one.task for one in plan.moved))
        is_at_rest = not (plan.placed or plan.preempted or plan.moved)
        # What was stopping anyway has left room: another pass looks at that.
        if is_at_rest and not any(group.is_stopping for group in snapshot.running):
            break
        if number < most_passes:
            snapshot = carry_out(snapshot, plan, returning=returning)
    return Settled(
        snapshot=snapshot,
        passes=number,
        is_at_rest=is_at_rest,
        placed=placed,
        preempted=preempted,
        moved=tuple(moved),
        waiting=plan.waiting,
    )


def carry_out(snapshot: Snapshot, plan: Plan, *, returning: Collection[Id]) -> Snapshot:
    """The state after `plan`, with everybody gone who has to go."""
    leaving = {one.task for one in plan.preempted}
    moves = {one.task: one for one in plan.moved}
    running: list[Running] = []
    back: list[tuple[Running, Held]] = []
    for group in snapshot.running:
        if group.is_stopping:
            continue
        stays = tuple(
            replace(held, members=moves[held.task].members, started_us=snapshot.now_us)
            if held.task in moves
            else held
            for held in group.tasks
            if held.task not in leaving
        )
        back += [(group, held) for held in group.tasks if held.task in leaving]
        if stays:
            running.append(group if stays == group.tasks else replace(group, tasks=stays))
    running += _started(snapshot, plan)
    runs = _without_placed(snapshot, plan)
    runs = _with_returned(runs, [one for one in back if one[0].queue in returning])
    return replace(snapshot, runs=tuple(runs), running=tuple(running))


def _started(snapshot: Snapshot, plan: Plan) -> list[Running]:
    places = {place.task: place for place in plan.placed}
    queues = {queue.id: queue for queue in snapshot.queues}
    started = []
    for run in snapshot.runs if places else ():
        by_pool: dict[Id, list[Held]] = defaultdict(list)
        for head in run.heads:
            place = places.get(head.task)
            if place is not None:
                held = Held(head.task, head.submitted_us, snapshot.now_us, place.members)
                by_pool[place.pool].append(held)
        queue = queues[run.queue]
        started += [
            Running(
                pool=pool,
                policy=queue.policy,
                profile=queue.profile,
                request=run.request,
                tasks=tuple(held),
                queue=queue.id,
                replicas=run.replicas,
                priority=run.priority,
                is_preemptible=run.is_preemptible,
                user=run.user,
                can_exceed_limit=run.can_exceed_limit,
            )
            for pool, held in by_pool.items()
        ]
    return started


def _without_placed(snapshot: Snapshot, plan: Plan) -> list[Run]:
    """Runs that are used up stay, empty, so that a run keeps its place in the list."""
    placed = {place.task for place in plan.placed}
    runs = []
    for run in snapshot.runs:
        heads = tuple(head for head in run.heads if head.task not in placed)
        gone = len(run.heads) - len(heads)
        runs.append(replace(run, heads=heads, count=run.count - gone) if gone else run)
    return runs


def _with_returned(runs: list[Run], back: list[tuple[Running, Held]]) -> list[Run]:
    """Victims wait among their equals, where they stood before."""
    places = {_kind_of_run(run): index for index, run in enumerate(runs)}
    heads: dict[tuple[object, ...], list[Head]] = defaultdict(list)
    for group, held in back:
        kind = _kind_of_group(group)
        heads[kind].append(Head(held.submitted_us, held.task))
        if kind not in places:
            places[kind] = len(runs)
            runs.append(_empty_run(group))
    for kind, new in heads.items():
        run = runs[places[kind]]
        line = sorted((*run.heads, *new), key=lambda head: (head.submitted_us, head.task))
        runs[places[kind]] = replace(run, heads=tuple(line), count=run.count + len(new))
    return runs


def _kind_of_run(run: Run) -> tuple[object, ...]:
    return (
        run.queue,
        run.request,
        run.replicas,
        run.priority,
        run.is_preemptible,
        run.user,
        run.can_exceed_limit,
    )


def _kind_of_group(group: Running) -> tuple[object, ...]:
    return (
        group.queue,
        group.request,
        group.replicas,
        group.priority,
        group.is_preemptible,
        group.user,
        group.can_exceed_limit,
    )


def _empty_run(group: Running) -> Run:
    if group.queue is None:
        raise ValueError("only tasks of a queue can wait again")
    return Run(
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
