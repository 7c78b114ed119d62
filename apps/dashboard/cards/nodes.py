"""Nodes with one cell per GPU; for administrators."""

from collections import defaultdict
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core.units import MILLI
from apps.dashboard.cards.restore_banner import RestoreBanner, restore_banner
from apps.dashboard.cards.words import plural
from apps.dashboard.live import Sharing, card, topics_of
from apps.nodes.models import Device, DeviceState, Node
from apps.nodes.selectors import devices_not_replaced
from apps.tasks.models import HeldDevice, Member
from apps.usage.selectors.current_usage import amounts_of, live_attempts, over_quota_tasks

# State of a cell: `u` reserved, `o` over quota, `h` shared, empty free, `x` occupied, `d` missing.
_BAD = {DeviceState.MISSING: "d", DeviceState.OCCUPIED: "x"}
_WORDS = {
    "u": "reserved",
    "o": "over quota",
    "h": "shared",
    "": "free",
    "x": "occupied",
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
    restore_banner: RestoreBanner | None
    topics: tuple[str, ...]
    announce: str = ""


@card("node_rows", Sharing.ROLE)
def load_node_list(user: User, _key: str) -> NodeList | None:
    """Every node that was not removed, in seven queries."""
    if not is_admin(user):
        return None
    nodes = list(Node.objects.filter(removed_at__isnull=True).select_related("pool"))
    devices: defaultdict[int, list[Device]] = defaultdict(list)
    for device in devices_not_replaced().filter(node__in=nodes):
        devices[device.node_id].append(device)
    attempts = live_attempts()
    over_quota = over_quota_tasks(attempts, amounts_of())
    here = Member.objects.filter(released_at__isnull=True, node__in=nodes)
    tasks = dict(here.order_by().values_list("node").annotate(Count("attempt", distinct=True)))
    held: defaultdict[int, list[tuple[int, UUID]]] = defaultdict(list)
    rows = HeldDevice.objects.filter(released_at__isnull=True)
    for device_id, milli, task in rows.values_list(
        "device_id", "milli", "member__attempt__task_id"
    ):
        held[device_id].append((milli, task))
    return NodeList(
        rows=tuple(
            node_row(node, devices[node.pk], held, over_quota, tasks=tasks.get(node.pk, 0))
            for node in nodes
        ),
        restore_banner=restore_banner(),
        topics=("nodes", *topics_of("node", [node.pk for node in nodes]), "overview"),
    )


def node_row(
    node: Node,
    devices: list[Device],
    held: defaultdict[int, list[tuple[int, UUID]]],
    over_quota: frozenset[UUID],
    *,
    tasks: int,
) -> NodeRow:
    """A node with its strip.

    Args:
        held: per device the thousandths of it that each task holds.
        over_quota: the running tasks that count as over quota.
        tasks: the number of tasks there, with devices or without.
    """
    cells = tuple(_cell(device, held[device.pk], over_quota) for device in devices)
    counts = [f"{cells.count(cell)} {word}" for cell, word in _WORDS.items() if cell in cells]
    free = sum(
        MILLI - sum(milli for milli, _ in held[device.pk])
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


def resumable_parts(node: Node) -> tuple[str, ...]:
    """What keeps the node from new tasks until it is resumed. A removal drains by itself."""
    is_removed_soon = node.removal_asked_at is not None
    parts = {
        "the pause": node.is_paused,
        "the drain": node.is_draining and not is_removed_soon,
        "the removal": is_removed_soon,
    }
    return tuple(part for part, is_so in parts.items() if is_so)


def cell_word(cell: str) -> str:
    """What a cell of the strip says."""
    return _WORDS[cell]


def _cell(device: Device, held: list[tuple[int, UUID]], over_quota: frozenset[UUID]) -> str:
    if device.state in _BAD:
        return _BAD[DeviceState(device.state)]
    if not held:
        return ""
    if sum(milli for milli, _ in held) < MILLI:
        return "h"
    return "o" if all(task in over_quota for _, task in held) else "u"
