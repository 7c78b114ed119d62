"""Nodes that need attention, before the others; for administrators."""

from dataclasses import dataclass

from apps.accounts.models import User
from apps.dashboard.cards.nodes import NodeList, NodeRow, load_node_list, resumable_parts
from apps.dashboard.cards.words import NODE_STATES, Word, joined, plural
from apps.dashboard.live import Sharing, card
from apps.nodes.models import NodeState

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
    """At most `MOST_PROBLEMS` with a problem, and others up to `MOST_NODES`; in seven queries."""
    found = load_node_list(user, "")
    if not isinstance(found, NodeList):
        return None
    ranked = sorted(
        ((*_problem(row), row) for row in found.rows),
        key=lambda one: (-one[0], one[3].node.name),
    )
    problems = sum(1 for rank, *_ in ranked if rank)
    most = min(max(problems, MOST_NODES), MOST_PROBLEMS)
    return NodeProblems(
        rows=tuple(NodeProblem(row, word, detail) for _, word, detail, row in ranked[:most]),
        problems=problems,
        nodes=len(found.rows),
        topics=found.topics,
    )


def _problem(row: NodeRow) -> tuple[int, Word, str]:
    """How bad it is, 0 for nothing; as a word, and in detail."""
    node = row.node
    missing, occupied = row.cells.count("d"), row.cells.count("x")
    if node.state in {NodeState.REFUSED, NodeState.SUSPECT}:
        return 5, NODE_STATES[node.state], node.state_detail
    if missing:
        return 4, Word("bad", "x", f"{plural(missing, 'GPU')} missing"), node.state_detail
    if node.preflight_problem:
        return 3, Word("warn", "triangle-alert", "Starts nothing"), node.preflight_problem
    if occupied:
        words = f"{plural(occupied, 'GPU')} in use by others"
        return 3, Word("warn", "triangle-alert", words), node.state_detail
    if parts := resumable_parts(node) or (("the removal",) if node.removal_asked_at else ()):
        reason = node.pause_reason or f"because of {joined(parts)}"
        return 2, Word("wait", "pause", "Takes no new tasks"), reason
    if node.state != NodeState.HEALTHY:
        return 1, NODE_STATES[node.state], node.state_detail
    return 0, _HEALTHY, ""
