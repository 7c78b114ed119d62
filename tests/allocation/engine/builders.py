"""Tiny snapshots for the engine's tests, and what comes after a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from apps.allocation.engine.model.plan import Placement, Plan
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import (
    Id,
    MemberPlacement,
    NodeSnapshot,
    PolicySnapshot,
    PoolSnapshot,
    PreemptionMode,
    ProfileSnapshot,
    QueuedGroup,
    QueuedTask,
    QueueSnapshot,
    RunningGroup,
    RunningTask,
    SettingsSnapshot,
    Snapshot,
)
from apps.allocation.scenarios import snapshot_from_json

NO_PREEMPTION = SettingsSnapshot(preemption=PreemptionMode.NONE)


def amounts(**units: float) -> Quantities:
    """From whole units or halves and the like: `amounts(gpu=0.5)`."""
    return Quantities.of({key: round(value * 1000) for key, value in units.items()})


def gpus(count: float) -> Quantities:
    return amounts(gpu=count)


def scenario(**fields: object) -> Snapshot:
    """A snapshot from fields of a scenario file; preemption is off unless given."""
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
    queued_groups = []
    for queued in snapshot.queued_groups:
        left = tuple(head for head in queued.heads if head.task not in places)
        groups += [
            _started(queued, head, places[head.task], queues, profiles)
            for head in queued.heads
            if head.task in places and (wanted is None or head.task in wanted)
        ]
        queued_groups.append(
            replace(queued, heads=left, count=queued.count - len(queued.heads) + len(left))
        )
    if is_drained:
        queued_groups = _requeued(snapshot, plan, queued_groups)
    return replace(
        snapshot,
        queued_groups=tuple(queued for queued in queued_groups if queued.heads),
        running=tuple(groups),
    )


def _carried_out(snapshot: Snapshot, plan: Plan, *, is_drained: bool) -> list[RunningGroup]:
    takers = {one.task: one.beneficiary for one in plan.preempted}
    moved = {one.task: one.members for one in plan.moved}
    groups = []
    for group in snapshot.running:
        if is_drained and group.is_stopping:
            continue
        kept = tuple(
            replace(running_task, members=moved.get(running_task.task, running_task.members))
            for running_task in group.tasks
            if running_task.task not in takers
        )
        taken = tuple(
            replace(running_task, stops_for=takers[running_task.task])
            for running_task in group.tasks
            if running_task.task in takers
        )
        if kept:
            groups.append(replace(group, tasks=kept))
        if taken and not is_drained:
            groups.append(replace(group, tasks=taken, is_stopping=True))
    return groups


def _requeued(
    snapshot: Snapshot, plan: Plan, queued_groups: list[QueuedGroup]
) -> list[QueuedGroup]:
    """Victims wait again with their original time, counted as preempted once more."""
    victims = {one.task for one in plan.preempted}
    return queued_groups + [
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
        for group in snapshot.running
        for running_task in group.tasks
        if running_task.task in victims and group.queue is not None
    ]


def _started(
    queued: QueuedGroup,
    head: QueuedTask,
    place: Placement,
    queues: Mapping[Id, QueueSnapshot],
    profiles: Mapping[Id, ProfileSnapshot],
) -> RunningGroup:
    queue = queues[queued.queue]
    return RunningGroup(
        pool=place.pool,
        policy=queue.policy,
        profile=profiles[queue.profile].id,
        request=queued.request,
        tasks=(RunningTask(head.task, head.submitted_us, started_us=1, members=place.members),),
        queue=queue.id,
        replicas=queued.replicas,
        priority=queued.priority,
        is_preemptible=queued.is_preemptible,
        user=queued.user,
        can_exceed_limit=queued.can_exceed_limit,
    )


__all__ = [
    "NO_PREEMPTION",
    "MemberPlacement",
    "NodeSnapshot",
    "PolicySnapshot",
    "PoolSnapshot",
    "QueuedTask",
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
    """Victims by their beneficiaries."""
    return {one.task: one.beneficiary for one in plan.preempted}
