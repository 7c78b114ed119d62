"""Samples of what nodes use of their CPUs, memory, disk and network."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from apps.core.upserts import rows_add
from apps.nodes.models import Node
from apps.tasks.models import NodeUse

# More is nonsense: 2 PiB of memory or disk, and 1 TiB in a second.
MOST_MB, MOST_BYTES_S = 2**31, 2**40


@dataclass(frozen=True, slots=True)
class MachineRates:
    """Since the sample before: utilisation of all CPUs in percent, and bytes in a second."""

    cpu_percent: int
    received: int
    sent: int


@dataclass(frozen=True, slots=True)
class MachineSample:
    """What a node uses now; `rates` is None where there is nothing to compare with."""

    memory_mb: int
    disk_mb: int
    rates: MachineRates | None


def machine_sample_add(
    node: Node, sample: MachineSample, slots: Iterable[tuple[datetime, int]]
) -> None:
    """Add it to each of these five minutes, for so many milliseconds."""
    rates = sample.rates
    memory_mb, disk_mb = min(sample.memory_mb, MOST_MB), min(sample.disk_mb, MOST_MB)
    rows = [
        (
            node.pk,
            at,
            ms,
            memory_mb * ms,
            ms if rates else 0,
            min(rates.cpu_percent, 100) * ms if rates else 0,
            min(rates.received, MOST_BYTES_S) * ms // 1000 if rates else 0,
            min(rates.sent, MOST_BYTES_S) * ms // 1000 if rates else 0,
            disk_mb,
        )
        for at, ms in slots
    ]
    added = ("sampled_ms", "memory", "counted_ms", "cpu", "received", "sent")
    rows_add(NodeUse, rows, key=("node", "at"), added=added, highest=("disk_mb",))
