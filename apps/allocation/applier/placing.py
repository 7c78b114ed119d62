"""Admissions: tasks become allocated, attempts and their ledger rows are made."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F

from apps.allocation.engine.plan import Place
from apps.allocation.engine.quantities import Quantities
from apps.allocation.engine.snapshot import Snapshot
from apps.events.services import Entry, events_record
from apps.nodes.models import Device
from apps.tasks.models import Attempt, HeldDevice, Holding, Task
from apps.tasks.states import TaskState
from apps.tasks.topics import task_topics

# The rows of devices by node and index.
DeviceIds = Mapping[tuple[Any, int], int]


@dataclass(frozen=True, slots=True)
class Applied:
    """Which places were carried out, and how many were skipped because the task had changed."""

    placed: tuple[Place, ...]
    skipped: int


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the snapshot said about the run of a place, and the run's row."""

    policy: Any
    request: Quantities
    replicas: int
    run_id: int


@dataclass(frozen=True, slots=True)
class _Admission:
    """A task that was given its place, and the attempt that carries it out."""

    place: Place
    attempt: Attempt


def apply_places(
    places: Sequence[Place], *, snapshot: Snapshot, runs: Sequence[int], now: datetime
) -> Applied:
    """Admit the tasks of `places` that still wait in the same run. Eight statements at most.

    Runs inside the transaction of the pass.

    Args:
        runs: ids of the run rows in the order of the snapshot's `runs`.
    """
    if not places:
        return Applied(placed=(), skipped=0)
    terms = _terms(snapshot, runs)
    devices = _device_ids(places)
    wanted = {uuid.UUID(str(place.task)): place for place in places if _is_there(place, devices)}
    generations = _take(wanted, terms, now)
    admissions = [
        _Admission(
            wanted[pk],
            _attempt(wanted[pk], terms[str(pk)], generation=generation, now=now),
        )
        for pk, generation in generations.items()
    ]
    Attempt.objects.bulk_create([one.attempt for one in admissions])
    _write_ledger(admissions, devices)
    _tell(admissions)
    return Applied(
        placed=tuple(one.place for one in admissions), skipped=len(places) - len(admissions)
    )


def _take(
    wanted: Mapping[uuid.UUID, Place], terms: Mapping[str, _Terms], now: datetime
) -> dict[uuid.UUID, int]:
    """Move the tasks that are as the snapshot saw them; their new generations.

    A task that somebody else holds is being changed: it is left to the next pass.
    """
    rows = (
        Task.objects.select_for_update(skip_locked=True, no_key=True)
        .filter(pk__in=list(wanted), state=TaskState.QUEUED)
        .order_by("pk")
        .values_list("pk", "generation", "run_id")
    )
    taken = {
        pk: generation + 1 for pk, generation, run_id in rows if run_id == terms[str(pk)].run_id
    }
    Task.objects.filter(pk__in=list(taken), state=TaskState.QUEUED).update(
        state=TaskState.ALLOCATED,
        state_detail="",
        generation=F("generation") + 1,
        exit_code=None,
        ended_at=None,
        changed_at=now,
    )
    return taken


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


def _device_ids(places: Sequence[Place]) -> DeviceIds:
    nodes = {int(member.node) for place in places for member in place.members}
    rows = Device.objects.filter(node__in=nodes).values_list("node_id", "index", "pk")
    return {(node, index): pk for node, index, pk in rows}


def _is_there(place: Place, devices: DeviceIds) -> bool:
    """Whether a node's report has not taken a device away since the snapshot."""
    return all(
        (member.node, share.index) in devices
        for member in place.members
        for share in member.devices
    )


def _attempt(place: Place, terms: _Terms, *, generation: int, now: datetime) -> Attempt:
    return Attempt(
        task_id=uuid.UUID(str(place.task)),
        generation=generation,
        queue_id=int(place.queue),
        policy_id=int(terms.policy),
        pool_id=int(place.pool),
        request=terms.request.as_dict(),
        replicas=terms.replicas,
        allocated_at=now,
    )


def _write_ledger(admissions: Iterable[_Admission], devices: DeviceIds) -> None:
    holdings = [_holding(one, rank) for one in admissions for rank in range(one.attempt.replicas)]
    Holding.objects.bulk_create(holdings)
    HeldDevice.objects.bulk_create(
        HeldDevice(holding=holding, device_id=devices[holding.node_id, index], milli=milli)
        for holding in holdings
        for index, milli in holding.devices
    )


def _holding(admission: _Admission, rank: int) -> Holding:
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


def _tell(admissions: Iterable[_Admission]) -> None:
    entries: list[Entry] = []
    topics: dict[str, None] = {}
    for one in admissions:
        attempt = one.attempt
        data = {
            "generation": attempt.generation,
            "pool": attempt.pool_id,
            "standing": one.place.standing.value,
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
