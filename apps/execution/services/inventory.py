"""What nodes report about themselves, written to their rows."""

from datetime import timedelta
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from apps.core.doorbell import after_commit
from apps.core.units import milli, milli_text
from apps.events.services import event_record
from apps.execution.protocol.answers import Clocks, DeviceProcess, Probed
from apps.execution.protocol.answers import Device as ReportedDevice
from apps.execution.protocol.requests import Member, Probe, SimulatedDevice
from apps.nodes.models import Device, DeviceState, Node, NodeState

# A node is silent for others to know after so many syncs missed in a row and so long.
MISSED_SYNCS = 3
SILENT_AFTER = timedelta(seconds=30)
# Indices from here on are of devices that were replaced.
OUT_OF_THE_WAY = 1_000_000


def probe_request(node: Node, *, installation: str) -> Probe:
    """Ask for the inventory, telling the node of the devices that are made up."""
    devices = Device.objects.filter(node=node, is_simulated=True).order_by("index")
    return Probe(
        installation=installation,
        simulated_devices=tuple(
            SimulatedDevice(uuid=d.uuid, model=d.model, memory_mb=d.memory_mb, cdi=d.cdi)
            for d in devices
        ),
    )


def node_probed(node: Node, probed: Probed, clocks: Clocks) -> None:
    """Store the inventory; devices that are gone stay, marked as missing."""
    report = msgspec.to_builtins(probed)
    report.pop("devices", None)
    with transaction.atomic():
        _store_devices(node, probed.devices)
        capacity = _capacity(node, probed)
        changed = node.capacity != capacity or node.state != NodeState.HEALTHY
        Node.objects.filter(pk=node.pk).update(
            report=report,
            capacity=capacity,
            gpu_model=probed.devices[0].model if probed.devices else "",
            # Another boot than the known one means lost work: the next report is judged by it.
            boot_id=node.boot_id or clocks.boot_id,
        )
        node.boot_id = node.boot_id or clocks.boot_id
        node.capacity, node.report = capacity, report
        if changed:
            after_commit(tasks=["allocation.run_pass"], topics=_topics(node))


def node_answered(node: Node) -> None:
    """The node is there: healthy, whatever it was before."""
    before = node.state
    with transaction.atomic():
        Node.objects.filter(pk=node.pk).update(
            last_seen_at=timezone.now(), missed_syncs=0, state=NodeState.HEALTHY, state_detail=""
        )
        node.state, node.missed_syncs = NodeState.HEALTHY, 0
        if before != NodeState.HEALTHY:
            _tell(node, "node.healthy", {"before": before})


def node_missed(node: Node, detail: str, *, is_refused: bool = False) -> None:
    """No answer. One miss never condemns; three in a row and 30 s make the node suspect."""
    now = timezone.now()
    silent = node.last_seen_at is None or now - node.last_seen_at >= SILENT_AFTER
    state = node.state
    if is_refused:
        state = NodeState.REFUSED
    elif state == NodeState.HEALTHY and node.missed_syncs + 1 >= MISSED_SYNCS and silent:
        state = NodeState.SUSPECT
    with transaction.atomic():
        Node.objects.filter(pk=node.pk).update(
            missed_syncs=F("missed_syncs") + 1, state=state, state_detail=detail[:1000]
        )
        if state != node.state:
            _tell(node, f"node.{state}", {"detail": detail[:1000]})
        node.state, node.missed_syncs = state, node.missed_syncs + 1


def node_occupied(node: Node, processes: tuple[DeviceProcess, ...]) -> None:
    """A device in use by a process that is not ours is not given out, and shown."""
    foreign = {process.uuid for process in processes if process.member is None}
    devices = Device.objects.filter(node=node).exclude(state=DeviceState.MISSING)
    changed = devices.filter(uuid__in=foreign, state=DeviceState.HEALTHY).update(
        state=DeviceState.OCCUPIED
    ) + devices.filter(state=DeviceState.OCCUPIED).exclude(uuid__in=foreign).update(
        state=DeviceState.HEALTHY
    )
    if changed:
        _tell(node, "node.devices", {"occupied": sorted(foreign)})


def node_has_unknown(node: Node, members: tuple[Member, ...]) -> None:
    """Work under our name that the database does not know: shown, and left alone."""
    names = [f"{one.task_id} {one.generation} {one.rank}" for one in members[:100]]
    with transaction.atomic():
        _tell(node, "node.unknown_work", {"count": len(members), "members": names})


def _store_devices(node: Node, reported: tuple[ReportedDevice, ...]) -> None:
    known = {device.uuid: device for device in Device.objects.filter(node=node)}
    _make_way(known, {one.index: one.uuid for one in reported})
    for one in reported:
        facts: dict[str, Any] = {
            "index": one.index,
            "model": one.model,
            "memory_mb": one.memory_mb,
            "cdi": one.cdi,
            "is_simulated": one.simulated,
        }
        device = known.pop(one.uuid, None)
        if device is None:
            Device.objects.create(node=node, uuid=one.uuid, **facts)
        elif device.state == DeviceState.MISSING or any(
            getattr(device, name) != value for name, value in facts.items()
        ):
            is_back = device.state == DeviceState.MISSING
            state = DeviceState.HEALTHY if is_back else device.state
            Device.objects.filter(pk=device.pk).update(state=state, **facts)
    Device.objects.filter(pk__in=[device.pk for device in known.values()]).update(
        state=DeviceState.MISSING
    )


def _make_way(known: dict[str, Device], wanted: dict[int, str]) -> None:
    """Devices whose place another one takes keep their history under a number out of the way."""
    for device in known.values():
        if wanted.get(device.index, device.uuid) != device.uuid:
            device.index = OUT_OF_THE_WAY + device.pk
            Device.objects.filter(pk=device.pk).update(index=device.index)


def _capacity(node: Node, probed: Probed) -> dict[str, str]:
    """What is given out: what was reported, or less where an administrator says so."""
    reported = {
        "gpu": str(len(probed.devices)),
        "cpu": milli_text(probed.cpu_milli),
        "memory_mb": str(probed.memory_mb),
    }
    cap = {**reported, **node.capacity_cap}
    return {key: min(reported.get(key, cap[key]), cap[key], key=milli) for key in sorted(cap)}


def _tell(node: Node, kind: str, data: dict[str, Any]) -> None:
    event_record(
        kind, actor=None, object_type="node", object_id=node.pk, data=data, topics=_topics(node)
    )
    after_commit(tasks=["allocation.run_pass"])


def _topics(node: Node) -> list[str]:
    pool = [f"pool.{node.pool_id}"] if node.pool_id is not None else []
    return ["nodes", "overview", *pool]
