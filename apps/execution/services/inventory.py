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

from apps.core.notifications import NOTIFY_ALLOCATION, NOTIFY_EXECUTION, after_commit
from apps.core.units import milli, milli_text
from apps.events.models import Event
from apps.events.services import event_record
from apps.execution.protocol.answers import Clocks, DeviceProcess, DeviceReport, NodeInventory
from apps.execution.protocol.bounds import plain
from apps.execution.protocol.requests import MemberKey, ProbeRequest, SimulatedDevice
from apps.nodes.models import RETIRED_INDEX, Device, DeviceState, Node, NodeState
from apps.nodes.selectors import devices_not_replaced
from apps.policies.services import live_version_raise

log = structlog.get_logger(__name__)

# A node becomes silent after so many syncs missed in a row, and RPM_NODE_SILENT_S.
MISSED_SYNCS = 3
# Of devices, members or processes that one event or page lists: a node may name thousands.
MOST_LISTED = 100
# Events of one node about its own reports.
EVENTS_AT_MOST, EVENTS_WITHIN = 30, timedelta(minutes=10)


def probe_request(node: Node, *, installation: str) -> ProbeRequest:
    """Ask for the inventory; the request names the simulated devices."""
    devices = Device.objects.filter(node_id=node.pk, is_simulated=True).order_by("index")
    return ProbeRequest(
        installation=installation,
        simulated_devices=tuple(
            SimulatedDevice(uuid=d.uuid, model=d.model, memory_mb=d.memory_mb, cdi=d.cdi)
            for d in devices
        ),
    )


def node_store_inventory(node: Node, inventory: NodeInventory, clocks: Clocks) -> None:
    """Store the inventory; devices that are gone stay, marked as missing.

    A GPU that another node gives out is not taken: what a node says must not end another's work.
    """
    with transaction.atomic():
        inventory, claimed = _without_claimed(node, inventory)
        report = msgspec.to_builtins(inventory) | {"claimed_devices": claimed}
        report.pop("devices", None)
        if claimed and claimed != node.report.get("claimed_devices"):
            _record_event_limited(node, "node.devices", {"claimed": claimed})
        _store_devices(node, inventory.devices, words=inventory.nvidia)
        capacity = _capacity(node, inventory)
        changed = node.capacity != capacity or node.state != NodeState.HEALTHY
        # Of the row: what this process holds may come from a transaction that was rolled back.
        stored = Node.objects.filter(pk=node.pk).values_list("capacity", flat=True).first()
        Node.objects.filter(pk=node.pk).update(
            report=report,
            capacity=capacity,
            gpu_model=inventory.devices[0].model if inventory.devices else "",
            # Another boot than the known one means lost work: the next report is judged by it.
            boot_id=node.boot_id or clocks.boot_id,
        )
        if stored != capacity:
            live_version_raise()
        node.boot_id = node.boot_id or clocks.boot_id
        node.capacity, node.report = capacity, report
        if changed:
            after_commit(notify=[NOTIFY_ALLOCATION], topics=_topics(node))


def devices_elsewhere(node: Node, reported: Iterable[DeviceReport]) -> QuerySet[Device]:
    """The rows of these GPUs that other nodes give out."""
    real = [one.uuid for one in reported if not one.simulated]
    live = devices_not_replaced().filter(is_simulated=False)
    claimed = live.filter(uuid__in=real, node__removed_at__isnull=True)
    return claimed.exclude(Q(node_id=node.pk) | Q(state=DeviceState.MISSING))


def _without_claimed(node: Node, inventory: NodeInventory) -> tuple[NodeInventory, list[str]]:
    """What is left without the GPUs that another node had first, and which those are.

    The older row wins, missing or not: a GPU that falls off the bus for a moment is not lost to
    a node that names it meanwhile, and one that was simulated does not become another's.
    """
    own = dict(Device.objects.filter(node_id=node.pk).values_list("uuid", "pk"))
    claimed = {
        one.uuid
        for one in devices_elsewhere(node, inventory.devices)
        if own.get(one.uuid, one.pk + 1) > one.pk
    }
    kept = tuple(one for one in inventory.devices if one.uuid not in claimed)
    return msgspec.structs.replace(inventory, devices=kept), sorted(claimed)[:MOST_LISTED]


def node_mark_healthy(node: Node, problem: str = "") -> None:
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
            facts = {"name": node.name, "before": before, "was_off": was_off is not None}
            _record_event(node, "node.healthy", facts)
            after_commit(notify=[NOTIFY_EXECUTION])


def node_mark_back(node: Node, words: str) -> None:
    """The node is back, and takes nothing new yet, for the reason in these words."""
    Node.objects.filter(pk=node.pk).update(
        last_seen_at=timezone.now(), missed_syncs=0, state_detail=words
    )
    node.missed_syncs, node.state_detail = 0, words


def node_record_miss(node: Node, detail: str, *, silent_s: float, is_refused: bool = False) -> None:
    """No answer. One miss never condemns; three in a row and a while make the node suspect.

    Args:
        silent_s: for how long it has not answered, by a clock that does not jump.
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


def node_mark_silent(node: Node, detail: str) -> None:
    """The node was silent for so long that its work is given up: it takes nothing new."""
    with transaction.atomic():
        changed = Node.objects.filter(pk=node.pk, state=NodeState.HEALTHY).update(
            state=NodeState.SUSPECT, state_detail=plain(detail)
        )
        if changed:
            _changed_to(node, NodeState.SUSPECT, detail)


def _changed_to(node: Node, state: str, detail: str) -> None:
    if state != node.state:
        _record_event(node, f"node.{state}", {"detail": plain(detail)})
        # Its work is suspect from now on.
        after_commit(notify=[NOTIFY_EXECUTION])
    node.state = state


def node_store_occupied(node: Node, processes: tuple[DeviceProcess, ...]) -> None:
    """A device in use by a process that is not ours is not given out, and shown."""
    devices = Device.objects.filter(node=node).exclude(state=DeviceState.MISSING)
    known = set(devices.values_list("uuid", flat=True))
    foreign = [one for one in processes if one.member is None and one.uuid in known]
    occupied = {process.uuid for process in foreign}
    changed = devices.filter(uuid__in=occupied, state=DeviceState.HEALTHY).update(
        state=DeviceState.OCCUPIED
    ) + devices.filter(state=DeviceState.OCCUPIED).exclude(uuid__in=occupied).update(
        state=DeviceState.HEALTHY
    )
    _store_foreign(node, foreign[:MOST_LISTED])
    if changed:
        _record_event_limited(node, "node.devices", {"occupied": sorted(occupied)[:MOST_LISTED]})


def _store_foreign(node: Node, processes: Iterable[DeviceProcess]) -> None:
    """For the node's page: which processes they are."""
    found = [{"uuid": p.uuid, "pid": p.pid, "memory_mb": p.memory_mb} for p in processes]
    if found != node.report.get("foreign_processes", []):
        node.report = {**node.report, "foreign_processes": found}
        Node.objects.filter(pk=node.pk).update(report=node.report)


def node_store_unknown(node: Node, members: tuple[MemberKey, ...]) -> None:
    """Members under our name that the database does not know: shown, and left alone for a while.

    Recorded once where there was none before: a node can name others in every answer.
    """
    with transaction.atomic():
        rows = Node.objects.filter(pk=node.pk)
        is_new = bool(members) and rows.filter(unknown_work=0).exists()
        rows.update(unknown_work=len(members))
        if is_new:
            names = [f"{one.task_id} {one.generation} {one.rank}" for one in members[:MOST_LISTED]]
            _record_event_limited(
                node, "node.unknown_work", {"count": len(members), "members": names}
            )


def node_record_refused_serial(node: Node, serial: int) -> None:
    """Record once that the node reported an unsigned serial; shown until it is dismissed."""
    with transaction.atomic():
        is_new = Node.objects.filter(pk=node.pk, serial_refused_at__isnull=True).update(
            serial_refused_at=timezone.now()
        )
        if is_new:
            log.warning("node.serial_refused", name=node.name, serial=serial)
            _record_event(node, "node.serial_refused", {"name": node.name, "serial": serial})


def _store_devices(node: Node, reported: tuple[DeviceReport, ...], *, words: str) -> None:
    known = {device.uuid: device for device in Device.objects.filter(node=node)}
    numbers = _numbers(known, reported)
    _retire_indices(known, {number: uuid for uuid, number in numbers.items()})
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
        lost = sorted(one.uuid for one in gone)[:MOST_LISTED]
        data = {"missing": lost, "back": appeared[:MOST_LISTED], "detail": words[:1000]}
        _record_event_limited(node, "node.devices", data)


def _numbers(known: dict[str, Device], reported: tuple[DeviceReport, ...]) -> dict[str, int]:
    """The index of each reported device in the ledger.

    A device keeps the one it has, whatever the driver says now: after a GPU was lost the driver
    renumbers the others, while the ledger says by index what running members hold.
    """
    kept = {
        one.uuid: known[one.uuid].index
        for one in reported
        if one.uuid in known and known[one.uuid].index < RETIRED_INDEX
    }
    taken = set(kept.values())
    for one in reported:
        if one.uuid not in kept:
            number = next(free for free in count(one.index) if free not in taken)
            kept[one.uuid] = number
            taken.add(number)
    return kept


def _retire_indices(known: dict[str, Device], wanted: dict[int, str]) -> None:
    """Devices whose place another one takes keep their history under a number out of the way."""
    for device in known.values():
        if wanted.get(device.index, device.uuid) != device.uuid:
            device.index = RETIRED_INDEX + device.pk
            Device.objects.filter(pk=device.pk).update(index=device.index)


def _capacity(node: Node, inventory: NodeInventory) -> dict[str, str]:
    """What is given out: what was reported, or less where an administrator says so."""
    reported = {
        "gpu": str(len(inventory.devices)),
        "cpu": milli_text(inventory.cpu_milli),
        "memory_mb": str(inventory.memory_mb),
    }
    cap = {**reported, **node.capacity_cap}
    return {key: min(reported.get(key, cap[key]), cap[key], key=milli) for key in sorted(cap)}


def _record_event(node: Node, kind: str, data: dict[str, Any]) -> None:
    event_record(
        kind, actor=None, object_type="node", object_id=node.pk, data=data, topics=_topics(node)
    )
    after_commit(notify=[NOTIFY_ALLOCATION])


def _record_event_limited(node: Node, kind: str, data: dict[str, Any]) -> None:
    """Record what a node can cause with every answer, at most so many times in a while."""
    recent = Event.objects.filter(object_type="node", object_id=str(node.pk)).order_by("-id")
    nth = recent.values_list("at", flat=True)[EVENTS_AT_MOST - 1 : EVENTS_AT_MOST].first()
    if nth is None or nth < timezone.now() - EVENTS_WITHIN:
        _record_event(node, kind, data)
    else:
        after_commit(notify=[NOTIFY_ALLOCATION], topics=_topics(node))


def _topics(node: Node) -> list[str]:
    pool = [f"pool.{node.pool_id}"] if node.pool_id is not None else []
    return ["nodes", "overview", *pool]
