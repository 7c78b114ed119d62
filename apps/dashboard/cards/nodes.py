"""Nodes with one cell per GPU; for administrators."""

from collections import defaultdict
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core.units import MILLI
from apps.dashboard.cards.restored import Restored, restored_banner
from apps.dashboard.cards.words import plural
from apps.dashboard.live import Sharing, card, topics_of
from apps.dashboard.selectors.use import amounts_of, held_now, over_quota_tasks
from apps.nodes.models import Device, DeviceState, Node
from apps.tasks.models import HeldDevice, Holding

# State of a cell: `u` reserved, `o` over quota, `h` shared, empty free, `x` not ours, `d` missing.
_BAD = {DeviceState.MISSING: "d", DeviceState.OCCUPIED: "x"}
_WORDS = {
    "u": "reserved",
    "o": "over quota",
    "h": "shared",
    "": "free",
    "x": "not ours",
    "d": "missing",
}


@dataclass(frozen=True, slots=True)
class NodeRow:
    node: Node
    cells: tuple[str, ...]
    label: str
    free: int
    tasks: int


@dataclass(frozen=True, slots=True)
class NodeList:
    rows: tuple[NodeRow, ...]
    restored: Restored | None
    topics: tuple[str, ...]
    announce: str = ""


@card("node_rows", Sharing.ROLE)
def load_node_list(user: User, _key: str) -> NodeList | None:
    """Every node that was not removed, in seven queries."""
    if not is_admin(user):
        return None
    nodes = list(Node.objects.filter(removed_at__isnull=True).select_related("pool"))
    devices: defaultdict[int, list[Device]] = defaultdict(list)
    for device in Device.objects.filter(node__in=nodes):
        devices[device.node_id].append(device)
    held = held_now()
    over = over_quota_tasks(held, amounts_of())
    here = Holding.objects.filter(released_at__isnull=True, node__in=nodes)
    tasks = dict(here.order_by().values_list("node").annotate(Count("attempt", distinct=True)))
    given: defaultdict[int, list[tuple[int, UUID]]] = defaultdict(list)
    rows = HeldDevice.objects.filter(released_at__isnull=True)
    for device_id, milli, task in rows.values_list(
        "device_id", "milli", "holding__attempt__task_id"
    ):
        given[device_id].append((milli, task))
    return NodeList(
        rows=tuple(
            node_row(node, devices[node.pk], given, over, tasks=tasks.get(node.pk, 0))
            for node in nodes
        ),
        restored=restored_banner(),
        topics=("nodes", *topics_of("node", [node.pk for node in nodes]), "overview"),
    )


def node_row(
    node: Node,
    devices: list[Device],
    given: defaultdict[int, list[tuple[int, UUID]]],
    over: frozenset[UUID],
    *,
    tasks: int,
) -> NodeRow:
    """A node with its strip.

    Args:
        given: per device what of it is held, in thousandths, and by which task.
        over: the running tasks that count as over quota.
        tasks: how many run there, with devices or without.
    """
    cells = tuple(_cell(device, given[device.pk], over) for device in devices)
    counts = [f"{cells.count(cell)} {word}" for cell, word in _WORDS.items() if cell in cells]
    free = sum(
        MILLI - sum(milli for milli, _ in given[device.pk])
        for device, cell in zip(devices, cells, strict=True)
        if cell in {"", "h"}
    )
    return NodeRow(
        node=node,
        cells=cells,
        label=f"{plural(len(cells), 'GPU')}: {', '.join(counts)}" if cells else "No GPUs",
        free=free,
        tasks=tasks,
    )


def cell_word(cell: str) -> str:
    """What a cell of the strip says."""
    return _WORDS[cell]


def _cell(device: Device, given: list[tuple[int, UUID]], over: frozenset[UUID]) -> str:
    if device.state in _BAD:
        return _BAD[DeviceState(device.state)]
    if not given:
        return ""
    if sum(milli for milli, _ in given) < MILLI:
        return "h"
    return "o" if all(task in over for _, task in given) else "u"
