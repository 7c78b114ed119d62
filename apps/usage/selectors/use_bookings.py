"""What samples of held devices add to the sums of each hour."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce

from apps.tasks.models import Attempt, DeviceUse
from apps.tasks.models.gpu_use import IDLE_PERCENT, SAMPLE_MOST, SLOT
from apps.usage.selectors.bookings import Booking, Sums, hour_of, past_tiers


def uses_to_book(now: datetime) -> QuerySet[DeviceUse]:
    """Those to which no sample is added any more: they are over, or what held the device is."""
    is_over = Q(at__lt=now - SLOT - SAMPLE_MOST) | Q(held__released_at__isnull=False)
    return DeviceUse.objects.filter(is_over, is_booked=False)


def bookings_of_uses(uses: QuerySet[DeviceUse]) -> Iterator[Booking]:
    """One for each row, in two queries."""
    rows = list(_rows(uses))
    tiers = past_tiers(Attempt.objects.filter(pk__in={row["attempt"] for row in rows}))
    for row in rows:
        past = tiers.get(row["attempt"], ())
        # That of its end: a new attempt has none yet.
        tier = next((tier for tier, until in past if row["at"] + SLOT <= until), row["tier"])
        yield Booking(
            hour_of(row["at"]),
            row["policy"],
            row["pool"],
            row["queue"],
            row["owner"],
            row["model"],
            tier,
            _sums(row),
        )


def _rows(uses: QuerySet[DeviceUse]) -> QuerySet[DeviceUse, dict[str, Any]]:
    of_attempt = "held__member__attempt"
    rows: QuerySet[DeviceUse, dict[str, Any]] = uses.order_by().values(
        *("at", "sampled_ms", "known_ms", "busy", "process_ms", "held__milli"),
        model=Coalesce("held__member__gpu_model", "held__member__node__gpu_model"),
        attempt=F(f"{of_attempt}_id"),
        policy=F(f"{of_attempt}__policy_id"),
        pool=F(f"{of_attempt}__pool_id"),
        queue=F(f"{of_attempt}__queue_id"),
        owner=F(f"{of_attempt}__task__owner_id"),
        tier=F(f"{of_attempt}__tier"),
    )
    return rows


def _sums(row: dict[str, Any]) -> Sums:
    milli, known = row["held__milli"], row["known_ms"]
    return {
        "known": milli * known,
        "used": milli * row["busy"] // 100,
        "idle": milli * known if row["busy"] < IDLE_PERCENT * known else 0,
        "no_process": milli * (row["sampled_ms"] - row["process_ms"]),
    }
