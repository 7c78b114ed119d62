"""What nodes report about themselves, written to their rows."""

from collections.abc import Iterable
from datetime import timedelta
from itertools import count
from typing import Any

import msgspec
import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from apps.core.doorbell import after_commit
from apps.core.units import milli, milli_text
from apps.events.models import Event
from apps.events.services import event_record
from apps.execution.protocol.answers import Clocks, DeviceProcess, Probed
from apps.execution.protocol.answers import Device as ReportedDevice
from apps.execution.protocol.bounds import plain
from apps.execution.protocol.requests import Member, Probe, SimulatedDevice
from apps.nodes.models import OUT_OF_THE_WAY, Device, DeviceState, Node, NodeState

log = structlog.get_logger(__name__)

# A node is silent for others to know after so many syncs missed in a row, and RPM_NODE_SILENT_S.
MISSED_SYNCS = 3
# Of devices, members or processes that one event or page lists: a node may name thousands.
MOST_TOLD = 100
# Events of one node about what it says of itself.
TOLD_AT_MOST, TOLD_WITHIN = 30, timedelta(minutes=10)


def probe_request(node: Node, *, installation: str) -> Probe:
    """Ask for the inventory, telling the node of the devices that are made up."""
    devices = Device.objects.filter(node_id=node.pk, is_simulated=True).order_by("index")
    return Probe(
        installation=installation,
        simulated_devices=tuple(
            SimulatedDevice(uuid=d.uuid, model=d.model, memory_mb=d.memory_mb, cdi=d.cdi)
            for d in devices
        ),
    )


def node_probed(node: Node, probed: Probed, clocks: Clocks) -> None:
    """Store the inventory; devices that are gone stay, marked as missing.

    A GPU that another node gives out is not taken: what a node says must not end another's work.
    """
    with transaction.atomic():
        probed, claimed = _without_claimed(node, probed)
        report = msgspec.to_builtins(probed) | {"claimed_devices": claimed}
        report.pop("devices", None)
        if claimed and claimed != node.report.get("claimed_devices"):
            _tell_again(node, "node.devices", {"claimed": claimed})
        _store_devices(node, probed.devices, words=probed.nvidia)
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


def devices_elsewhere(node: Node, reported: Iterable[ReportedDevice]) -> QuerySet[Device]:
    """The rows of these GPUs that other nodes give out."""
    real = [one.uuid for one in reported if not one.simulated]
    live = Device.objects.filter(is_simulated=False, index__lt=OUT_OF_THE_WAY)
    theirs = live.filter(uuid__in=real, node__removed_at__isnull=True)
    return theirs.exclude(Q(node_id=node.pk) | Q(state=DeviceState.MISSING))


def _without_claimed(node: Node, probed: Probed) -> tuple[Probed, list[str]]:
    """What is left without the GPUs that another node had first, and which those are.

    The older row wins, missing or not: a GPU that falls off the bus for a moment is not lost to
    whoever names it meanwhile, and one that was simulated does not become another's.
    """
    own = dict(Device.objects.filter(node_id=node.pk).values_list("uuid", "pk"))
    claimed = {
        one.uuid
        for one in devices_elsewhere(node, probed.devices)
        if own.get(one.uuid, one.pk + 1) > one.pk
    }
    kept = tuple(one for one in probed.devices if one.uuid not in claimed)
    return msgspec.structs.replace(probed, devices=kept), sorted(claimed)[:MOST_TOLD]


def node_answered(node: Node, problem: str = "") -> None:
    """The node is there: healthy, whatever it was before.

    Args:
        problem: what of its answer could not be used, shown with it.
    """
    before, was_off, detail = node.state, node.off_at, plain(problem)
    with transaction.atomic():
        Node.objects.filter(pk=node.pk).update(
            last_seen_at=timezone.now(),
            missed_syncs=0,
            state=NodeState.HEALTHY,
            state_detail=detail,
            off_at=None,
        )
        node.state, node.missed_syncs, node.off_at = NodeState.HEALTHY, 0, None
        node.state_detail = detail
        if before != NodeState.HEALTHY:
            _tell(node, "node.healthy", {"before": before, "was_off": was_off is not None})
            after_commit(tasks=["execution.look"])


def node_clearing(node: Node, left: int) -> None:
    """The node is back, and still runs what was given up: it takes nothing new until that ended."""
    words = f"It is back; {left} members of earlier attempts are being ended there."
    Node.objects.filter(pk=node.pk).update(
        last_seen_at=timezone.now(), missed_syncs=0, state_detail=words
    )
    node.missed_syncs, node.state_detail = 0, words


def node_missed(node: Node, detail: str, *, silent_s: float, is_refused: bool = False) -> None:
    """No answer. One miss never condemns; three in a row and a while make the node suspect.

    Args:
        silent_s: for how long nobody has heard of it, by a clock that does not jump.
    """
    state = node.state
    missed = node.missed_syncs + 1
    if is_refused:
        state = NodeState.REFUSED
    elif (
        state == NodeState.HEALTHY and missed >= MISSED_SYNCS and silent_s >= settings.NODE_SILENT_S
    ):
        state = NodeState.SUSPECT
    with transaction.atomic():
        Node.objects.filter(pk=node.pk).update(
            missed_syncs=F("missed_syncs") + 1, state=state, state_detail=plain(detail)
        )
        _changed_to(node, state, detail)
        node.missed_syncs = missed


def node_silent(node: Node, detail: str) -> None:
    """The node was silent for so long that its work is given up: it takes nothing new."""
    with transaction.atomic():
        changed = Node.objects.filter(pk=node.pk, state=NodeState.HEALTHY).update(
            state=NodeState.SUSPECT, state_detail=plain(detail)
        )
        if changed:
            _changed_to(node, NodeState.SUSPECT, detail)


def _changed_to(node: Node, state: str, detail: str) -> None:
    if state != node.state:
        _tell(node, f"node.{state}", {"detail": plain(detail)})
        # Its work is suspect from now on.
        after_commit(tasks=["execution.look"])
    node.state = state


def node_occupied(node: Node, processes: tuple[DeviceProcess, ...]) -> None:
    """A device in use by a process that is not ours is not given out, and shown."""
    devices = Device.objects.filter(node=node).exclude(state=DeviceState.MISSING)
    known = set(devices.values_list("uuid", flat=True))
    theirs = [one for one in processes if one.member is None and one.uuid in known]
    foreign = {process.uuid for process in theirs}
    changed = devices.filter(uuid__in=foreign, state=DeviceState.HEALTHY).update(
        state=DeviceState.OCCUPIED
    ) + devices.filter(state=DeviceState.OCCUPIED).exclude(uuid__in=foreign).update(
        state=DeviceState.HEALTHY
    )
    _store_foreign(node, theirs[:MOST_TOLD])
    if changed:
        _tell_again(node, "node.devices", {"occupied": sorted(foreign)[:MOST_TOLD]})


def _store_foreign(node: Node, processes: Iterable[DeviceProcess]) -> None:
    """For the node's page: which processes they are."""
    found = [{"uuid": p.uuid, "pid": p.pid, "memory_mb": p.memory_mb} for p in processes]
    if found != node.report.get("foreign_processes", []):
        node.report = {**node.report, "foreign_processes": found}
        Node.objects.filter(pk=node.pk).update(report=node.report)


def node_has_unknown(node: Node, members: tuple[Member, ...]) -> None:
    """Work under our name that the database does not know: shown, and left alone for a while.

    Told where there was none before: a node can name others each time that it answers.
    """
    with transaction.atomic():
        rows = Node.objects.filter(pk=node.pk)
        is_new = bool(members) and rows.filter(unknown_work=0).exists()
        rows.update(unknown_work=len(members))
        if is_new:
            names = [f"{one.task_id} {one.generation} {one.rank}" for one in members[:MOST_TOLD]]
            _tell_again(node, "node.unknown_work", {"count": len(members), "members": names})


def node_serial_refused(node: Node, serial: int) -> None:
    """The node reported a serial that nobody signed: told once, shown until it is dismissed."""
    with transaction.atomic():
        is_new = Node.objects.filter(pk=node.pk, serial_refused_at__isnull=True).update(
            serial_refused_at=timezone.now()
        )
        if is_new:
            log.warning("node.serial_refused", name=node.name, serial=serial)
            _tell(node, "node.serial_refused", {"name": node.name, "serial": serial})


def _store_devices(node: Node, reported: tuple[ReportedDevice, ...], *, words: str) -> None:
    known = {device.uuid: device for device in Device.objects.filter(node=node)}
    numbers = _numbers(known, reported)
    _make_way(known, {number: uuid for uuid, number in numbers.items()})
    appeared = []
    for one in reported:
        facts: dict[str, Any] = {
            "index": numbers[one.uuid],
            "model": one.model,
            "memory_mb": one.memory_mb,
            "cdi": one.cdi,
            "is_simulated": one.simulated,
            "parent_uuid": one.parent_uuid,
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
            appeared += [one.uuid] if is_back else []
    gone = [one for one in known.values() if one.state != DeviceState.MISSING]
    Device.objects.filter(pk__in=[one.pk for one in gone]).update(state=DeviceState.MISSING)
    if gone or appeared:
        lost = sorted(one.uuid for one in gone)[:MOST_TOLD]
        data = {"missing": lost, "back": appeared[:MOST_TOLD], "detail": words[:1000]}
        _tell_again(node, "node.devices", data)


def _numbers(known: dict[str, Device], reported: tuple[ReportedDevice, ...]) -> dict[str, int]:
    """Under which index each reported device stands in the books.

    A device keeps the one it has, whatever the driver says now: after a GPU was lost the driver
    counts the others anew, while the books say by index what running work holds.
    """
    kept = {
        one.uuid: known[one.uuid].index
        for one in reported
        if one.uuid in known and known[one.uuid].index < OUT_OF_THE_WAY
    }
    taken = set(kept.values())
    for one in reported:
        if one.uuid not in kept:
            number = next(free for free in count(one.index) if free not in taken)
            kept[one.uuid] = number
            taken.add(number)
    return kept


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


def _tell_again(node: Node, kind: str, data: dict[str, Any]) -> None:
    """What a node can bring about as often as it answers: told so often, and then no more."""
    told = Event.objects.filter(object_type="node", object_id=str(node.pk)).order_by("-id")
    nth = told.values_list("at", flat=True)[TOLD_AT_MOST - 1 : TOLD_AT_MOST].first()
    if nth is None or nth < timezone.now() - TOLD_WITHIN:
        _tell(node, kind, data)
    else:
        after_commit(tasks=["allocation.run_pass"], topics=_topics(node))


def _topics(node: Node) -> list[str]:
    pool = [f"pool.{node.pool_id}"] if node.pool_id is not None else []
    return ["nodes", "overview", *pool]
