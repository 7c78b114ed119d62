"""Sums up hours that are over, and their days; any hour may be summed up again."""

import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Max, Sum

from apps.core import clock
from apps.tasks.models import Attempt
from apps.usage.models import MEASURES, ClosedHour
from apps.usage.selectors.ledger import Sums, first_placement
from apps.usage.selectors.sums import SUM_KINDS, BY_POLICY, Key, SumKind, sums_in

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
# So long a pass or a report that began within the hour may take to be stored.
OPEN_FOR = timedelta(minutes=5)
# An end that is stored later than this after it happened changes hours that may be closed.
STORED_WITHIN = timedelta(minutes=1)
# How far back ends are looked for that were stored after their hour was summed up.
LATE_WITHIN = timedelta(days=2)
# Hours of queues and owners are needed for their day only.
KEEP_HOURS = timedelta(days=35)
RUN_S = 20.0
ROWS_AT_ONCE = 2000


def hour_of(at: datetime) -> datetime:
    """The beginning of its hour."""
    return at.replace(minute=0, second=0, microsecond=0)


def hours_close(*, now: datetime | None = None, run_s: float = RUN_S) -> int:
    """Sum up the hours that are over, and again those that an end changed that came late.

    Works for `run_s` seconds at most; the next run continues. Returns how many were summed up.
    """
    now = now or clock.now()
    until, closed = time.monotonic() + run_s, 0
    for hour in [*_late_hours(now), *_open_hours(now)]:
        if closed and time.monotonic() >= until:
            break
        hour_close(hour, now=now)
        closed += 1
    if closed:
        _old_hours_remove()
    return closed


def hour_close(hour: datetime, *, now: datetime) -> None:
    """Replace the sums of this hour, and those of its day, by what the attempts say now."""
    with transaction.atomic():
        ClosedHour.objects.get_or_create(at=hour, defaults={"closed_at": now})
        # Two workers replace the same rows one after the other.
        ClosedHour.objects.select_for_update().get(at=hour)
        ClosedHour.objects.filter(at=hour).update(closed_at=now)
        for kind, sums in sums_in(hour, hour + HOUR).items():
            _replace_hour(kind, hour, sums)
            _replace_day(kind, hour.replace(hour=0))


def _open_hours(now: datetime) -> Iterator[datetime]:
    newest = ClosedHour.objects.aggregate(Max("at"))["at__max"]
    began = first_placement()
    if newest is None and began is None:
        return
    hour = newest + HOUR if newest is not None else hour_of(began or now)
    while hour + HOUR <= now - OPEN_FOR:
        yield hour
        hour += HOUR


def _late_hours(now: datetime) -> list[datetime]:
    """Closed hours in which an attempt ended that was then not known to have ended."""
    closed = dict(
        ClosedHour.objects.filter(at__gt=now - LATE_WITHIN - HOUR).values_list("at", "closed_at")
    )
    late = Attempt.objects.filter(
        end_stored_at__gt=now - LATE_WITHIN, ended_at__lt=F("end_stored_at") - STORED_WITHIN
    )
    found: set[datetime] = set()
    for ended_at, stored_at in late.values_list("ended_at", "end_stored_at"):
        hour = hour_of(ended_at)
        while hour <= stored_at:
            if hour in closed and closed[hour] < stored_at + STORED_WITHIN:
                found.add(hour)
            hour += HOUR
    return sorted(found)


def _replace_hour(kind: SumKind, hour: datetime, sums: Mapping[Key, Sums]) -> None:
    rows = kind.hour._default_manager
    rows.filter(at=hour).delete()
    rows.bulk_create(
        [
            kind.hour(at=hour, **dict(zip(kind.columns, key, strict=True)), **measures)
            for key, measures in sums.items()
        ],
        batch_size=ROWS_AT_ONCE,
    )


def _replace_day(kind: SumKind, day: datetime) -> None:
    """A day is the sum of its hours."""
    hours = kind.hour._default_manager.filter(at__gte=day, at__lt=day + DAY)
    sums = hours.values(*kind.columns).annotate(**{f"all_{one}": Sum(one) for one in MEASURES})
    rows = [
        kind.day(
            at=day,
            **{column: one[column] for column in kind.columns},
            **{name: one[f"all_{name}"] for name in MEASURES},
        )
        for one in sums.order_by()
    ]
    kind.day._default_manager.filter(at=day).delete()
    kind.day._default_manager.bulk_create(rows, batch_size=ROWS_AT_ONCE)


def _old_hours_remove() -> None:
    newest = ClosedHour.objects.aggregate(Max("at"))["at__max"]
    for kind in SUM_KINDS:
        if kind is not BY_POLICY:
            kind.hour._default_manager.filter(at__lt=newest - KEEP_HOURS).delete()
