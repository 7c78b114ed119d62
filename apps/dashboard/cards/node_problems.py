"""Nodes that need attention, before the others; for administrators."""

from collections import defaultdict
from dataclasses import dataclass
from uuid import UUID

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.dashboard.cards.nodes import NodeRow, node_row, resumable_parts
from apps.dashboard.cards.words import NODE_STATES, Word, joined, plural
from apps.dashboard.live import Sharing, card, topics_of
from apps.nodes.models import Device, DeviceState, Node, NodeState
from apps.nodes.selectors import nodes_visible_to
from apps.tasks.lifecycle.states import AttemptTier
from apps.tasks.models import HeldDevice

# Nodes without a problem are shown until there are so many.
MOST_NODES = 6
MOST_PROBLEMS = 20
_HEALTHY = NODE_STATES[NodeState.HEALTHY]


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
    """At most `MOST_PROBLEMS` with a problem, and others up to `MOST_NODES`; in four queries."""
    if not is_admin(user):
        return None
    nodes = list(nodes_visible_to(user).select_related("pool"))
    devices: defaultdict[int, list[Device]] = defaultdict(list)
    for device in Device.objects.filter(node__in=nodes):
        devices[device.node_id].append(device)
    ranked = sorted(
        ((*_problem(node, devices[node.pk]), node) for node in nodes),
        key=lambda one: (-one[0], one[3].name),
    )
    problems = sum(1 for rank, *_ in ranked if rank)
    shown = ranked[: min(max(problems, MOST_NODES), MOST_PROBLEMS)]
    held, over_quota = _held([node for *_, node in shown])
    return NodeProblems(
        rows=tuple(
            NodeProblem(node_row(node, devices[node.pk], held, over_quota, tasks=0), word, detail)
            for _, word, detail, node in shown
        ),
        problems=problems,
        nodes=len(nodes),
        topics=("nodes", *topics_of("node", [node.pk for node in nodes]), "overview"),
    )


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


def _problem(node: Node, devices: list[Device]) -> tuple[int, Word, str]:
    """How bad it is, 0 for nothing; as a word, and in detail."""
    states = [device.state for device in devices]
    missing, occupied = states.count(DeviceState.MISSING), states.count(DeviceState.OCCUPIED)
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
    if node.state != NodeState.HEALTHY:
        return 1, NODE_STATES[node.state], node.state_detail
    return 0, _HEALTHY, ""
