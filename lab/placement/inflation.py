"""The inflation experiment (Weng et al., USENIX ATC 2023), with the engine's own choice of nodes.

Pods arrive until they have asked for as many GPUs as there are; each is placed or dropped, nothing
leaves. The figure is the part of all GPUs that is given out at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from time import process_time

from apps.allocation.engine.capacity.nodes import MemberAssignment, NodeLayout, Nodes, State
from apps.allocation.engine.compile.compiled_snapshot import (
    CompiledShape,
    CompiledSnapshot,
    compile_configuration,
)
from apps.allocation.engine.model.quantities import GPU, WHOLE, Quantities
from apps.allocation.engine.model.snapshot import NodeSnapshot, PoolSnapshot, Snapshot, UsualShape
from lab.placement.exhaustive_choice import ExhaustiveChoice, FreeNode
from lab.placement.traces import Pod

# Arrivals of a run that are also decided by scoring every node, spread over it.
COMPARED = 6


class Cluster:
    """One pool with the nodes of a trace, whose usual work is one list of pods.

    Args:
        order: seed by which the list of nodes is shuffled and renamed; None: as it came.
    """

    def __init__(
        self, nodes: Sequence[NodeSnapshot], pods: Sequence[Pod], order: int | None
    ) -> None:
        pool = PoolSnapshot(
            id="pool",
            name="pool",
            capacity=Quantities(),
            nodes=tuple(nodes if order is None else _shuffled(nodes, order)),
        )
        self.pods = tuple(pods)
        self.nodes = pool.nodes
        self.usual = tuple(
            UsualShape(request=pod.request, frequency=count, models=pod.models)
            for pod, count in Counter(pods).items()
        )
        compiled = compile_configuration(Snapshot(pools=(pool,), usual=self.usual))
        self.compiled: CompiledSnapshot = compiled
        self.layout = NodeLayout(compiled, pool)
        self.capacity = sum(sum(gpus) for _, gpus in self.layout.empty())

    def shape(self, pod: Pod) -> CompiledShape:
        return self.compiled.shape_of(pod.request, 1, pod.models)


@dataclass(frozen=True, slots=True)
class Timing:
    """Placements that were also decided by scoring every node, and the CPU seconds of that."""

    count: int
    equal: int
    seconds: float


@dataclass(frozen=True, slots=True)
class InflationOutcome:
    """One run: thousandths of GPUs that were given out, of all, and the CPU seconds it took."""

    seed: int
    given: int
    capacity: int
    arrivals: int
    placed: int
    seconds: float

    @property
    def percent(self) -> float:
        return 100 * self.given / self.capacity


def _shuffled(nodes: Sequence[NodeSnapshot], order: int) -> list[NodeSnapshot]:
    """Names decide ties, so the order of a list is the order of its names."""
    shuffled = list(nodes)
    Random(order).shuffle(shuffled)  # noqa: S311 - an experiment that can be repeated
    return [replace(node, name=f"{number:06d} {node.name}") for number, node in enumerate(shuffled)]


def arrivals(cluster: Cluster, seed: int) -> Iterator[Pod]:
    """The pods in the order of the seed, then any of them, until all GPUs are asked for."""
    random = Random(seed)  # noqa: S311 - an experiment that can be repeated
    first = list(cluster.pods)
    random.shuffle(first)
    asked = 0
    place = 0
    while True:
        pod = first[place] if place < len(first) else random.choice(cluster.pods)
        place += 1
        asked += pod.request.get(GPU)
        if asked > cluster.capacity:
            return
        yield pod


def inflate(cluster: Cluster, seed: int) -> InflationOutcome:
    """One run of the experiment."""
    pods = list(arrivals(cluster, seed))
    shapes = [cluster.shape(pod) for pod in pods]
    nodes = Nodes.of(cluster.layout, cluster.layout.empty())
    given = placed = 0
    started = process_time()
    for shape in shapes:
        if nodes.take(shape) is not None:
            given += shape.gpu_milli
            placed += 1
    seconds = process_time() - started
    return InflationOutcome(seed, given, cluster.capacity, len(pods), placed, seconds)


def compare(cluster: Cluster, seed: int, count: int = COMPARED) -> Timing:
    """Decide some placements of a run both ways: at moments spread over it, on the same state."""
    pods = list(arrivals(cluster, seed))
    moments = {len(pods) * number // count for number in range(count)}
    nodes = Nodes.of(cluster.layout, cluster.layout.empty())
    naive = ExhaustiveChoice(cluster.nodes, cluster.usual)
    equal = 0
    seconds = 0.0
    for number, pod in enumerate(pods):
        wanted: tuple[str, int] | None = None
        if number in moments:
            machines = _machines(cluster, nodes)
            started = process_time()
            wanted = naive.choose(machines, pod.request, pod.models)
            seconds += process_time() - started
        before = list(nodes.states) if number in moments else []
        members = nodes.take(cluster.shape(pod))
        if number in moments:
            equal += wanted == _chosen(cluster, before, pod, members)
    return Timing(len(moments), equal, seconds)


def _machines(cluster: Cluster, nodes: Nodes) -> list[FreeNode]:
    layout = cluster.layout
    return [
        FreeNode(node, dict(zip(layout.keys, scalars, strict=True)), list(gpus))
        for node, (scalars, gpus) in zip(layout.nodes, nodes.states, strict=True)
    ]


def _chosen(
    cluster: Cluster,
    before: Sequence[State],
    pod: Pod,
    members: tuple[MemberAssignment, ...] | None,
) -> tuple[str, int] | None:
    """Name of the node, and what was free of the GPU that a fraction shares."""
    if members is None:
        return None
    node, gpus = members[0]
    shares_one = 0 < pod.request.get(GPU) < WHOLE
    return cluster.layout.nodes[node].name, before[node][1][gpus[0][0]] if shares_one else 0
