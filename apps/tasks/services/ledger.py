"""Which devices the members of attempts hold.

A whole device is held once, whatever the code above believes: the database refuses a second row.
So a member that takes over devices of others gets its rows when those have let go.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import structlog
from django.db.models import Sum

from apps.nodes.models import Device
from apps.tasks.models import HeldDevice, Holding

WHOLE = 1000

# The rows of devices by node and index.
DeviceIds = Mapping[tuple[Any, int], int]

log = structlog.get_logger(__name__)


def device_ids(node_ids: Collection[int]) -> DeviceIds:
    """All devices of these nodes."""
    rows = Device.objects.filter(node__in=node_ids).values_list("node_id", "index", "pk")
    return {(node, index): pk for node, index, pk in rows}


def devices_hold(
    holdings: Sequence[Holding], devices: DeviceIds, *, blocked: Collection[object] = ()
) -> None:
    """Write down what the members hold.

    Args:
        blocked: ids of attempts that wait for others to go. Of their devices only those are
            written that are free now; `devices_claim` writes the others.
    """
    waits = {one.attempt_id for one in holdings if one.attempt_id in blocked}
    named = [
        (one, devices[one.node_id, index], milli)
        for one in holdings
        for index, milli in one.devices
    ]
    held = _held(pk for one, pk, _ in named if one.attempt_id in waits)
    rows = []
    for one, pk, milli in named:
        if one.attempt_id in waits and held.get(pk, 0) + milli > WHOLE:
            continue
        held[pk] = held.get(pk, 0) + milli
        rows.append(HeldDevice(holding=one, device_id=pk, milli=milli))
    HeldDevice.objects.bulk_create(rows)


def devices_claim(holding: Holding) -> bool:
    """Write down the devices that others held when the member got its place.

    Returns:
        False while somebody still holds one of them: then nothing is written.
    """
    mine = set(
        HeldDevice.objects.filter(holding=holding, released_at__isnull=True).values_list(
            "device__index", flat=True
        )
    )
    missing = [(index, milli) for index, milli in holding.devices if index not in mine]
    if not missing:
        return True
    devices = device_ids({holding.node_id or 0})
    known = {index: devices.get((holding.node_id, index)) for index, _ in missing}
    held = _held(pk for pk in known.values() if pk is not None)
    rows = [
        HeldDevice(holding=holding, device_id=pk, milli=milli)
        for index, milli in missing
        if (pk := known[index]) is not None and held.get(pk, 0) + milli <= WHOLE
    ]
    if len(rows) < len(missing):
        log.warning("devices.not_free", attempt=str(holding.attempt_id), rank=holding.rank)
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
