"""Nodes that need attention, before the others; for administrators."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.dashboard.cards.nodes import NodeRow, node_row, resumable_parts
from apps.dashboard.cards.words import NODE_STATES, Word, joined, plural
from apps.dashboard.live import Sharing, card, topics_of
from apps.nodes.models import Device, DeviceState, Node, NodeState
from apps.nodes.selectors import devices_not_replaced, nodes_visible_to
from apps.tasks.lifecycle.states import AttemptTier
from apps.tasks.models import HeldDevice

# Nodes without a problem are shown until there are so many.
MOST_NODES = 6
MOST_PROBLEMS = 20
_HEALTHY = NODE_STATES[NodeState.HEALTHY]
_HAS_PROBLEM = (
    ~Q(state=NodeState.HEALTHY)
    | Q(paused_at__isnull=False)
    | Q(is_draining=True)
    | Q(removal_asked_at__isnull=False)
    | (Q(preflight_failures__gt=0) & ~Q(preflight_detail=""))
    | Exists(devices_not_replaced().filter(node=OuterRef("pk")).exclude(state=DeviceState.HEALTHY))
)


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """A node, and what is wrong or else its state."""

    row: NodeRow
    word: Word
    detail: str


@dataclass(frozen=True, slots=True)
class NodeProblems:
    """The worst first; `problems` of all `nodes` have one."""

    rows: tuple[NodeProblem, ...]
    problems: int
    nodes: int
    topics: tuple[str, ...]
    announce: str = ""


@card("node_problems", Sharing.ROLE)
def load_node_problems(user: User, _key: str) -> NodeProblems | None:
    """At most `MOST_PROBLEMS` with a problem, and others up to `MOST_NODES`; in six queries."""
    if not is_admin(user):
        return None
    nodes = nodes_visible_to(user)
    ids = list(nodes.order_by().values_list("pk", flat=True))
    counts = _bad_devices(nodes)
    with_problem = [(*_problem(node, counts[node.pk]), node) for node in nodes.filter(_HAS_PROBLEM)]
    ranked = sorted(with_problem, key=lambda one: (-one[0], one[3].name))[:MOST_PROBLEMS]
    others = nodes.exclude(_HAS_PROBLEM)[: max(MOST_NODES - len(ranked), 0)]
    shown = [*ranked, *((0, _HEALTHY, "", node) for node in others)]
    devices: defaultdict[int, list[Device]] = defaultdict(list)
    for device in devices_not_replaced().filter(node__in=[node.pk for *_, node in shown]):
        devices[device.node_id].append(device)
    held, over_quota = _held([node for *_, node in shown])
    return NodeProblems(
        rows=tuple(
            NodeProblem(node_row(node, devices[node.pk], held, over_quota, tasks=0), word, detail)
            for _, word, detail, node in shown
        ),
        problems=len(with_problem),
        nodes=len(ids),
        topics=("nodes", *topics_of("node", ids), "overview"),
    )


def _bad_devices(nodes: QuerySet[Node]) -> defaultdict[int, Counter[str]]:
    """Per node the devices that are not there for tasks, by their state."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    bad = devices_not_replaced().filter(node__in=nodes).exclude(state=DeviceState.HEALTHY)
    for node, state, count in bad.order_by().values_list("node_id", "state").annotate(Count("pk")):
        counts[node][state] = count
    return counts


def _held(nodes: list[Node]) -> tuple[defaultdict[int, list[tuple[int, UUID]]], frozenset[UUID]]:
    """What tasks hold of the devices of these nodes, and which of the tasks are over quota."""
    held: defaultdict[int, list[tuple[int, UUID]]] = defaultdict(list)
    over_quota = set()
    rows = HeldDevice.objects.filter(released_at__isnull=True, device__node__in=nodes)
    columns = ("device_id", "milli", "member__attempt__task_id", "member__attempt__tier")
    for device, milli, task, tier in rows.values_list(*columns):
        held[device].append((milli, task))
        if tier == AttemptTier.OVER_QUOTA:
            over_quota.add(task)
    return held, frozenset(over_quota)


def _problem(node: Node, bad_devices: Counter[str]) -> tuple[int, Word, str]:
    """How bad what `_HAS_PROBLEM` found is; as a word, and in detail."""
    missing, occupied = bad_devices[DeviceState.MISSING], bad_devices[DeviceState.OCCUPIED]
    if node.state in {NodeState.REFUSED, NodeState.SUSPECT}:
        return 5, NODE_STATES[node.state], node.state_detail
    if missing:
        return 4, Word("bad", "x", f"{plural(missing, 'GPU')} missing"), node.state_detail
    if node.preflight_problem:
        return 3, Word("warn", "triangle-alert", "Starts nothing"), node.preflight_problem
    if occupied:
        words = f"{plural(occupied, 'GPU')} in use by others"
        return 3, Word("warn", "triangle-alert", words), node.state_detail
    if parts := resumable_parts(node):
        reason = node.pause_reason or f"because of {joined(parts)}"
        return 2, Word("wait", "pause", "Takes no new tasks"), reason
    return 1, NODE_STATES[node.state], node.state_detail
