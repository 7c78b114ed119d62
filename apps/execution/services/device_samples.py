"""How the GPUs of a node are used, as it reports it with its inventory."""

from collections import Counter
from collections.abc import Iterable

from apps.execution.protocol.answers import DeviceProcess, DeviceReport
from apps.nodes.models import Node
from apps.tasks.services.gpu_use import DeviceSample, ProcessKey, device_samples_record


def node_store_samples(
    node: Node, devices: Iterable[DeviceReport], processes: Iterable[DeviceProcess]
) -> None:
    """How the GPUs are used now, for the tasks that hold them; simulated ones are left out."""
    samples = [
        DeviceSample(one.uuid, one.used_mb, one.utilisation_percent, one.power_mw)
        for one in devices
        if not one.simulated
    ]
    used: Counter[ProcessKey] = Counter()
    for process in processes:
        if process.member is not None:
            member = process.member
            key = (process.uuid, member.task_id, member.generation, member.rank)
            used[key] += process.memory_mb
    device_samples_record(node, samples, used)
