"""Samples of how GPUs are used, as a node reports them, added to what holds those GPUs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from apps.core import clock
from apps.core.units import MILLI
from apps.core.upserts import rows_add
from apps.nodes.models import Node
from apps.tasks.models import AttemptUse, DeviceUse, HeldDevice
from apps.tasks.models.gpu_use import IDLE_PERCENT, MS, SAMPLE_MOST, SLOT, slot_of
from apps.tasks.services.node_use import MOST_MB, MachineSample, machine_sample_add

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# More percent is nonsense, and so is more than 10 kW; of shares memory is bounded as well.
MOST_PERCENT, MOST_MW = 100, 10_000_000
# The uuid of a device, and the task, generation and rank of a member, as a node names them.
ProcessKey = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One GPU now: utilisation in percent and power in milliwatts, None where it is not known."""

    uuid: str
    memory_mb: int
    percent: int | None
    power_mw: int | None


@dataclass(frozen=True, slots=True)
class HeldUse:
    """What is known of one held device for a while; `percent` None: not how much it computed.

    Of a share of a GPU only what the member's own processes say: the rest would be that of others.
    """

    held: int
    attempt: UUID
    since: datetime
    until: datetime
    memory_mb: int
    percent: int | None
    power_mw: int
    has_process: bool = True

    @property
    def is_idle(self) -> bool:
        """Whether it is known to be idle."""
        return self.percent is not None and self.percent < IDLE_PERCENT

    @property
    def sums(self) -> tuple[int, ...]:
        """In the order of `SUMS`."""
        ms = _ms(self.since, self.until)
        return (
            ms,
            0 if self.percent is None else ms,
            (self.percent or 0) * ms,
            ms if self.has_process else 0,
            self.power_mw * ms // 1000,
        )


def _ms(since: datetime, until: datetime) -> int:
    """Rounded so that stretches that follow each other add up exactly."""
    return (until - EPOCH) // MS - (since - EPOCH) // MS


SUMS = ("sampled_ms", "known_ms", "busy", "process_ms", "energy_mj")


def device_samples_record(
    node: Node,
    samples: Iterable[DeviceSample],
    processes: Mapping[ProcessKey, int],
    *,
    machine: MachineSample | None = None,
    now: datetime | None = None,
) -> int:
    """Add a node's samples to it and to the held devices, in the caller's transaction.

    They stand for the time since those before, up to two minutes: of longer gaps nothing is known.
    Where the clock went back, time that is sampled already is not sampled again.

    Args:
        processes: memory in 2^20 bytes that the processes of members use on each device.
        machine: what the node itself uses.

    Returns:
        How many held devices were sampled.
    """
    if now is None and clock.is_in_doubt():
        return 0
    now = now or clock.now()
    rows = Node.objects.filter(pk=node.pk)
    before = rows.values_list("sampled_at", flat=True).get()
    if before is not None and now <= before <= now + clock.MOST_AHEAD:
        return 0
    rows.update(sampled_at=now)
    if before is None or before > now:
        return 0
    since = max(before, now - SAMPLE_MOST)
    if machine is not None:
        steps = stretches(since, now, SLOT)
        machine_sample_add(node, machine, ((slot_of(a), _ms(a, b)) for a, b in steps))
    uses = list(_uses(node, {one.uuid: one for one in samples}, processes, (since, now)))
    held_uses_add(
        replace(one, since=began, until=ended)
        for one in uses
        for began, ended in stretches(one.since, one.until, SLOT)
    )
    return len(uses)


def held_uses_add(uses: Iterable[HeldUse]) -> None:
    """Add to what is known of held devices and of their attempts.

    Args:
        uses: sorted by `held` and `since`, no two of a device in the same five minutes.
    """
    uses = list(uses)
    rows_add(
        DeviceUse,
        ((one.held, slot_of(one.since), *one.sums, one.memory_mb) for one in uses),
        key=("held", "at"),
        added=SUMS,
        highest=("memory_mb",),
        condition="NOT is_booked",
    )
    by_attempt: dict[UUID, list[HeldUse]] = {}
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
        stop = min(until, EPOCH + ((at - EPOCH) // length + 1) * length)
        yield at, stop
        at = stop


def _uses(
    node: Node,
    samples: Mapping[str, DeviceSample],
    processes: Mapping[ProcessKey, int],
    sampled: tuple[datetime, datetime],
) -> Iterator[HeldUse]:
    since, now = sampled
    for row in _held_devices(node, samples):
        sample = samples[row["device__uuid"]]
        key = (
            sample.uuid,
            str(row["member__attempt__task_id"]),
            row["member__attempt__generation"],
            row["member__rank"],
        )
        is_whole = row["milli"] == MILLI
        own_mb = processes.get(key)
        percent = sample.percent if is_whole else None
        began = max(since, row["member__started_at"])
        if began >= now:
            continue
        yield HeldUse(
            held=row["pk"],
            attempt=row["member__attempt_id"],
            since=began,
            until=now,
            memory_mb=sample.memory_mb if is_whole else min(own_mb or 0, MOST_MB),
            percent=None if percent is None else min(percent, MOST_PERCENT),
            power_mw=min(sample.power_mw or 0, MOST_MW) if is_whole else 0,
            has_process=own_mb is not None,
        )


def _held_devices(node: Node, samples: Mapping[str, Any]) -> QuerySet[HeldDevice, dict[str, Any]]:
    rows: QuerySet[HeldDevice, dict[str, Any]] = (
        HeldDevice.objects.filter(
            released_at__isnull=True,
            member__node=node,
            member__started_at__isnull=False,
            member__ended_at__isnull=True,
            device__is_simulated=False,
            device__uuid__in=list(samples),
        )
        .order_by("pk")
        .values(
            *("pk", "milli", "device__uuid", "member__attempt_id", "member__attempt__task_id"),
            *("member__attempt__generation", "member__rank", "member__started_at"),
        )
    )
    return rows
