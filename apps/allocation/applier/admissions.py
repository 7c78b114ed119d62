"""Admissions: tasks become allocated, attempts and their ledger rows are made."""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.allocation.engine.model.plan import Placement
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import Snapshot
from apps.nodes.models import Device, DeviceState
from apps.tasks.lifecycle.transitions import ADMIT
from apps.tasks.lifecycle.writers import TaskSubject, task_transition
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.selectors.eligibility import ELIGIBLE
from apps.tasks.services.members.ledger import DeviceIds, devices_hold


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the snapshot said about the group of a placement, and the group's row."""

    policy: Any
    request: Quantities
    replicas: int
    task_group_id: int


@dataclass(frozen=True, slots=True)
class ReadyTasks:
    """The tasks that can be admitted, locked: by id, the generation of their next attempt."""

    generations: Mapping[str, int]
    terms: Mapping[str, _Terms]
    devices: DeviceIds


@dataclass(frozen=True, slots=True)
class Admission:
    """A task that got its placement, and the attempt that carries it out."""

    placement: Placement
    attempt: Attempt


def ready_tasks(
    placements: Sequence[Placement], *, snapshot: Snapshot, group_ids: Sequence[int]
) -> ReadyTasks:
    """Lock the tasks of `placements` that still wait in the same group, on healthy devices.

    A task that another transaction has locked is being changed: the next pass decides about it.
    """
    terms = _terms(snapshot, group_ids)
    devices = _healthy_devices(
        {int(member.node) for placement in placements for member in placement.members}
    )
    wanted = [
        uuid.UUID(str(placement.task)) for placement in placements if _is_there(placement, devices)
    ]
    rows = (
        Task.objects.select_for_update(skip_locked=True, no_key=True)
        .filter(ELIGIBLE, pk__in=wanted)
        .order_by("pk")
        .values_list("pk", "generation", "task_group_id")
    )
    generations = {
        str(pk): generation + 1
        for pk, generation, task_group_id in rows
        if task_group_id == terms[str(pk)].task_group_id
    }
    return ReadyTasks(generations=generations, terms=terms, devices=devices)


def attempts_create(
    placements: Sequence[Placement], ready: ReadyTasks, *, now: datetime
) -> list[Admission]:
    """An attempt for each of these tasks, which are admitted by `admit`."""
    admissions = [
        Admission(placement, _attempt(placement, ready, now=now)) for placement in placements
    ]
    Attempt.objects.bulk_create([one.attempt for one in admissions])
    return admissions


def admit(
    admissions: Sequence[Admission],
    *,
    blocked: Mapping[uuid.UUID, Collection[object]],
    now: datetime,
) -> None:
    """Allocate these tasks; `waits_for` of the event says how many tasks have to stop before."""
    subjects = [
        TaskSubject.of(
            one.attempt,
            tier=one.placement.tier.value,
            waits_for=len(blocked.get(one.attempt.pk, ())),
        )
        for one in admissions
    ]
    if subjects:
        task_transition(ADMIT, subjects, at=now)


def _terms(snapshot: Snapshot, group_ids: Sequence[int]) -> dict[str, _Terms]:
    policies = {queue.id: queue.policy for queue in snapshot.queues}
    return {
        str(head.task): _Terms(
            policy=policies[group.queue],
            request=group.request,
            replicas=group.replicas,
            task_group_id=task_group_id,
        )
        for group, task_group_id in zip(snapshot.queued_groups, group_ids, strict=True)
        for head in group.heads
    }


def _healthy_devices(nodes: Collection[int]) -> DeviceIds:
    """The devices of these nodes that may be given out, by their last reports."""
    rows = Device.objects.filter(node__in=nodes, state=DeviceState.HEALTHY)
    return {(node, index): pk for node, index, pk in rows.values_list("node_id", "index", "pk")}


def _is_there(placement: Placement, devices: DeviceIds) -> bool:
    """Whether no report since the snapshot says that a device is gone, or used by others."""
    return all(
        (member.node, share.index) in devices
        for member in placement.members
        for share in member.devices
    )


def _attempt(placement: Placement, ready: ReadyTasks, *, now: datetime) -> Attempt:
    terms = ready.terms[str(placement.task)]
    return Attempt(
        task_id=uuid.UUID(str(placement.task)),
        generation=ready.generations[str(placement.task)],
        queue_id=int(placement.queue),
        policy_id=int(terms.policy),
        pool_id=int(placement.pool),
        request=terms.request.as_dict(),
        replicas=terms.replicas,
        tier=placement.tier.value,
        allocated_at=now,
    )


def ledger_write(
    admissions: Iterable[Admission], ready: ReadyTasks, *, blocked: Collection[uuid.UUID]
) -> None:
    """What each member holds from now on; `blocked` attempts get some of their devices later."""
    members = [_new_member(one, rank) for one in admissions for rank in range(one.attempt.replicas)]
    Member.objects.bulk_create(members)
    devices_hold(members, ready.devices, blocked=blocked)


def _new_member(admission: Admission, rank: int) -> Member:
    attempt, members = admission.attempt, admission.placement.members
    member = members[rank] if members else None
    return Member(
        attempt=attempt,
        rank=rank,
        pool_id=attempt.pool_id,
        node_id=int(member.node) if member else None,
        amounts=attempt.request,
        devices=[[share.index, share.milli] for share in member.devices] if member else [],
    )
