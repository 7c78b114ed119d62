"""Retention of output, samples, ended tasks, events and keys of requests.

Each run works in small transactions until no expired row is left or its time is over; the next one
continues. Rows are found in the order of their ids, which is that of their times, so that no run
reads younger rows. Two runs can overlap: each skips the rows that the other has locked.
"""

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import connection, transaction
from django.db.models import Exists, Max, OuterRef, Q, QuerySet, Sum

from apps.core import clock
from apps.events.models import Event
from apps.tasks.lifecycle.states import ENDED_STATES, LIVE_ATTEMPT_STATES
from apps.tasks.models import (
    Attempt,
    AttemptLog,
    AttemptUse,
    DeviceUse,
    HeldDevice,
    IdempotencyKey,
    Member,
    NodeUse,
    ReasonChange,
    Task,
    TaskDependency,
)
from apps.tasks.models.dependencies import UNSETTLED
from apps.tasks.models.gpu_use import SAMPLES_DAYS

log = structlog.get_logger(__name__)

# Far below the limit of background work, which is 30 s.
RUN_S = 15.0
LOOKED_AT = 1000
PIECES_AT_ONCE = 200
TASKS_AT_ONCE = 100
KEYS_DAYS = 7
# However much the tasks of a user take, those that have just ended can still be read.
STAYS_FOR = timedelta(days=1)
OF_TASKS = ("task", "attempt")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long rows are kept; None: for ever.

    `bytes_per_person`: above half of it, the oldest ended tasks of a user go earlier; 0: never.
    """

    logs: timedelta | None
    tasks: timedelta | None
    events: timedelta | None = None
    bytes_per_person: int = 0


@dataclass(frozen=True, slots=True)
class RemovedCounts:
    """How many rows a run removed; `is_over` where it left none for the next."""

    log_pieces: int
    tasks: int
    keys: int
    is_over: bool
    events: int = 0
    samples: int = 0


def retention_of(
    *, logs_days: int, tasks_days: int, events_days: int = 0, task_bytes: int = 0
) -> Retention:
    """From days, where 0 means for ever."""
    return Retention(
        logs=timedelta(days=logs_days) if logs_days else None,
        tasks=timedelta(days=tasks_days) if tasks_days else None,
        events=timedelta(days=events_days) if events_days else None,
        bytes_per_person=task_bytes,
    )


def expired_remove(
    retention: Retention, *, now: datetime | None = None, run_s: float = RUN_S
) -> RemovedCounts:
    """Remove expired rows, for `run_s` seconds at most.

    Tasks stay that have not ended, whose node does not know yet that their result is stored, whose
    attempt another one refers to, or that the sums of usage do not contain yet.
    """
    if now is None and clock.is_in_doubt():
        # Removed rows never come back; rows that are kept a day longer do no damage.
        log.warning("retention.clock_in_doubt", advice="Set the clock, and start this again.")
        return RemovedCounts(0, 0, 0, is_over=True)
    now = now or clock.now()
    until = time.monotonic() + run_s
    keys, are_keys_over = _each(_old_keys(now - timedelta(days=KEYS_DAYS)), _keys_delete, until)
    samples, are_samples_over = 0, True
    for batches, delete in (
        (_old_samples(now - timedelta(days=SAMPLES_DAYS)), _samples_delete),
        (_old_node_samples(now - timedelta(days=SAMPLES_DAYS)), _node_samples_delete),
    ):
        removed, is_over = _each(batches, delete, until)
        samples, are_samples_over = samples + removed, are_samples_over and is_over
    pieces, are_logs_over, tasks, are_tasks_over = 0, True, 0, True
    if retention.logs is not None:
        pieces, are_logs_over = _each(_old_pieces(now - retention.logs), _pieces_delete, until)
    if retention.tasks is not None:
        old = _with_elements(_old_tasks(now - retention.tasks))
        tasks, are_tasks_over = _each(old, _tasks_delete, until)
    if retention.tasks is not None and retention.bytes_per_person and are_tasks_over:
        excess = _with_elements(_excess_tasks(most=retention.bytes_per_person // 2, now=now))
        more, are_tasks_over = _each(excess, _tasks_delete, until)
        tasks += more
    events, are_events_over = 0, True
    if retention.events is not None:
        events, are_events_over = _each(_old_events(now - retention.events), _events_delete, until)
    is_over = are_keys_over and are_samples_over and are_logs_over and are_tasks_over
    return RemovedCounts(
        pieces, tasks, keys, is_over=is_over and are_events_over, events=events, samples=samples
    )


def _each(
    batches: Iterator[Sequence[Any]], delete: Callable[[Sequence[Any]], int], until: float
) -> tuple[int, bool]:
    """How many rows were removed, and whether there was time for all."""
    removed = 0
    for batch in batches:
        if time.monotonic() >= until:
            return removed, False
        removed += delete(batch) if batch else 0
    return removed, True


# --- expired rows ----------------------------------------------------------------------------


def _old_keys(before: datetime) -> Iterator[Sequence[int]]:
    old = IdempotencyKey.objects.filter(created_at__lt=before).order_by("pk")
    last = 0
    while batch := list(old.filter(pk__gt=last).values_list("pk", flat=True)[:LOOKED_AT]):
        yield batch
        last = batch[-1]


def _old_samples(before: datetime) -> Iterator[Sequence[int]]:
    """What is not summed up yet stays."""
    old = DeviceUse.objects.filter(at__lt=before, is_booked=True).order_by("at")
    while batch := list(old.values_list("pk", flat=True)[:LOOKED_AT]):
        yield batch


def _old_node_samples(before: datetime) -> Iterator[Sequence[int]]:
    old = NodeUse.objects.filter(at__lt=before).order_by("at")
    while batch := list(old.values_list("pk", flat=True)[:LOOKED_AT]):
        yield batch


def _old_pieces(before: datetime) -> Iterator[Sequence[int]]:
    """Pieces of attempts that ended before; pieces of live attempts are skipped."""
    last = 0
    while rows := list(
        AttemptLog.objects.filter(pk__gt=last)
        .order_by("pk")
        .values_list("pk", "at", "attempt__ended_at")[:LOOKED_AT]
    ):
        old = [pk for pk, _, ended_at in rows if ended_at is not None and ended_at < before]
        for start in range(0, len(old), PIECES_AT_ONCE):
            yield old[start : start + PIECES_AT_ONCE]
        yield ()
        # No later piece can belong to an attempt that ended before.
        if rows[-1][1] >= before:
            return
        last = rows[-1][0]


def _old_tasks(before: datetime) -> Iterator[Sequence[uuid.UUID]]:
    """Tasks that ended before; ids are times, and no task ends before it was created."""
    last = uuid.UUID(int=0)
    while rows := list(
        Task.objects.filter(pk__gt=last, array=None)
        .order_by("pk")
        .values_list("pk", "created_at", "state", "ended_at")[:LOOKED_AT]
    ):
        old = [
            pk
            for pk, _, state, ended_at in rows
            if state in ENDED_STATES and ended_at is not None and ended_at < before
        ]
        for start in range(0, len(old), TASKS_AT_ONCE):
            yield old[start : start + TASKS_AT_ONCE]
        yield ()
        if rows[-1][1] >= before:
            return
        last = rows[-1][0]


def _with_elements(batches: Iterator[Sequence[uuid.UUID]]) -> Iterator[Sequence[uuid.UUID]]:
    """The batches, each after the elements of its arrays: an array goes with its last element."""
    for batch in batches:
        last = uuid.UUID(int=0)
        elements = Task.objects.filter(array__in=batch, array__state__in=ENDED_STATES)
        elements = elements.order_by("pk")
        while batch and (
            ids := list(elements.filter(pk__gt=last).values_list("pk", flat=True)[:TASKS_AT_ONCE])
        ):
            yield ids
            last = ids[-1]
        yield batch


def _excess_tasks(*, most: int, now: datetime) -> Iterator[Sequence[uuid.UUID]]:
    """The oldest ended tasks of users whose ended tasks take more bytes than this.

    Tasks that ended within the last day stay.
    """
    sums = Task.objects.order_by().values_list("owner").annotate(sum=Sum("size_bytes"))
    for owner in [owner for owner, _ in sums.filter(sum__gt=most)]:
        # Tasks from before sizes were stored free no counted bytes.
        # An element counts with its array.
        ended = Task.objects.filter(owner=owner, state__in=ENDED_STATES, size_bytes__gt=0)
        excess = (ended.aggregate(sum=Sum("size_bytes"))["sum"] or 0) - most
        old = ended.filter(ended_at__lt=now - STAYS_FOR).order_by("ended_at", "pk")
        sizes = old.values_list("pk", "size_bytes", "ended_at")
        after = Q()
        while excess > 0 and (rows := list(sizes.filter(after)[:TASKS_AT_ONCE])):
            batch = []
            for pk, size, _ in rows:
                if excess > 0:
                    batch.append(pk)
                    excess -= size
            yield batch
            last, _, at = rows[-1]
            after = Q(ended_at__gt=at) | Q(ended_at=at, pk__gt=last)


def _old_events(before: datetime) -> Iterator[Sequence[int]]:
    """Expired events; those of tasks go with their task."""
    last = 0
    while rows := list(
        Event.objects.filter(pk__gt=last)
        .order_by("pk")
        .values_list("pk", "at", "object_type")[:LOOKED_AT]
    ):
        yield [pk for pk, at, noun in rows if at < before and noun not in OF_TASKS]
        if rows[-1][1] >= before:
            return
        last = rows[-1][0]


def ended_tasks_remove(tasks: Collection[uuid.UUID]) -> int:
    """Remove these tasks, at most `TASKS_AT_ONCE`, whenever they ended. Returns how many.

    Those stay that have not ended, or that are still needed (`expired_remove`).
    """
    return _tasks_delete(list(tasks))


def unstarted_tasks_remove(tasks: Collection[uuid.UUID]) -> None:
    """Remove these tasks, which have no attempt and are locked by the caller."""
    ids = [str(pk) for pk in tasks]
    _delete(Event.objects.filter(object_type="task", object_id__in=ids))
    IdempotencyKey.objects.filter(task_id__in=tasks).delete()
    Task.objects.filter(pk__in=tasks).delete()


# --- removal ---------------------------------------------------------------------------------


def _keys_delete(batch: Sequence[Any]) -> int:
    return IdempotencyKey.objects.filter(pk__in=batch).delete()[0]


def _samples_delete(batch: Sequence[Any]) -> int:
    return DeviceUse.objects.filter(pk__in=batch).delete()[0]


def _node_samples_delete(batch: Sequence[Any]) -> int:
    return NodeUse.objects.filter(pk__in=batch).delete()[0]


def _pieces_delete(batch: Sequence[Any]) -> int:
    return AttemptLog.objects.filter(pk__in=batch).delete()[0]


def _tasks_delete(batch: Sequence[Any]) -> int:
    """Delete tasks with their events, attempts and reasons, unless one is still needed."""
    with transaction.atomic():
        free = Task.objects.filter(pk__in=batch, state__in=ENDED_STATES).exclude(_is_needed())
        # On SQLite the transaction itself excludes other writers.
        has_locks = connection.features.has_select_for_update_skip_locked
        locked = free.select_for_update(skip_locked=True, of=("self",)) if has_locks else free
        tasks = list(locked.values_list("pk", flat=True))
        attempts = list(Attempt.objects.filter(task__in=tasks).values_list("pk", flat=True))
        AttemptLog.objects.filter(attempt__in=attempts).delete()
        DeviceUse.objects.filter(held__member__attempt__in=attempts).delete()
        AttemptUse.objects.filter(attempt__in=attempts).delete()
        HeldDevice.objects.filter(member__attempt__in=attempts).delete()
        Member.objects.filter(attempt__in=attempts).delete()
        # Ended attempts may refer to each other: a victim to its beneficiary.
        Attempt.objects.filter(stops_for__in=attempts).update(stops_for=None)
        Attempt.blocked_by.through.objects.filter(
            Q(from_attempt__in=attempts) | Q(to_attempt__in=attempts)
        ).delete()
        Attempt.objects.filter(pk__in=attempts).delete()
        ReasonChange.objects.filter(task__in=tasks).delete()
        edges = Q(task__in=tasks) | Q(after__in=tasks)
        TaskDependency.objects.filter(edges).delete()
        IdempotencyKey.objects.filter(task_id__in=tasks).delete()
        ids = [str(pk) for pk in (*tasks, *attempts)]
        _delete(Event.objects.filter(object_type__in=OF_TASKS, object_id__in=ids))
        Task.objects.filter(pk__in=tasks).delete()
        return len(tasks)


def _events_delete(batch: Sequence[Any]) -> int:
    return _delete(Event.objects.filter(pk__in=batch))


def _delete(events: QuerySet[Event]) -> int:
    """Delete all but the latest event: nodes remember its number.

    A node takes a database whose numbers fall for a restored one.
    """
    latest = Event.objects.aggregate(Max("pk"))["pk__max"]
    return events.exclude(pk=latest).delete()[0]


def _is_needed() -> Q:
    """Whether a node, a live attempt, a waiting task, sums of usage or an element need the task."""
    live = Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES)
    untold = Q(is_acknowledged=False, node__isnull=False, node__removed_at=None)
    sampled = DeviceUse.objects.filter(is_booked=False)
    unsettled = Member.objects.filter(Q(released_at=None) | untold)
    waiting = TaskDependency.objects.filter(UNSETTLED)
    # Looked up for each task, by an index: both tables may be large.
    return (
        Q(Exists(waiting.filter(task__state="queued", after=OuterRef("pk"))))
        | Q(Exists(Task.objects.filter(array=OuterRef("pk"))))
        | Q(attempts__in=live)
        | Q(attempts__in=Attempt.objects.filter(is_booked=False))
        | Q(attempts__in=sampled.values("held__member__attempt"))
        | Q(attempts__in=unsettled.values("attempt"))
        | Q(attempts__in=live.values("stops_for"))
        | Q(attempts__in=live.values("blocked_by"))
    )
