"""The devices that the members of attempts hold.

The database refuses a second row for a whole device. So a member that gets devices of its victims
gets its rows once those are released.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import structlog
from django.db.models import Sum

from apps.nodes.models import Device
from apps.tasks.models import HeldDevice, Member

WHOLE = 1000

# The rows of devices by node and index.
DeviceIds = Mapping[tuple[Any, int], int]

log = structlog.get_logger(__name__)


def device_ids(node_ids: Collection[int]) -> DeviceIds:
    """All devices of these nodes."""
    rows = Device.objects.filter(node__in=node_ids).values_list("node_id", "index", "pk")
    return {(node, index): pk for node, index, pk in rows}


def devices_hold(
    members: Sequence[Member], devices: DeviceIds, *, blocked: Collection[object] = ()
) -> None:
    """Record the devices that the members hold.

    Args:
        blocked: ids of attempts that wait for victims. Only their free devices are recorded;
            `devices_claim` records the others.
    """
    waits = {one.attempt_id for one in members if one.attempt_id in blocked}
    named = [
        (one, devices[one.node_id, index], milli) for one in members for index, milli in one.devices
    ]
    held = _held(pk for one, pk, _ in named if one.attempt_id in waits)
    rows = []
    for one, pk, milli in named:
        if one.attempt_id in waits and held.get(pk, 0) + milli > WHOLE:
            continue
        held[pk] = held.get(pk, 0) + milli
        rows.append(HeldDevice(member=one, device_id=pk, milli=milli))
    HeldDevice.objects.bulk_create(rows)


def devices_claim(member: Member) -> bool:
    """Record the devices that others held when the member was placed.

    Returns:
        False while another member still holds one of them: then nothing is recorded.
    """
    mine = set(
        HeldDevice.objects.filter(member=member, released_at__isnull=True).values_list(
            "device__index", flat=True
        )
    )
    missing = [(index, milli) for index, milli in member.devices if index not in mine]
    if not missing:
        return True
    devices = device_ids({member.node_id or 0})
    known = {index: devices.get((member.node_id, index)) for index, _ in missing}
    held = _held(pk for pk in known.values() if pk is not None)
    rows = [
        HeldDevice(member=member, device_id=pk, milli=milli)
        for index, milli in missing
        if (pk := known[index]) is not None and held.get(pk, 0) + milli <= WHOLE
    ]
    if len(rows) < len(missing):
        log.warning("devices.not_free", attempt=str(member.attempt_id), rank=member.rank)
        return False
    HeldDevice.objects.bulk_create(rows)
    return True


def _held(devices: Iterable[int]) -> dict[int, int]:
    """Thousandths of each of these devices that are given out."""
    wanted = set(devices)
    if not wanted:
        return {}
    rows = HeldDevice.objects.filter(device__in=wanted, released_at__isnull=True)
    return dict(rows.values_list("device").annotate(milli=Sum("milli")).order_by())
