"""What a node used over time, as far as samples are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.nodes.models import Node
from apps.tasks.models import NodeUse


@dataclass(frozen=True, slots=True)
class NodeUseStep:
    """Five minutes from `at`: means, and the most of the disk; None: unknown.

    CPU in percent of all its CPUs, memory and disk in 2^20 bytes, network in bytes in a second.
    """

    at: datetime
    cpu_percent: int | None
    memory_mb: int
    disk_mb: int
    received: int | None
    sent: int | None

    @classmethod
    def of(cls, row: NodeUse) -> "NodeUseStep":
        known = row.counted_ms
        return cls(
            row.at,
            round(row.cpu / known) if known else None,
            round(row.memory / row.sampled_ms),
            row.disk_mb,
            round(row.received * 1000 / known) if known else None,
            round(row.sent * 1000 / known) if known else None,
        )


def node_use_steps(node: Node, *, since: datetime) -> Sequence[NodeUseStep]:
    """Oldest first, in one query; five minutes without a sample are missing."""
    rows = NodeUse.objects.filter(node=node, at__gte=since, sampled_ms__gt=0).order_by("at")
    return [NodeUseStep.of(row) for row in rows]
