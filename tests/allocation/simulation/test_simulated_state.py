"""A world against snapshots written by hand."""

from dataclasses import MISSING, fields, replace

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.plan import Move, Placement, Plan, Preempt, Tier
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import (
    MemberPlacement,
    PolicySnapshot,
    PoolSnapshot,
    PreemptionMode,
    ProfileSnapshot,
    QueuedGroup,
    QueuedTask,
    QueueSnapshot,
    RunningGroup,
    RunningTask,
    SettingsSnapshot,
    Snapshot,
)
from apps.allocation.simulation.simulated_state import GroupKey, SimulatedState

ONE = Quantities.whole(gpu=1)
QUEUE_A = GroupKey("a", ONE)
BASE = Snapshot(
    settings=SettingsSnapshot(preemption=PreemptionMode.RECLAIM),
    pools=(PoolSnapshot("p", "p", Quantities.whole(gpu=4), ("w",)),),
    profiles=(ProfileSnapshot("w", "w", ONE, pools=("p",), policies=("a", "b")),),
    policies=(PolicySnapshot("a", "a", 0, reserved=ONE), PolicySnapshot("b", "b", 1, reserved=ONE)),
    queues=(QueueSnapshot("a", "a", "w"), QueueSnapshot("b", "b", "w")),
)


def without_taking(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, settings=SettingsSnapshot(preemption=PreemptionMode.NONE))


def running(
    *tasks: RunningTask, queue: str | None = "a", is_stopping: bool = False
) -> RunningGroup:
    return RunningGroup("p", "a", "w", ONE, tasks, queue=queue, is_stopping=is_stopping)


def test_what_begins_with_a_snapshot_shows_it_again() -> None:
    snapshot = replace(
        BASE,
        now_us=5,
        queued_groups=(
            QueuedGroup("a", ONE, 7, (QueuedTask(1, "x"), QueuedTask(2, "y"))),
            QueuedGroup("b", ONE, 1, (QueuedTask(1, "z"),)),
        ),
        running=(
            running(RunningTask("r", 1, 2, checkpointed_us=4)),
            running(RunningTask("s", 1, 2), is_stopping=True),
            running(RunningTask("t", 1, 2), queue=None),
        ),
    )

    assert SimulatedState(snapshot).snapshot(5) == snapshot


def test_an_arrival_behind_an_equal_one_needs_no_pass() -> None:
    world = SimulatedState(BASE)

    assert world.arrive(QUEUE_A, QueuedTask(1, "x"))
    assert not world.arrive(QUEUE_A, QueuedTask(2, "y"))
    assert world.arrive(QUEUE_A, QueuedTask(0, "w"))
    assert world.arrive(GroupKey("a", ONE, priority=1), QueuedTask(3, "z"))
    assert [head.task for head in world.snapshot(0).queued_groups[0].heads] == ["w", "x", "y"]


def test_placed_work_runs_and_ends() -> None:
    world = SimulatedState(BASE)
    world.arrive(QUEUE_A, QueuedTask(1, "x"))
    members = (MemberPlacement("n"),)

    world.carry_out(Plan(placed=(Placement("x", "a", "p", Tier.RESERVED, members),)), 9)

    (group,) = world.snapshot(9).running
    assert group.tasks == (RunningTask("x", 1, 9, members),)
    assert (world.has_waiting, world.is_running("x")) == (False, True)
    world.end("x")
    assert world.snapshot(10).running == ()


def test_a_victim_waits_again_as_of_its_submission_and_keeps_count() -> None:
    world = SimulatedState(replace(BASE, running=(running(RunningTask("r", 1, 5)),)))
    world.arrive(QUEUE_A, QueuedTask(2, "x"))

    world.carry_out(Plan(preempted=(Preempt("r", "p", "x"),)), 7)

    (queued,) = world.snapshot(7).queued_groups
    assert queued.heads == (QueuedTask(1, "r"), QueuedTask(2, "x"))
    world.carry_out(Plan(placed=(Placement("r", "a", "p", Tier.RESERVED),)), 8)
    assert world.snapshot(8).running[0].tasks == (RunningTask("r", 1, 8, preemptions=1),)


def test_moved_work_sits_elsewhere() -> None:
    world = SimulatedState(
        replace(BASE, running=(running(RunningTask("r", 1, 5, (MemberPlacement("n"),))),))
    )

    world.carry_out(Plan(moved=(Move("r", "p", "x", (MemberPlacement("m"),)),)), 7)

    assert world.snapshot(7).running[0].tasks == (RunningTask("r", 1, 7, (MemberPlacement("m"),)),)


# Every field differs from its default, so that none can be lost on the way.
UNUSUAL_HELD = RunningTask(
    "r", 1, 2, (MemberPlacement("n"),), 3, 4, "x", is_leaving=True, is_movable=False
)
UNUSUAL = RunningGroup(
    "p", "a", "w", ONE, (UNUSUAL_HELD,), "a", 2, 3, False, "eve", True, is_stopping=True
)


@pytest.mark.parametrize("one", [UNUSUAL_HELD, UNUSUAL], ids=["held", "running"])
def test_the_unusual_differs_in_every_field(one: RunningTask | RunningGroup) -> None:
    defaults = [field for field in fields(one) if field.default is not MISSING]

    assert [field.name for field in defaults if getattr(one, field.name) == field.default] == []


def test_a_checkpoint_changes_nothing_else() -> None:
    world = SimulatedState(replace(BASE, running=(UNUSUAL,)))

    world.checkpoint("r", 9)

    want = replace(UNUSUAL, tasks=(replace(UNUSUAL_HELD, checkpointed_us=9),))
    assert world.snapshot(9).running == (want,)


def test_what_did_not_change_is_the_same_object() -> None:
    world = SimulatedState(BASE)
    world.arrive(QUEUE_A, QueuedTask(1, "x"))
    world.arrive(GroupKey("b", ONE), QueuedTask(1, "y"))

    before = world.snapshot(1)
    world.arrive(QUEUE_A, QueuedTask(2, "z"))
    after = world.snapshot(2)

    assert after.queued_groups[1] is before.queued_groups[1]
    assert after.queued_groups[0] is not before.queued_groups[0]
    assert after.policies is before.policies


@pytest.mark.parametrize(
    ("base", "want"),
    [
        pytest.param(BASE, 5, id="one more than the empty pool holds, where work is preempted"),
        pytest.param(without_taking(BASE), 3, id="one more than is free, where it is not"),
    ],
)
def test_heads_are_as_many_as_could_start_and_one_that_could_not(base: Snapshot, want: int) -> None:
    waiting = QueuedGroup("a", ONE, 9, tuple(QueuedTask(at, f"t{at}") for at in range(9)))
    busy = (running(RunningTask("r", 0, 0), RunningTask("s", 0, 0)),)
    snapshot = replace(base, queued_groups=(waiting,), running=busy)

    shown = SimulatedState(snapshot).snapshot(0)

    assert len(shown.queued_groups[0].heads) == want
    assert shown.queued_groups[0].count == 9
    want_placed = [place.task for place in decide(snapshot).placed]
    assert [place.task for place in decide(shown).placed] == want_placed


def test_capacity_that_comes_back_shows_more_heads() -> None:
    waiting = QueuedGroup("a", ONE, 9, tuple(QueuedTask(at, f"t{at}") for at in range(9)))
    busy = (running(RunningTask("r", 0, 0)),)
    world = SimulatedState(replace(without_taking(BASE), queued_groups=(waiting,), running=busy))
    assert len(world.snapshot(0).queued_groups[0].heads) == 4

    world.end("r")

    assert len(world.snapshot(0).queued_groups[0].heads) == 5
