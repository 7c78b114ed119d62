"""Adds what attempts held to the sums: each stretch once, however often this runs."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.db import connection, transaction

from apps.core import clock
from apps.tasks.models import Attempt, PastTier
from apps.usage.models import MEASURES, Measures, OwnerDay, PolicyDay, PolicyHour, QueueDay
from apps.usage.selectors.bookings import (
    Booking,
    Sums,
    attempts_to_book,
    bookings_of,
    hour_of,
)

log = structlog.get_logger(__name__)

RUN_S = 20.0
ATTEMPTS_AT_ONCE = 500
ROWS_AT_ONCE = 200

# The columns of each table that identify a row, besides `at`.
KEYS: dict[type[Measures], tuple[str, ...]] = {
    PolicyHour: ("policy", "pool", "model", "tier"),
    PolicyDay: ("policy", "pool", "model", "tier"),
    QueueDay: ("policy", "queue"),
    OwnerDay: ("policy", "owner"),
}


def usage_book(*, now: datetime | None = None, run_s: float = RUN_S) -> int:
    """Book the attempts that began or ended, and the hours that are over of those that live.

    Works for about `run_s` seconds; the next run continues. Returns how many attempts were booked.
    """
    if now is None and clock.is_in_doubt():
        # Hours of the future would be booked; those of the past can wait.
        log.warning("usage.clock_in_doubt", advice="Set the clock, and start this again.")
        return 0
    hour, until, booked = hour_of(now or clock.now()), time.monotonic() + run_s, 0
    while batch := _batch_book(hour):
        booked += batch
        if time.monotonic() >= until:
            break
    return booked


def _batch_book(hour: datetime) -> int:
    with transaction.atomic():
        # Two runs book different attempts. One whose end is being stored is booked next time.
        has_locks = connection.features.has_select_for_update_skip_locked
        due = attempts_to_book(hour).order_by("pk")
        locked = due.select_for_update(skip_locked=True, no_key=True) if has_locks else due
        attempts = list(locked.values_list("pk", flat=True)[:ATTEMPTS_AT_ONCE])
        over: list[UUID] = []
        live: defaultdict[datetime, list[UUID]] = defaultdict(list)
        sums: dict[type[Measures], dict[tuple[Any, ...], Sums]] = {table: {} for table in KEYS}
        for one in bookings_of(Attempt.objects.filter(pk__in=attempts), until=hour):
            _collect(sums, one.bookings)
            (over if one.is_last else live[one.until]).append(one.attempt)
        for table, found in sums.items():
            _add(table, found)
        Attempt.objects.filter(pk__in=over).update(is_booked=True)
        PastTier.objects.filter(attempt__in=over).delete()
        for until, those in live.items():
            Attempt.objects.filter(pk__in=those).update(booked_until=until)
        return len(attempts)


def _collect(
    sums: Mapping[type[Measures], dict[tuple[Any, ...], Sums]], bookings: Iterable[Booking]
) -> None:
    for one in bookings:
        day = one.at.replace(hour=0)
        for table, columns in KEYS.items():
            at = one.at if table is PolicyHour else day
            key = (at, *(getattr(one, column) for column in columns))
            row = sums[table].setdefault(key, defaultdict(int))
            for name, value in one.sums.items():
                row[name] += value


def _add(table: type[Measures], sums: Mapping[tuple[Any, ...], Sums]) -> None:
    """Add to the rows that there are, and make those that there are not."""
    rows = [
        (*key, *(measures.get(name, 0) for name in MEASURES))
        # In one order, so that two runs never wait for each other.
        for key, measures in sorted(sums.items(), key=lambda item: item[0])
    ]
    by_name = {field.name: field for field in table._meta.local_concrete_fields}
    fields = [by_name[name] for name in ("at", *KEYS[table], *MEASURES)]
    columns = [str(field.column) for field in fields]
    name = connection.ops.quote_name(table._meta.db_table)
    added = ", ".join(f"{one} = {name}.{one} + excluded.{one}" for one in MEASURES)
    key = ", ".join(columns[: 1 + len(KEYS[table])])
    row_sql = f"({', '.join(['%s'] * len(columns))})"
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[start : start + ROWS_AT_ONCE]
        values = [
            field.get_db_prep_save(value, connection)
            for row in part
            for field, value in zip(fields, row, strict=True)
        ]
        statement = (
            f"INSERT INTO {name} ({', '.join(columns)}) "  # noqa: S608  # names of our models
            f"VALUES {', '.join([row_sql] * len(part))} ON CONFLICT ({key}) DO UPDATE SET {added}"
        )
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
