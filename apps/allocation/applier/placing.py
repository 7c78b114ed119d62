"""Admissions: tasks become allocated, attempts and their ledger rows are made."""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F

from apps.allocation.engine.plan import Place
from apps.allocation.engine.quantities import Quantities
from apps.allocation.engine.snapshot import Snapshot
from apps.events.services import Entry, events_record
from apps.nodes.models import Device, DeviceState
from apps.tasks.models import Attempt, Holding, Task
from apps.tasks.services.ledger import DeviceIds, devices_hold
from apps.tasks.states import TaskState
from apps.tasks.topics import task_topics


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the snapshot said about the run of a place, and the run's row."""

    policy: Any
    request: Quantities
    replicas: int
    run_id: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The tasks that can be admitted, locked: by id, the generation of their next attempt."""

    generations: Mapping[str, int]
    terms: Mapping[str, _Terms]
    devices: DeviceIds


@dataclass(frozen=True, slots=True)
class Admission:
    """A task that was given its place, and the attempt that carries it out."""

    place: Place
    attempt: Attempt


def ready_tasks(places: Sequence[Place], *, snapshot: Snapshot, runs: Sequence[int]) -> Ready:
    """Lock the tasks of `places` that still wait in the same run, on devices that are healthy.

    A task that somebody else holds is being changed: it is left to the next pass.
    """
    terms = _terms(snapshot, runs)
    devices = _healthy_devices({int(member.node) for place in places for member in place.members})
    wanted = [uuid.UUID(str(place.task)) for place in places if _is_there(place, devices)]
    rows = (
        Task.objects.select_for_update(skip_locked=True, no_key=True)
        .filter(pk__in=wanted, state=TaskState.QUEUED)
        .order_by("pk")
        .values_list("pk", "generation", "run_id")
    )
    generations = {
        str(pk): generation + 1
        for pk, generation, run_id in rows
        if run_id == terms[str(pk)].run_id
    }
    return Ready(generations=generations, terms=terms, devices=devices)


def admit(places: Sequence[Place], ready: Ready, *, now: datetime) -> list[Admission]:
    """Move these tasks on, each with an attempt."""
    tasks = [uuid.UUID(str(place.task)) for place in places]
    Task.objects.filter(pk__in=tasks, state=TaskState.QUEUED).update(
        state=TaskState.ALLOCATED,
        state_detail="",
        generation=F("generation") + 1,
        exit_code=None,
        ended_at=None,
        changed_at=now,
    )
    admissions = [Admission(place, _attempt(place, ready, now=now)) for place in places]
    Attempt.objects.bulk_create([one.attempt for one in admissions])
    return admissions


def _terms(snapshot: Snapshot, runs: Sequence[int]) -> dict[str, _Terms]:
    policies = {queue.id: queue.policy for queue in snapshot.queues}
    return {
        str(head.task): _Terms(
            policy=policies[run.queue],
            request=run.request,
            replicas=run.replicas,
            run_id=run_id,
        )
        for run, run_id in zip(snapshot.runs, runs, strict=True)
        for head in run.heads
    }


def _healthy_devices(nodes: Collection[int]) -> DeviceIds:
    """The devices of these nodes that may be given out, as the nodes reported last."""
    rows = Device.objects.filter(node__in=nodes, state=DeviceState.HEALTHY)
    return {(node, index): pk for node, index, pk in rows.values_list("node_id", "index", "pk")}


def _is_there(place: Place, devices: DeviceIds) -> bool:
    """Whether no report since the snapshot says that a device is gone, or used by others."""
    return all(
        (member.node, share.index) in devices
        for member in place.members
        for share in member.devices
    )


def _attempt(place: Place, ready: Ready, *, now: datetime) -> Attempt:
    terms = ready.terms[str(place.task)]
    return Attempt(
        task_id=uuid.UUID(str(place.task)),
        generation=ready.generations[str(place.task)],
        queue_id=int(place.queue),
        policy_id=int(terms.policy),
        pool_id=int(place.pool),
        request=terms.request.as_dict(),
        replicas=terms.replicas,
        allocated_at=now,
    )


def ledger_write(
    admissions: Iterable[Admission], ready: Ready, *, blocked: Collection[uuid.UUID]
) -> None:
    """What each member holds from now on; `blocked` attempts get some of their devices later."""
    holdings = [_holding(one, rank) for one in admissions for rank in range(one.attempt.replicas)]
    Holding.objects.bulk_create(holdings)
    devices_hold(holdings, ready.devices, blocked=blocked)


def _holding(admission: Admission, rank: int) -> Holding:
    attempt, members = admission.attempt, admission.place.members
    member = members[rank] if members else None
    return Holding(
        attempt=attempt,
        rank=rank,
        pool_id=attempt.pool_id,
        node_id=int(member.node) if member else None,
        amounts=attempt.request,
        devices=[[share.index, share.milli] for share in member.devices] if member else [],
    )


def admissions_record(
    admissions: Iterable[Admission], *, blocked: Mapping[uuid.UUID, Collection[object]]
) -> None:
    """The event of each; `waits_for` says how many have to go before it starts."""
    entries: list[Entry] = []
    topics: dict[str, None] = {}
    for one in admissions:
        attempt = one.attempt
        data = {
            "generation": attempt.generation,
            "pool": attempt.pool_id,
            "standing": one.place.standing.value,
            "waits_for": len(blocked.get(attempt.pk, ())),
        }
        entries.append(
            Entry(
                kind="task.allocated",
                object_type="task",
                object_id=attempt.task_id,
                queue_id=attempt.queue_id,
                policy_id=attempt.policy_id,
                data=data,
            )
        )
        names = task_topics(
            attempt.task_id,
            queue_id=attempt.queue_id,
            policy_id=attempt.policy_id,
            pool_id=attempt.pool_id,
        )
        topics.update(dict.fromkeys(names))
    events_record(entries, topics=topics)
