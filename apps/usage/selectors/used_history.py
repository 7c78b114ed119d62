"""How much of what was held was used in the last hours and days, as far as nodes report it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet, Sum

from apps.tasks.models import DeviceUse
from apps.tasks.models.gpu_use import SLOT, slot_of
from apps.usage.selectors.bookings import MS
from apps.usage.selectors.current_usage import GPU
from apps.usage.selectors.usage_history import (
    HOURS,
    SPANS,
    HistoryScope,
    Stretch,
    stretch_sums,
)
from apps.usage.selectors.use_bookings import bookings_of_uses


@dataclass(frozen=True, slots=True)
class UsedHistory:
    """Means of equal stretches of time, oldest first: thousandths of GPU.

    `used` is utilisation times GPUs of which it is known; None where it is of none. `percent` is
    the mean utilisation of the whole time.
    """

    used: tuple[int | None, ...]
    percent: int | None

    @property
    def is_known(self) -> bool:
        return self.percent is not None


def used_history(
    scope: HistoryScope, *, began: datetime, until: datetime, hours: int, steps: int
) -> UsedHistory:
    """What was used, in one query or, from sums, three.

    From steps of five minutes that are over: in the last hours those of the scope's devices, in
    longer times as they are summed up.
    """
    over = slot_of(until)
    is_summed = hours > (HOURS if scope.queue or scope.node else SPANS[0])
    read = _summed_stretches if is_summed else _slot_stretches
    # How much of each step these five minutes cover.
    covered: Stretch = ("covered", {GPU: 1000}, 1, began, max(began, over))
    found = [*read(scope, began=began, until=over), covered]
    sums = stretch_sums(found, began=began, until=until, steps=steps)
    parts, used, known = (sums.get(key, [0.0] * steps) for key in ("covered", "used", "known"))
    return UsedHistory(
        used=tuple(
            round(use * 1000 / part) if part and known_here else None
            for part, use, known_here in zip(parts, used, known, strict=True)
        ),
        percent=round(100 * sum(used) / sum(known)) if sum(known) else None,
    )


def _slot_stretches(scope: HistoryScope, *, began: datetime, until: datetime) -> Iterator[Stretch]:
    rows = _device_uses(scope).filter(at__gt=began - SLOT, at__lt=until, known_ms__gt=0)
    sums = rows.values_list("at").annotate(Sum("busy"), Sum("known_ms"))
    slot_ms = SLOT // MS
    # Of shares of a GPU the utilisation is not known: all of these are whole ones.
    for at, busy, known in sums:
        yield "used", {GPU: busy * 10 / slot_ms}, 1, at, at + SLOT
        yield "known", {GPU: known * 1000 / slot_ms}, 1, at, at + SLOT


def _summed_stretches(
    scope: HistoryScope, *, began: datetime, until: datetime
) -> Iterator[Stretch]:
    first = scope.start_of(began)
    sums = scope.sums().filter(at__gte=first, at__lt=until, known__gt=0).values_list("at")
    unbooked = _device_uses(scope).filter(is_booked=False, at__gte=first, at__lt=until)
    more = (
        (scope.start_of(one.at), one.sums["used"], one.sums["known"])
        for one in bookings_of_uses(unbooked)
    )
    for at, used, known in (*sums.annotate(Sum("used"), Sum("known")), *more):
        end = min(at + scope.step, until)
        ms = max((end - at) / MS, 1)
        yield "used", {GPU: used / ms}, 1, at, end
        yield "known", {GPU: known / ms}, 1, at, end


def _device_uses(scope: HistoryScope) -> QuerySet[DeviceUse]:
    wanted = scope.condition("held__member__attempt__", "held__member__node")
    return DeviceUse.objects.filter(wanted).order_by()
