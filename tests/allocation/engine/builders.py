"""Tiny snapshots for the engine's tests, and what comes after a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from apps.allocation.engine.plan import Place, Plan
from apps.allocation.engine.quantities import Quantities
from apps.allocation.engine.snapshot import (
    Head,
    Held,
    Id,
    Member,
    Node,
    Policy,
    Pool,
    Preemption,
    Profile,
    Queue,
    Run,
    Running,
    Settings,
    Snapshot,
)
from apps.allocation.scenarios import snapshot_from_json

NO_PREEMPTION = Settings(preemption=Preemption.NONE)


def amounts(**units: float) -> Quantities:
    """From whole units or halves and the like: `amounts(gpu=0.5)`."""
    return Quantities.of({key: round(value * 1000) for key, value in units.items()})


def gpus(count: float) -> Quantities:
    return amounts(gpu=count)


def scenario(**fields: object) -> Snapshot:
    """A snapshot from fields of a scenario file; taking back is off unless said otherwise."""
    return snapshot_from_json({"settings": {"preemption": "none"}, **fields})


def queued(task: str, policy: str, profile: str, submitted: int = 0, **more: object) -> object:
    return {"id": task, "policy": policy, "profile": profile, "submitted": submitted, **more}


def running(task: str, policy: str, profile: str, pool: str, **more: object) -> object:
    fields = {"id": task, "policy": policy, "profile": profile, "pool": pool}
    return {**fields, "state": "running", **more}


def placed(plan: Plan) -> dict[Id, Id]:
    return {place.task: place.pool for place in plan.placed}


def reasons(plan: Plan) -> dict[Id, str]:
    """The dominant reason of each waiting task."""
    return {task: wait.reasons[0].code.value for wait in plan.waiting for task in wait.tasks}


def after(
    snapshot: Snapshot,
    plan: Plan,
    *,
    keep: Iterable[Id] | None = None,
    is_drained: bool = False,
) -> Snapshot:
    """The snapshot once `plan` is carried out.

    Args:
        keep: of what was placed only these go on, None: all of it.
        is_drained: victims are gone and wait again; otherwise they are still stopping.
    """
    wanted = None if keep is None else set(keep)
    places = {place.task: place for place in plan.placed}
    profiles = {profile.id: profile for profile in snapshot.profiles}
    queues = {queue.id: queue for queue in snapshot.queues}
    groups = _carried_out(snapshot, plan, is_drained=is_drained)
    runs = []
    for run in snapshot.runs:
        left = tuple(head for head in run.heads if head.task not in places)
        groups += [
            _started(run, head, places[head.task], queues, profiles)
            for head in run.heads
            if head.task in places and (wanted is None or head.task in wanted)
        ]
        runs.append(replace(run, heads=left, count=run.count - len(run.heads) + len(left)))
    if is_drained:
        runs = _requeued(snapshot, plan, runs)
    return replace(snapshot, runs=tuple(run for run in runs if run.heads), running=tuple(groups))


def _carried_out(snapshot: Snapshot, plan: Plan, *, is_drained: bool) -> list[Running]:
    takers = {one.task: one.beneficiary for one in plan.preempted}
    moved = {one.task: one.members for one in plan.moved}
    groups = []
    for group in snapshot.running:
        if is_drained and group.is_stopping:
            continue
        kept = tuple(
            replace(held, members=moved.get(held.task, held.members))
            for held in group.tasks
            if held.task not in takers
        )
        taken = tuple(
            replace(held, stops_for=takers[held.task])
            for held in group.tasks
            if held.task in takers
        )
        if kept:
            groups.append(replace(group, tasks=kept))
        if taken and not is_drained:
            groups.append(replace(group, tasks=taken, is_stopping=True))
    return groups


def _requeued(snapshot: Snapshot, plan: Plan, runs: list[Run]) -> list[Run]:
    """Victims wait again with their original time, counted as preempted once more."""
    victims = {one.task for one in plan.preempted}
    return runs + [
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
        for group in snapshot.running
        for held in group.tasks
        if held.task in victims and group.queue is not None
    ]


def _started(
    run: Run,
    head: Head,
    place: Place,
    queues: Mapping[Id, Queue],
    profiles: Mapping[Id, Profile],
) -> Running:
    queue = queues[run.queue]
    return Running(
        pool=place.pool,
        policy=queue.policy,
        profile=profiles[queue.profile].id,
        request=run.request,
        tasks=(Held(head.task, head.submitted_us, started_us=1, members=place.members),),
        queue=queue.id,
        replicas=run.replicas,
        priority=run.priority,
        is_preemptible=run.is_preemptible,
        user=run.user,
        can_exceed_limit=run.can_exceed_limit,
    )


__all__ = [
    "NO_PREEMPTION",
    "Head",
    "Member",
    "Node",
    "Policy",
    "Pool",
    "after",
    "amounts",
    "gpus",
    "placed",
    "queued",
    "reasons",
    "running",
    "scenario",
]


def preempted(plan: Plan) -> dict[Id, Id]:
    """Who is taken for whom."""
    return {one.task: one.beneficiary for one in plan.preempted}
