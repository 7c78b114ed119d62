"""Which node and which GPU: the engine's quick choice is the one that the plain rule makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.allocation.engine.compiled import Compiled, Shape, compile_configuration
from apps.allocation.engine.nodes import Nodes, Seat, Site
from apps.allocation.engine.quantities import GPU, WHOLE, Quantities
from apps.allocation.engine.snapshot import Node, Pool, Snapshot, Usual
from apps.allocation.placement.naive import Machine, Naive

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
        Usual, requests, st.integers(1, 20), replicas=st.integers(1, 3), models=chosen_models
    ),
    max_size=5,
)
machines = st.lists(
    st.tuples(st.integers(0, 4), st.integers(4, 24), st.sampled_from(MODELS)),
    min_size=1,
    max_size=6,
)


def node(name: str, gpus: int, cpu: int = 64, model: str = "H100") -> Node:
    return Node(name, name, Quantities.whole(gpu=gpus, cpu=cpu), model=model)


def gpus(units: float, cpu: int = 1) -> Quantities:
    return Quantities.of({GPU: round(units * WHOLE), "cpu": cpu * WHOLE})


class Room:
    """Nodes of one pool, and the plain rule beside them."""

    def __init__(self, nodes: Sequence[Node], usual: Sequence[Usual]) -> None:
        pool = Pool("pool", "pool", Quantities(), nodes=tuple(nodes))
        self.compiled: Compiled = compile_configuration(Snapshot(pools=(pool,), usual=tuple(usual)))
        self.site = Site(self.compiled, pool)
        self.nodes = Nodes.of(self.site, self.site.empty())
        self.naive = Naive(pool.nodes, usual)

    def shape(self, request: Quantities, models: tuple[str, ...] = (), replicas: int = 1) -> Shape:
        return self.compiled.shape_of(request, replicas, models)

    def take(self, request: Quantities, models: tuple[str, ...] = ()) -> tuple[Seat, ...] | None:
        return self.nodes.take(self.shape(request, models))

    def names(self, request: Quantities, count: int = 1) -> list[str | None]:
        taken = [self.take(request) for _ in range(count)]
        return [self.site.nodes[seats[0][0]].name if seats else None for seats in taken]

    def by_rule(
        self, request: Quantities, models: tuple[str, ...], nodes: Nodes | None = None
    ) -> tuple[str, int] | None:
        states = (nodes or self.nodes).states
        free = [
            Machine(one, dict(zip(self.site.keys, scalars, strict=True)), list(devices))
            for one, (scalars, devices) in zip(self.site.nodes, states, strict=True)
        ]
        return self.naive.choose(free, request, models)


def seen(room: Room, nodes: Nodes, shape: Shape) -> tuple[str, int] | None:
    """Takes it; the node, and what was free of the GPU that a fraction shares."""
    before = list(nodes.states)
    seats = nodes.take(shape)
    if seats is None:
        return None
    number, shares = seats[0]
    is_fraction = 0 < shape.gpu_milli < WHOLE
    return room.site.nodes[number].name, before[number][1][shares[0][0]] if is_fraction else 0


steps = st.lists(
    st.tuples(st.sampled_from(["take", "take", "take", "give", "fork"]), requests, chosen_models),
    max_size=25,
)


@given(machines=machines, usual=usuals, steps=steps, data=st.data())
def test_the_choice_is_that_of_scoring_every_node(
    machines: list[tuple[int, int, str]],
    usual: list[Usual],
    steps: list[tuple[str, Quantities, tuple[str, ...]]],
    data: st.DataObject,
) -> None:
    room = Room([node(f"n{number}", *one) for number, one in enumerate(machines)], usual)
    # Without usual work the GPUs of a node say nothing about work that needs none.
    usual_is_known = bool(usual)
    branches = [room.nodes]
    held: list[list[tuple[Shape, tuple[Seat, ...]]]] = [[]]
    for what, request, models in steps:
        at = data.draw(st.integers(0, len(branches) - 1))
        if what == "fork":
            branches.append(branches[at].fork())
            held.append(list(held[at]))
        elif what == "give" and held[at]:
            branches[at].give(*held[at].pop(data.draw(st.integers(0, len(held[at]) - 1))))
        elif request.get(GPU) or usual_is_known:
            shape = room.shape(request, models)
            want = room.by_rule(request, models, branches[at])
            before = branches[at].fork()
            assert seen(room, branches[at], shape) == want
            seats = before.take(shape)
            if seats is not None:
                held[at].append((shape, seats))


@pytest.mark.parametrize("first", ["a", "b"])
def test_of_equal_nodes_the_first_by_name_is_taken_in_whatever_order_they_come(first: str) -> None:
    second = "b" if first == "a" else "a"
    room = Room([node(first, 4), node(second, 4)], [Usual(gpus(2), 1)])

    assert room.names(gpus(2)) == ["a"]


def test_a_small_task_leaves_the_node_that_large_work_needs() -> None:
    # By best fit alone it would take "a", with fewer free GPUs.
    nodes = [node("a", 4), node("b", 5)]

    assert Room(nodes, [Usual(gpus(4), 1)]).names(gpus(1)) == ["b"]
    assert Room(nodes, []).names(gpus(1)) == ["a"]


def test_fragmentation_counts_in_steps_of_forty_thousandths() -> None:
    """A difference below half a step is none: best fit decides."""
    nodes = [node("a", 1, cpu=4), node("b", 2, cpu=128)]
    # On "a" the CPU is gone with the task, and a GPU with it that a few could use.
    rare = [Usual(gpus(1, cpu=64), 981), Usual(gpus(1, cpu=4), 19)]
    frequent = [Usual(gpus(1, cpu=64), 980), Usual(gpus(1, cpu=4), 20)]

    assert Room(nodes, rare).names(gpus(0, cpu=1)) == ["a"]
    assert Room(nodes, frequent).names(gpus(0, cpu=1)) == ["b"]


def test_a_scarce_model_is_left_for_work_that_names_it() -> None:
    nodes = [node("a", 4, model="H100"), node("b", 8, model="T4")]
    usual = [Usual(gpus(1), 1), Usual(gpus(1), 1, models=("H100",))]

    assert Room(nodes, usual[:1]).names(gpus(1)) == ["a"]
    assert Room(nodes, usual).names(gpus(1)) == ["b"]
    assert Room(nodes, usual).names(gpus(1), count=9) == ["b"] * 8 + ["a"]
    assert Room(nodes, usual).take(gpus(1), ("H100",)) == ((0, ((0, 1000),)),)


def test_work_without_gpus_does_not_mind_scarce_models() -> None:
    nodes = [node("a", 0, model="H100"), node("b", 8, model="T4"), node("c", 1, model="H100")]
    usual = [Usual(gpus(1), 1, models=("H100",))]

    assert Room(nodes, usual).names(gpus(0)) == ["a"]


def test_a_fraction_never_straddles_and_fills_the_gpu_that_is_begun() -> None:
    room = Room([node("a", 2)], [Usual(gpus(1), 1)])

    taken = [room.take(gpus(0.4)) for _ in range(5)]

    shares = [one[0][1] for one in taken if one]
    assert shares == [((0, 400),), ((0, 400),), ((1, 400),), ((1, 400),)]
    assert taken[4] is None


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    room = Room([node("a", 8), node("b", 8), node("c", 4)], [Usual(gpus(8), 1, replicas=2)])
    before = list(room.nodes.states)

    assert room.nodes.take(room.shape(gpus(8), replicas=3)) is None
    assert room.nodes.states == before
    seats = room.nodes.take(room.shape(gpus(8), replicas=2))
    assert seats is not None
    assert [number for number, _ in seats] == [0, 1]


def test_a_node_that_takes_nothing_new_keeps_books_of_what_it_has() -> None:
    room = Room([replace(node("a", 4), is_schedulable=False), node("b", 4)], [Usual(gpus(1), 1)])
    shape = room.shape(gpus(1))

    room.nodes.retake(shape, ((0, ((0, 1000),)),))

    assert room.nodes.states[0][1] == (0, 1000, 1000, 1000)
    assert room.names(gpus(1), count=5) == ["b", "b", "b", "b", None]


def test_usual_work_of_another_pool_does_not_matter() -> None:
    nodes = [node("a", 4), node("b", 5)]

    assert Room(nodes, [Usual(gpus(4), 1, pool="other")]).names(gpus(1)) == ["a"]
