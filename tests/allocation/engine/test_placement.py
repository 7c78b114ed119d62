"""Which node and which GPU: the engine's quick choice is the one that the plain rule makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.allocation.engine.capacity.nodes import MemberAssignment, NodeLayout, Nodes
from apps.allocation.engine.compile.compiled_snapshot import (
    CompiledShape,
    CompiledSnapshot,
    compile_configuration,
)
from apps.allocation.engine.model.quantities import GPU, WHOLE, Quantities
from apps.allocation.engine.model.snapshot import NodeSnapshot, PoolSnapshot, Snapshot, UsualShape
from lab.placement.exhaustive_choice import ExhaustiveChoice, FreeNode

MODELS = ("A100", "H100", "T4")
SIZES = (0, 100, 250, 500, 700, 1000, 2000, 4000)

requests = st.builds(
    lambda gpu, cpu: Quantities.of({GPU: gpu, "cpu": cpu * WHOLE}).positive(),
    st.sampled_from(SIZES),
    st.integers(0, 12),
).filter(bool)
chosen_models = st.lists(st.sampled_from(MODELS), max_size=2, unique=True).map(tuple)
usuals = st.lists(
    st.builds(
        UsualShape, requests, st.integers(1, 20), replicas=st.integers(1, 3), models=chosen_models
    ),
    max_size=5,
)
machines = st.lists(
    st.tuples(st.integers(0, 4), st.integers(4, 24), st.sampled_from(MODELS)),
    min_size=1,
    max_size=6,
)


def node(name: str, gpus: int, cpu: int = 64, model: str = "H100") -> NodeSnapshot:
    return NodeSnapshot(name, name, Quantities.whole(gpu=gpus, cpu=cpu), model=model)


def gpus(units: float, cpu: int = 1) -> Quantities:
    return Quantities.of({GPU: round(units * WHOLE), "cpu": cpu * WHOLE})


class PoolNodes:
    """Nodes of one pool, and the plain rule to compare with."""

    def __init__(self, nodes: Sequence[NodeSnapshot], usual: Sequence[UsualShape]) -> None:
        pool = PoolSnapshot("pool", "pool", Quantities(), nodes=tuple(nodes))
        self.compiled: CompiledSnapshot = compile_configuration(
            Snapshot(pools=(pool,), usual=tuple(usual))
        )
        self.layout = NodeLayout(self.compiled, pool)
        self.nodes = Nodes.of(self.layout, self.layout.empty())
        self.naive = ExhaustiveChoice(pool.nodes, usual)

    def shape(
        self, request: Quantities, models: tuple[str, ...] = (), replicas: int = 1
    ) -> CompiledShape:
        return self.compiled.shape_of(request, replicas, models)

    def take(
        self, request: Quantities, models: tuple[str, ...] = ()
    ) -> tuple[MemberAssignment, ...] | None:
        return self.nodes.take(self.shape(request, models))

    def names(self, request: Quantities, count: int = 1) -> list[str | None]:
        taken = [self.take(request) for _ in range(count)]
        return [self.layout.nodes[members[0][0]].name if members else None for members in taken]

    def by_rule(
        self, request: Quantities, models: tuple[str, ...], nodes: Nodes | None = None
    ) -> tuple[str, int] | None:
        states = (nodes or self.nodes).states
        free = [
            FreeNode(one, dict(zip(self.layout.keys, scalars, strict=True)), list(devices))
            for one, (scalars, devices) in zip(self.layout.nodes, states, strict=True)
        ]
        return self.naive.choose(free, request, models)


def seen(pool: PoolNodes, nodes: Nodes, shape: CompiledShape) -> tuple[str, int] | None:
    """Takes it; the node, and what was free of the GPU that a fraction shares."""
    before = list(nodes.states)
    members = nodes.take(shape)
    if members is None:
        return None
    number, shares = members[0]
    is_fraction = 0 < shape.gpu_milli < WHOLE
    return pool.layout.nodes[number].name, before[number][1][shares[0][0]] if is_fraction else 0


steps = st.lists(
    st.tuples(st.sampled_from(["take", "take", "take", "give", "fork"]), requests, chosen_models),
    max_size=25,
)


@given(machines=machines, usual=usuals, steps=steps, data=st.data())
def test_the_choice_is_that_of_scoring_every_node(
    machines: list[tuple[int, int, str]],
    usual: list[UsualShape],
    steps: list[tuple[str, Quantities, tuple[str, ...]]],
    data: st.DataObject,
) -> None:
    pool = PoolNodes([node(f"n{number}", *one) for number, one in enumerate(machines)], usual)
    # Without usual work the GPUs of a node say nothing about work that needs none.
    usual_is_known = bool(usual)
    branches = [pool.nodes]
    held: list[list[tuple[CompiledShape, tuple[MemberAssignment, ...]]]] = [[]]
    for what, request, models in steps:
        at = data.draw(st.integers(0, len(branches) - 1))
        if what == "fork":
            branches.append(branches[at].fork())
            held.append(list(held[at]))
        elif what == "give" and held[at]:
            branches[at].give(*held[at].pop(data.draw(st.integers(0, len(held[at]) - 1))))
        elif request.get(GPU) or usual_is_known:
            shape = pool.shape(request, models)
            want = pool.by_rule(request, models, branches[at])
            before = branches[at].fork()
            assert seen(pool, branches[at], shape) == want
            members = before.take(shape)
            if members is not None:
                held[at].append((shape, members))


@pytest.mark.parametrize("first", ["a", "b"])
def test_of_equal_nodes_the_first_by_name_is_taken_in_whatever_order_they_come(first: str) -> None:
    second = "b" if first == "a" else "a"
    pool = PoolNodes([node(first, 4), node(second, 4)], [UsualShape(gpus(2), 1)])

    assert pool.names(gpus(2)) == ["a"]


def test_a_small_task_leaves_the_node_that_large_work_needs() -> None:
    # By best fit alone it would take "a", with fewer free GPUs.
    nodes = [node("a", 4), node("b", 5)]

    assert PoolNodes(nodes, [UsualShape(gpus(4), 1)]).names(gpus(1)) == ["b"]
    assert PoolNodes(nodes, []).names(gpus(1)) == ["a"]


def test_fragmentation_counts_in_steps_of_forty_thousandths() -> None:
    """A difference below half a step is none: best fit decides."""
    nodes = [node("a", 1, cpu=4), node("b", 2, cpu=128)]
    # On "a" the CPU is gone with the task, and a GPU with it that a few could use.
    rare = [UsualShape(gpus(1, cpu=64), 981), UsualShape(gpus(1, cpu=4), 19)]
    frequent = [UsualShape(gpus(1, cpu=64), 980), UsualShape(gpus(1, cpu=4), 20)]

    assert PoolNodes(nodes, rare).names(gpus(0, cpu=1)) == ["a"]
    assert PoolNodes(nodes, frequent).names(gpus(0, cpu=1)) == ["b"]


def test_a_scarce_model_is_left_for_work_that_names_it() -> None:
    nodes = [node("a", 4, model="H100"), node("b", 8, model="T4")]
    usual = [UsualShape(gpus(1), 1), UsualShape(gpus(1), 1, models=("H100",))]

    assert PoolNodes(nodes, usual[:1]).names(gpus(1)) == ["a"]
    assert PoolNodes(nodes, usual).names(gpus(1)) == ["b"]
    assert PoolNodes(nodes, usual).names(gpus(1), count=9) == ["b"] * 8 + ["a"]
    assert PoolNodes(nodes, usual).take(gpus(1), ("H100",)) == ((0, ((0, 1000),)),)


def test_work_without_gpus_does_not_mind_scarce_models() -> None:
    nodes = [node("a", 0, model="H100"), node("b", 8, model="T4"), node("c", 1, model="H100")]
    usual = [UsualShape(gpus(1), 1, models=("H100",))]

    assert PoolNodes(nodes, usual).names(gpus(0)) == ["a"]


def test_a_fraction_never_straddles_and_fills_the_gpu_that_is_begun() -> None:
    pool = PoolNodes([node("a", 2)], [UsualShape(gpus(1), 1)])

    taken = [pool.take(gpus(0.4)) for _ in range(5)]

    shares = [one[0][1] for one in taken if one]
    assert shares == [((0, 400),), ((0, 400),), ((1, 400),), ((1, 400),)]
    assert taken[4] is None


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    pool = PoolNodes(
        [node("a", 8), node("b", 8), node("c", 4)], [UsualShape(gpus(8), 1, replicas=2)]
    )
    before = list(pool.nodes.states)

    assert pool.nodes.take(pool.shape(gpus(8), replicas=3)) is None
    assert pool.nodes.states == before
    members = pool.nodes.take(pool.shape(gpus(8), replicas=2))
    assert members is not None
    assert [number for number, _ in members] == [0, 1]


def test_a_node_that_takes_nothing_new_keeps_books_of_what_it_has() -> None:
    pool = PoolNodes(
        [replace(node("a", 4), is_schedulable=False), node("b", 4)], [UsualShape(gpus(1), 1)]
    )
    shape = pool.shape(gpus(1))

    pool.nodes.retake(shape, ((0, ((0, 1000),)),))

    assert pool.nodes.states[0][1] == (0, 1000, 1000, 1000)
    assert pool.names(gpus(1), count=5) == ["b", "b", "b", "b", None]


def test_usual_work_of_another_pool_does_not_matter() -> None:
    nodes = [node("a", 4), node("b", 5)]

    assert PoolNodes(nodes, [UsualShape(gpus(4), 1, pool="other")]).names(gpus(1)) == ["a"]
