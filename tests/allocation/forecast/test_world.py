"""A world against snapshots written by hand."""

from dataclasses import MISSING, fields, replace

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.plan import Move, Place, Plan, Preempt, Standing
from apps.allocation.engine.quantities import Quantities
from apps.allocation.engine.snapshot import (
    Head,
    Held,
    Member,
    Policy,
    Pool,
    Preemption,
    Profile,
    Queue,
    Run,
    Running,
    Settings,
    Snapshot,
)
from apps.allocation.forecast.world import Kind, World

ONE = Quantities.whole(gpu=1)
QUEUE_A = Kind("a", ONE)
BASE = Snapshot(
    settings=Settings(preemption=Preemption.RECLAIM),
    pools=(Pool("p", "p", Quantities.whole(gpu=4), ("w",)),),
    profiles=(Profile("w", "w", ONE, pools=("p",), policies=("a", "b")),),
    policies=(Policy("a", "a", 0, reserved=ONE), Policy("b", "b", 1, reserved=ONE)),
    queues=(Queue("a", "a", "w"), Queue("b", "b", "w")),
)


def without_taking(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, settings=Settings(preemption=Preemption.NONE))


def running(*tasks: Held, queue: str | None = "a", is_stopping: bool = False) -> Running:
    return Running("p", "a", "w", ONE, tasks, queue=queue, is_stopping=is_stopping)


def test_what_begins_with_a_snapshot_shows_it_again() -> None:
    snapshot = replace(
        BASE,
        now_us=5,
        runs=(Run("a", ONE, 7, (Head(1, "x"), Head(2, "y"))), Run("b", ONE, 1, (Head(1, "z"),))),
        running=(
            running(Held("r", 1, 2, checkpointed_us=4)),
            running(Held("s", 1, 2), is_stopping=True),
            running(Held("t", 1, 2), queue=None),
        ),
    )

    assert World(snapshot).snapshot(5) == snapshot


def test_an_arrival_behind_an_equal_one_needs_no_pass() -> None:
    world = World(BASE)

    assert world.arrive(QUEUE_A, Head(1, "x"))
    assert not world.arrive(QUEUE_A, Head(2, "y"))
    assert world.arrive(QUEUE_A, Head(0, "w"))
    assert world.arrive(Kind("a", ONE, priority=1), Head(3, "z"))
    assert [head.task for head in world.snapshot(0).runs[0].heads] == ["w", "x", "y"]


def test_placed_work_runs_and_ends() -> None:
    world = World(BASE)
    world.arrive(QUEUE_A, Head(1, "x"))
    seat = (Member("n"),)

    world.carry_out(Plan(placed=(Place("x", "a", "p", Standing.RESERVED, seat),)), 9)

    (group,) = world.snapshot(9).running
    assert group.tasks == (Held("x", 1, 9, seat),)
    assert (world.has_waiting, world.is_running("x")) == (False, True)
    world.end("x")
    assert world.snapshot(10).running == ()


def test_a_victim_waits_again_as_of_its_submission_and_keeps_count() -> None:
    world = World(replace(BASE, running=(running(Held("r", 1, 5)),)))
    world.arrive(QUEUE_A, Head(2, "x"))

    world.carry_out(Plan(preempted=(Preempt("r", "p", "x"),)), 7)

    (run,) = world.snapshot(7).runs
    assert run.heads == (Head(1, "r"), Head(2, "x"))
    world.carry_out(Plan(placed=(Place("r", "a", "p", Standing.RESERVED),)), 8)
    assert world.snapshot(8).running[0].tasks == (Held("r", 1, 8, preemptions=1),)


def test_moved_work_sits_elsewhere() -> None:
    world = World(replace(BASE, running=(running(Held("r", 1, 5, (Member("n"),))),)))

    world.carry_out(Plan(moved=(Move("r", "p", "x", (Member("m"),)),)), 7)

    assert world.snapshot(7).running[0].tasks == (Held("r", 1, 7, (Member("m"),)),)


# Every field differs from its default, so that none can be lost on the way.
UNUSUAL_HELD = Held("r", 1, 2, (Member("n"),), 3, 4, "x", is_leaving=True, is_movable=False)
UNUSUAL = Running(
    "p", "a", "w", ONE, (UNUSUAL_HELD,), "a", 2, 3, False, "eve", True, is_stopping=True
)


@pytest.mark.parametrize("one", [UNUSUAL_HELD, UNUSUAL], ids=["held", "running"])
def test_the_unusual_differs_in_every_field(one: Held | Running) -> None:
    defaults = [field for field in fields(one) if field.default is not MISSING]

    assert [field.name for field in defaults if getattr(one, field.name) == field.default] == []


def test_a_checkpoint_changes_nothing_else() -> None:
    world = World(replace(BASE, running=(UNUSUAL,)))

    world.checkpoint("r", 9)

    want = replace(UNUSUAL, tasks=(replace(UNUSUAL_HELD, checkpointed_us=9),))
    assert world.snapshot(9).running == (want,)


def test_what_did_not_change_is_the_same_object() -> None:
    world = World(BASE)
    world.arrive(QUEUE_A, Head(1, "x"))
    world.arrive(Kind("b", ONE), Head(1, "y"))

    before = world.snapshot(1)
    world.arrive(QUEUE_A, Head(2, "z"))
    after = world.snapshot(2)

    assert after.runs[1] is before.runs[1]
    assert after.runs[0] is not before.runs[0]
    assert after.policies is before.policies


@pytest.mark.parametrize(
    ("base", "want"),
    [
        pytest.param(BASE, 5, id="one more than the empty pool holds, where work is taken back"),
        pytest.param(without_taking(BASE), 3, id="one more than is free, where it is not"),
    ],
)
def test_heads_are_as_many_as_could_start_and_one_that_could_not(base: Snapshot, want: int) -> None:
    waiting = Run("a", ONE, 9, tuple(Head(at, f"t{at}") for at in range(9)))
    busy = (running(Held("r", 0, 0), Held("s", 0, 0)),)
    snapshot = replace(base, runs=(waiting,), running=busy)

    shown = World(snapshot).snapshot(0)

    assert len(shown.runs[0].heads) == want
    assert shown.runs[0].count == 9
    want_placed = [place.task for place in decide(snapshot).placed]
    assert [place.task for place in decide(shown).placed] == want_placed


def test_room_that_comes_back_shows_more_heads() -> None:
    waiting = Run("a", ONE, 9, tuple(Head(at, f"t{at}") for at in range(9)))
    busy = (running(Held("r", 0, 0)),)
    world = World(replace(without_taking(BASE), runs=(waiting,), running=busy))
    assert len(world.snapshot(0).runs[0].heads) == 4

    world.end("r")

    assert len(world.snapshot(0).runs[0].heads) == 5
