"""How a node and its GPUs are used, as it reports it with its inventory."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from apps.execution.protocol.answers import Clocks, DeviceProcess, NodeInventory
from apps.nodes.models import Node
from apps.tasks.services.gpu_use import DeviceSample, ProcessKey, device_samples_record
from apps.tasks.services.node_use import MachineRates, MachineSample

# Rates over less time say nothing.
LEAST_S = 0.01


@dataclass(frozen=True, slots=True)
class MachineCounters:
    """What a node counted since it booted, at `uptime_s` of that boot; CPU time in milliseconds."""

    boot_id: str
    uptime_s: float
    cpu_ms: int
    cpu_busy_ms: int
    received: int
    sent: int

    @classmethod
    def of(cls, inventory: NodeInventory, clocks: Clocks) -> Self | None:
        """Of its physical interfaces, if it has any; None where its helper does not count."""
        if inventory.cpu_ms is None or inventory.cpu_busy_ms is None:
            return None
        physical = [one for one in inventory.network if one.physical]
        interfaces = physical or inventory.network
        return cls(
            clocks.boot_id,
            clocks.uptime_s,
            inventory.cpu_ms,
            inventory.cpu_busy_ms,
            sum(one.received_bytes for one in interfaces),
            sum(one.sent_bytes for one in interfaces),
        )

    def since(self, before: "MachineCounters | None") -> MachineRates | None:
        """None without earlier ones of the same boot, or where one of them went back."""
        if before is None or before.boot_id != self.boot_id:
            return None
        passed_s = self.uptime_s - before.uptime_s
        cpu_ms, busy_ms = self.cpu_ms - before.cpu_ms, self.cpu_busy_ms - before.cpu_busy_ms
        received, sent = self.received - before.received, self.sent - before.sent
        if passed_s < LEAST_S or cpu_ms <= 0 or min(busy_ms, received, sent) < 0:
            return None
        return MachineRates(
            cpu_percent=min(100 * busy_ms // cpu_ms, 100),
            received=int(received / passed_s),
            sent=int(sent / passed_s),
        )


def node_store_samples(
    node: Node,
    inventory: NodeInventory,
    processes: Iterable[DeviceProcess],
    rates: MachineRates | None = None,
) -> None:
    """How the node is used now, and its GPUs by the tasks that hold them, without simulated ones.

    Args:
        rates: what its counters say since they were read last.
    """
    samples = [
        DeviceSample(one.uuid, one.used_mb, one.utilisation_percent, one.power_mw)
        for one in inventory.devices
        if not one.simulated
    ]
    used: Counter[ProcessKey] = Counter()
    for process in processes:
        if process.member is not None:
            member = process.member
            key = (process.uuid, member.task_id, member.generation, member.rank)
            used[key] += process.memory_mb
    machine = MachineSample(
        memory_mb=max(inventory.memory_mb - inventory.memory_free_mb, 0),
        disk_mb=max(inventory.disk_mb - inventory.disk_free_mb, 0),
        rates=rates,
    )
    device_samples_record(node, samples, used, machine=machine)
