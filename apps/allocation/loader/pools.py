"""Pools with their nodes and devices, which change rarely."""

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from django.db.models import (
    Aggregate,
    BooleanField,
    CharField,
    ExpressionWrapper,
    F,
    Q,
    TextField,
    Value,
)
from django.db.models.functions import Concat

from apps.allocation.engine.model.quantities import GPU, UNCOUNTED_UNLESS_LISTED, Quantities
from apps.allocation.engine.model.snapshot import NodeSnapshot, PoolSnapshot, PreemptionMode
from apps.allocation.loader.row_cache import RowCache
from apps.allocation.loader.texts import as_text, typed_amounts
from apps.core.units import MILLI
from apps.nodes.models import Device, DeviceState, NodeState
from apps.nodes.models import Node as NodeRow
from apps.policies.models import Pool as PoolRow

_IS_PAUSED = ExpressionWrapper(Q(paused_at__isnull=False), output_field=BooleanField())


class _Joined(Aggregate):
    """Texts of a group with commas between them, in any order."""

    function = "GROUP_CONCAT"
    output_field = TextField()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "STRING_AGG(%(expressions)s, ',')"
        return super().as_sql(compiler, connection, template=template, **context)


class _NodeRow(NamedTuple):
    """A node as it is read; `devices` is one text of all of them, None where it has none."""

    pk: int
    name: str
    capacity: str
    model: str
    state: str
    is_draining: bool
    is_paused: bool
    devices: str | None


class _PoolRow(NamedTuple):
    """A pool as it is read, with what belongs to it."""

    pk: int
    name: str
    capacity: str
    has_backfill: bool
    preemption: str
    is_paused: bool
    profiles: tuple[int, ...]
    nodes: tuple[NodeSnapshot, ...]


def load_pools(links: Iterable[tuple[int, int, int, int]]) -> tuple[PoolSnapshot, ...]:
    """All live pools. Three queries.

    Args:
        links: profile, pool, routing rank and execution rank of each.
    """
    order: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for profile, pool, _, rank in links:
        order[pool].append((rank, profile))
    nodes = _load_nodes()
    rows = PoolRow.objects.filter(removed_at__isnull=True).order_by("id")
    return tuple(
        _pools.of(
            (
                row[0],
                _PoolRow._make(
                    (
                        *row,
                        tuple(profile for _, profile in sorted(order[row[0]])),
                        tuple(nodes[row[0]]),
                    )
                ),
            )
            for row in rows.values_list(
                "id", "name", as_text("capacity"), "backfill", "preemption", _IS_PAUSED
            )
        )
    )


def _pool(row: _PoolRow) -> PoolSnapshot:
    capacity = typed_amounts(row.capacity)
    return PoolSnapshot(
        id=row.pk,
        name=row.name,
        capacity=served_capacity(capacity, [node.capacity for node in row.nodes]),
        profiles=row.profiles,
        nodes=tuple(_with_pool_keys(node, capacity) for node in row.nodes),
        has_backfill=row.has_backfill,
        is_paused=row.is_paused,
        has_server=bool(row.nodes),
        preemption=PreemptionMode(row.preemption) if row.preemption else None,
    )


_pools: RowCache[int, _PoolRow, PoolSnapshot] = RowCache(_pool)


def served_capacity(configured: Quantities, nodes: list[Quantities]) -> Quantities:
    """The smaller of what is configured and what the nodes have, for each key that nodes report."""
    reported = {key for node in nodes for key in node}
    return Quantities.of(
        {
            key: min(amount, sum(node.get(key) for node in nodes)) if key in reported else amount
            for key, amount in configured.items()
        }
    )


def _with_pool_keys(node: NodeSnapshot, configured: Quantities) -> NodeSnapshot:
    """Keys that machines do not report (a licence, say) bind the pool only, not a single node."""
    missing = {
        key: amount
        for key, amount in configured.items()
        if key not in node.capacity and key != GPU and key not in UNCOUNTED_UNLESS_LISTED
    }
    if not missing:
        return node
    return NodeSnapshot(
        id=node.id,
        name=node.name,
        capacity=node.capacity.plus(Quantities.of(missing)),
        model=node.model,
        gpu_indices=node.gpu_indices,
        unavailable_gpus=node.unavailable_gpus,
        is_schedulable=node.is_schedulable,
    )


def _load_nodes() -> dict[int, list[NodeSnapshot]]:
    """Per pool, the nodes that were reached at least once; silent ones accept nothing new."""
    known = Device.objects.filter(node__removed_at__isnull=True, node__pool__isnull=False)
    one = Concat(as_text("index"), Value(" "), F("state"), output_field=CharField())
    devices = dict(
        known.order_by().values("node_id").annotate(all=_Joined(one)).values_list("node_id", "all")
    )
    rows = list(
        NodeRow.objects.filter(removed_at__isnull=True, pool__isnull=False)
        .exclude(state=NodeState.NEW)
        .order_by("id")
        .values_list(
            "pool_id",
            "id",
            "name",
            as_text("capacity"),
            "gpu_model",
            "state",
            "is_draining",
            _IS_PAUSED,
        )
    )
    built = _nodes.of((row[1], _NodeRow._make((*row[1:], devices.get(row[1])))) for row in rows)
    found: dict[int, list[NodeSnapshot]] = defaultdict(list)
    for row, node in zip(rows, built, strict=True):
        found[row[0]].append(node)
    return found


def _node(row: _NodeRow) -> NodeSnapshot:
    indices, unavailable = _devices(row.devices)
    given = typed_amounts(row.capacity)
    if indices is not None:
        most = len(indices) * MILLI
        given = Quantities.of({**given.as_dict(), GPU: min(given.get(GPU, most), most)})
    return NodeSnapshot(
        id=row.pk,
        name=row.name,
        capacity=given,
        model=row.model or None,
        gpu_indices=indices,
        unavailable_gpus=unavailable,
        is_schedulable=row.state == NodeState.HEALTHY and not row.is_draining and not row.is_paused,
    )


_nodes: RowCache[int, _NodeRow, NodeSnapshot] = RowCache(_node)


@lru_cache(maxsize=4096)
def _devices(text: str | None) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """The indices of a node's devices, and of those that are not given out."""
    if text is None:
        return None, ()
    has = sorted((int(index), state) for index, state in map(str.split, text.split(",")))
    return (
        tuple(index for index, _ in has),
        tuple(index for index, state in has if state != DeviceState.HEALTHY),
    )
