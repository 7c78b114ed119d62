"""Adds what attempts held and used to the sums: each stretch once, however often this runs."""

import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.db import connection, transaction
from django.db.models import OuterRef, Subquery

from apps.core import clock
from apps.core.upserts import rows_add
from apps.nodes.models import Node
from apps.tasks.models import Attempt, DeviceUse, Member, PastTier
from apps.usage.models import MEASURES, Measures, OwnerDay, PolicyDay, PolicyHour, QueueDay
from apps.usage.selectors.bookings import (
    Booking,
    Sums,
    attempts_to_book,
    bookings_of,
    hour_of,
)
from apps.usage.selectors.rates import rates_lock
from apps.usage.selectors.use_bookings import bookings_of_uses, uses_to_book

log = structlog.get_logger(__name__)

RUN_S = 20.0
ATTEMPTS_AT_ONCE = 1000

# The columns of each table that identify a row, besides `at`.
KEYS: dict[type[Measures], tuple[str, ...]] = {
    PolicyHour: ("policy", "pool", "model", "tier"),
    PolicyDay: ("policy", "pool", "model", "tier"),
    QueueDay: ("policy", "queue"),
    OwnerDay: ("policy", "owner"),
}


def usage_book(*, now: datetime | None = None, run_s: float = RUN_S) -> int:
    """Book samples, attempts that began or ended, and hours that are over of those that live.

    Works for about `run_s` seconds; the next run continues. Returns how many rows were booked.
    """
    if now is None and clock.is_in_doubt():
        # Hours of the future would be booked; those of the past can wait.
        log.warning("usage.clock_in_doubt", advice="Set the clock, and start this again.")
        return 0
    at, until, booked = now or clock.now(), time.monotonic() + run_s, 0
    # Samples first: the tiers that an attempt had are dropped with its end.
    for book in (partial(_uses_book, at), partial(_batch_book, hour_of(at))):
        while batch := book():
            booked += batch
            if time.monotonic() >= until:
                return booked
    return booked


def _uses_book(now: datetime) -> int:
    with transaction.atomic():
        due = uses_to_book(now).order_by("pk")
        has_locks = connection.features.has_select_for_update_skip_locked
        locked = (
            due.select_for_update(skip_locked=True, no_key=True, of=("self",)) if has_locks else due
        )
        uses = list(locked.values_list("pk", flat=True)[:ATTEMPTS_AT_ONCE])
        rows = DeviceUse.objects.filter(pk__in=uses)
        _add(bookings_of_uses(rows))
        return rows.update(is_booked=True)


def _batch_book(hour: datetime) -> int:
    with transaction.atomic():
        rates_lock(is_shared=True)
        # Two runs book different attempts. One whose end is being stored is booked next time.
        has_locks = connection.features.has_select_for_update_skip_locked
        due = attempts_to_book(hour).order_by("pk")
        locked = due.select_for_update(skip_locked=True, no_key=True) if has_locks else due
        attempts = list(locked.values_list("pk", flat=True)[:ATTEMPTS_AT_ONCE])
        _models_keep(attempts)
        over: list[UUID] = []
        live: defaultdict[datetime, list[UUID]] = defaultdict(list)
        found: list[Booking] = []
        for one in bookings_of(Attempt.objects.filter(pk__in=attempts), until=hour):
            found += one.bookings
            (over if one.is_last else live[one.until]).append(one.attempt)
        _add(found)
        Attempt.objects.filter(pk__in=over).update(is_booked=True)
        PastTier.objects.filter(attempt__in=over).delete()
        for until, those in live.items():
            Attempt.objects.filter(pk__in=those).update(booked_until=until)
        return len(attempts)


def _models_keep(attempts: Iterable[UUID]) -> None:
    """What is summed up under a model is corrected under the same one."""
    model = Node.objects.filter(pk=OuterRef("node_id")).values("gpu_model")
    new = Member.objects.filter(attempt__in=attempts, gpu_model=None, node__isnull=False)
    # In one order: renewals of leases write several members, too.
    ids = list(new.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))
    Member.objects.filter(pk__in=ids).update(gpu_model=Subquery(model))


def _add(bookings: Iterable[Booking]) -> None:
    """Add to the rows that there are, and make those that there are not."""
    sums: dict[type[Measures], dict[tuple[Any, ...], Sums]] = {table: {} for table in KEYS}
    for one in bookings:
        day = one.at.replace(hour=0)
        for table, columns in KEYS.items():
            at = one.at if table is PolicyHour else day
            key = (at, *(getattr(one, column) for column in columns))
            row = sums[table].setdefault(key, defaultdict(int))
            for name, value in one.sums.items():
                row[name] += value
    for table, found in sums.items():
        rows = (
            (*key, *(measures.get(name, 0) for name in MEASURES))
            # In one order, so that two runs never deadlock.
            for key, measures in sorted(found.items(), key=lambda item: item[0])
        )
        rows_add(table, rows, key=("at", *KEYS[table]), added=MEASURES)
