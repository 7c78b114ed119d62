"""What is kept for a set time only: output, finished tasks, keys of requests.

Each run works in small transactions until nothing is left or its time is over; the next goes on.
Rows are found in the order of their ids, which is that of their times, so that no run reads what
is too young. Two runs at once do no harm: what one holds, the other leaves out.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import connection, transaction
from django.db.models import Max, Q, QuerySet, Sum

from apps.core import clock
from apps.events.models import Event
from apps.tasks.models import (
    Attempt,
    AttemptLog,
    HeldDevice,
    Holding,
    IdempotencyKey,
    ReasonChange,
    Task,
)
from apps.tasks.states import ENDED_STATES, LIVE_ATTEMPT_STATES

log = structlog.get_logger(__name__)

# Far below the limit of background work, which is 30 s.
RUN_S = 15.0
LOOKED_AT = 1000
PIECES_AT_ONCE = 200
TASKS_AT_ONCE = 100
KEYS_DAYS = 7
# However much somebody's tasks take, what has just ended can still be looked at.
STAYS_FOR = timedelta(days=1)
OF_TASKS = ("task", "attempt")


@dataclass(frozen=True, slots=True)
class Kept:
    """For how long; None: for ever.

    `bytes_per_person`: of more than half of it, the oldest ended tasks go earlier; 0: none.
    """

    logs: timedelta | None
    tasks: timedelta | None
    events: timedelta | None = None
    bytes_per_person: int = 0


@dataclass(frozen=True, slots=True)
class Removed:
    """How many rows a run removed; `is_over` where it left nothing for the next."""

    log_pieces: int
    tasks: int
    keys: int
    is_over: bool
    events: int = 0


def kept_of(*, logs_days: int, tasks_days: int, events_days: int = 0, task_bytes: int = 0) -> Kept:
    """From days, where 0 means for ever."""
    return Kept(
        logs=timedelta(days=logs_days) if logs_days else None,
        tasks=timedelta(days=tasks_days) if tasks_days else None,
        events=timedelta(days=events_days) if events_days else None,
        bytes_per_person=task_bytes,
    )


def old_remove(kept: Kept, *, now: datetime | None = None, run_s: float = RUN_S) -> Removed:
    """Remove what is kept no longer, for `run_s` seconds at most.

    Never anything of a task that is not over, of one whose result its node has not been told
    about, or of an attempt that another still refers to.
    """
    if now is None and clock.is_in_doubt():
        # Nothing that is removed comes back; what is kept a day longer harms nobody.
        log.warning("retention.clock_in_doubt", advice="Set the clock, and start this again.")
        return Removed(0, 0, 0, is_over=True)
    now = now or clock.now()
    until = time.monotonic() + run_s
    keys, are_keys_over = _each(_old_keys(now - timedelta(days=KEYS_DAYS)), _keys_delete, until)
    pieces, are_logs_over, tasks, are_tasks_over = 0, True, 0, True
    if kept.logs is not None:
        pieces, are_logs_over = _each(_old_pieces(now - kept.logs), _pieces_delete, until)
    if kept.tasks is not None:
        tasks, are_tasks_over = _each(_old_tasks(now - kept.tasks), _tasks_delete, until)
    if kept.tasks is not None and kept.bytes_per_person and are_tasks_over:
        excess = _excess_tasks(most=kept.bytes_per_person // 2, now=now)
        more, are_tasks_over = _each(excess, _tasks_delete, until)
        tasks += more
    events, are_events_over = 0, True
    if kept.events is not None:
        events, are_events_over = _each(_old_events(now - kept.events), _events_delete, until)
    is_over = are_keys_over and are_logs_over and are_tasks_over and are_events_over
    return Removed(pieces, tasks, keys, is_over=is_over, events=events)


def _each(
    batches: Iterator[Sequence[Any]], delete: Callable[[Sequence[Any]], int], until: float
) -> tuple[int, bool]:
    """How many rows went, and whether there was time for all."""
    removed = 0
    for batch in batches:
        if time.monotonic() >= until:
            return removed, False
        removed += delete(batch) if batch else 0
    return removed, True


# --- what is old -----------------------------------------------------------------------------


def _old_keys(before: datetime) -> Iterator[Sequence[int]]:
    old = IdempotencyKey.objects.filter(created_at__lt=before).order_by("pk")
    last = 0
    while batch := list(old.filter(pk__gt=last).values_list("pk", flat=True)[:LOOKED_AT]):
        yield batch
        last = batch[-1]


def _old_pieces(before: datetime) -> Iterator[Sequence[int]]:
    """Pieces of attempts that ended before; pieces of those that go on are passed over."""
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
        # Nothing that was written later can be of an attempt that ended before.
        if rows[-1][1] >= before:
            return
        last = rows[-1][0]


def _old_tasks(before: datetime) -> Iterator[Sequence[uuid.UUID]]:
    """Tasks that ended before; ids are times, and nothing ends before it was made."""
    last = uuid.UUID(int=0)
    while rows := list(
        Task.objects.filter(pk__gt=last)
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


def _excess_tasks(*, most: int, now: datetime) -> Iterator[Sequence[uuid.UUID]]:
    """Of people whose ended tasks take more bytes than this, those that ended first, until the
    rest do not; what ended within the last day stays.
    """
    sums = Task.objects.order_by().values_list("owner").annotate(sum=Sum("size_bytes"))
    for owner in [owner for owner, _ in sums.filter(sum__gt=most)]:
        # Those from before sizes were written free nothing that is counted.
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
    """Events that are not of tasks, with which those go."""
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


# --- how it goes -----------------------------------------------------------------------------


def _keys_delete(batch: Sequence[Any]) -> int:
    return IdempotencyKey.objects.filter(pk__in=batch).delete()[0]


def _pieces_delete(batch: Sequence[Any]) -> int:
    return AttemptLog.objects.filter(pk__in=batch).delete()[0]


def _tasks_delete(batch: Sequence[Any]) -> int:
    """Tasks with everything that is told about them, unless something still needs one."""
    with transaction.atomic():
        free = Task.objects.filter(pk__in=batch, state__in=ENDED_STATES).exclude(_is_needed())
        # On SQLite the transaction itself keeps everybody else out.
        has_locks = connection.features.has_select_for_update_skip_locked
        locked = free.select_for_update(skip_locked=True, of=("self",)) if has_locks else free
        tasks = list(locked.values_list("pk", flat=True))
        attempts = list(Attempt.objects.filter(task__in=tasks).values_list("pk", flat=True))
        AttemptLog.objects.filter(attempt__in=attempts).delete()
        HeldDevice.objects.filter(holding__attempt__in=attempts).delete()
        Holding.objects.filter(attempt__in=attempts).delete()
        # Attempts that are over may name each other: who stopped for whom.
        Attempt.objects.filter(stops_for__in=attempts).update(stops_for=None)
        Attempt.blocked_by.through.objects.filter(
            Q(from_attempt__in=attempts) | Q(to_attempt__in=attempts)
        ).delete()
        Attempt.objects.filter(pk__in=attempts).delete()
        ReasonChange.objects.filter(task__in=tasks).delete()
        IdempotencyKey.objects.filter(task_id__in=tasks).delete()
        ids = [str(pk) for pk in (*tasks, *attempts)]
        _delete(Event.objects.filter(object_type__in=OF_TASKS, object_id__in=ids))
        Task.objects.filter(pk__in=tasks).delete()
        return len(tasks)


def _events_delete(batch: Sequence[Any]) -> int:
    return _delete(Event.objects.filter(pk__in=batch))


def _delete(events: QuerySet[Event]) -> int:
    """All but the latest that there is: nodes remember its number, and take a database whose
    numbers fall for one that was restored.
    """
    latest = Event.objects.aggregate(Max("pk"))["pk__max"]
    return events.exclude(pk=latest).delete()[0]


def _is_needed() -> Q:
    """Tasks of which a node or a live attempt still has to hear."""
    live = Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES)
    untold = Q(is_acknowledged=False, node__isnull=False, node__removed_at=None)
    unsettled = Holding.objects.filter(Q(released_at=None) | untold)
    return (
        Q(attempts__in=live)
        | Q(attempts__in=unsettled.values("attempt"))
        | Q(attempts__in=live.values("stops_for"))
        | Q(attempts__in=live.values("blocked_by"))
    )
