"""How tasks of the demonstration use their simulated GPUs: made up, as samples of real ones are."""

import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from apps.core.units import MILLI
from apps.core.upserts import rows_add
from apps.tasks.models import AttemptUse, DeviceUse, HeldDevice
from apps.tasks.models.gpu_use import IDLE_PERCENT, MS, SLOT, slot_of
from apps.tasks.services.gpu_use import SUMS
from rpm.demonstration.catalog import NOTEBOOK, USERNAMES
from rpm.demonstration.presence import active_nodes

# As often as beat asks for them.
EVERY = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class SimulatedUse:
    """One held device for a while; `percent` None: of a share of a GPU nothing is known."""

    held: int
    attempt: UUID
    since: datetime
    until: datetime
    percent: int | None
    memory_mb: int

    @classmethod
    def of(
        cls, task: str, *, milli: int, held: int, attempt: UUID, since: datetime, until: datetime
    ) -> "SimulatedUse":
        """What a task of this name does then: the same whenever it is asked for."""
        usual, now = random.Random(task), random.Random(f"{task} {slot_of(since)}")  # noqa: S311
        percent = round(usual.uniform(42, 90) + now.uniform(-9, 9))
        memory_mb = round(usual.uniform(20_000, 70_000) * milli / MILLI)
        if task.startswith(NOTEBOOK):
            percent, memory_mb = 0, 1_800
        return cls(held, attempt, since, until, percent if milli == MILLI else None, memory_mb)

    @property
    def is_idle(self) -> bool:
        """Whether it is known to be idle."""
        return self.percent is not None and self.percent < IDLE_PERCENT

    @property
    def sums(self) -> tuple[int, ...]:
        """In the order of `SUMS`; a GPU takes 70 W, and up to 400 W more."""
        ms, percent = (self.until - self.since) // MS, self.percent
        if percent is None:
            return (ms, 0, 0, ms, 0)
        return (ms, ms, percent * ms, ms, (70 + 4 * percent) * ms)


def samples_record(*, now: datetime) -> int:
    """Add what live tasks did in the last half minute. Returns how many devices they hold."""
    uses = list(_live_uses(active_nodes().values_list("pk", flat=True), now))
    uses_add(
        replace(one, since=since, until=until)
        for one in uses
        for since, until in stretches(one.since, one.until, SLOT)
    )
    return len(uses)


def uses_add(uses: Iterable[SimulatedUse]) -> None:
    """Add to what is known of devices and attempts."""
    uses = list(uses)
    rows_add(
        DeviceUse,
        ((one.held, slot_of(one.since), *one.sums, one.memory_mb) for one in uses),
        key=("held", "at"),
        added=SUMS,
        highest=("memory_mb",),
        condition="NOT is_booked",
    )
    by_attempt: dict[UUID, list[SimulatedUse]] = {}
    for one in uses:
        by_attempt.setdefault(one.attempt, []).append(one)
    rows = [
        (
            attempt,
            *map(sum, zip(*(one.sums for one in own), strict=True)),
            max(one.memory_mb for one in own),
            max(one.until for one in own),
            max((one.until for one in own if not one.is_idle), default=None),
        )
        for attempt, own in sorted(by_attempt.items())
    ]
    highest = ("memory_mb", "sampled_at", "used_at")
    rows_add(AttemptUse, rows, key=("attempt",), added=SUMS, highest=highest)


def stretches(
    since: datetime, until: datetime, length: timedelta
) -> Iterator[tuple[datetime, datetime]]:
    """The time between, cut at the multiples of `length`, such as at whole hours."""
    at = since
    while at < until:
        passed = timedelta(seconds=at.timestamp() % length.total_seconds())
        stop = min(until, at - passed + length)
        yield at, stop
        at = stop


def _live_uses(nodes: Collection[int], now: datetime) -> Iterator[SimulatedUse]:
    rows = HeldDevice.objects.filter(
        released_at__isnull=True,
        device__node__in=nodes,
        member__started_at__lt=now,
        member__ended_at__isnull=True,
        member__attempt__task__owner__username__in=USERNAMES,
    ).order_by("pk")
    of_attempt = "member__attempt"
    for task, milli, held, attempt, started_at in rows.values_list(
        f"{of_attempt}__task__name", "milli", "pk", of_attempt, "member__started_at"
    ):
        since = max(started_at, now - EVERY)
        yield SimulatedUse.of(task, milli=milli, held=held, attempt=attempt, since=since, until=now)
