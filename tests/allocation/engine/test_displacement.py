"""Restored victims, and work that is displaced in the pass that placed it."""

from __future__ import annotations

from apps.allocation.engine import decide
from apps.allocation.engine.model.plan import Plan
from apps.allocation.engine.model.snapshot import Id, Snapshot
from tests.allocation.engine.builders import placed, queued, running, scenario


def preempted(plan: Plan) -> dict[Id, Id]:
    return {one.task: one.beneficiary for one in plan.preempted}


def test_own_work_that_gave_the_right_over_others_is_not_put_back() -> None:
    """Without it the policy would not cover the task, which could take nothing of the other."""
    snapshot = scenario(
        settings={"preemption": "priority"},
        pools=[{"name": "a", "capacity": {"gpu": 3}, "profiles": ["p2", "p1"]}],
        profiles=[
            {"name": "p1", "request": {"gpu": 1}, "pools": ["a"]},
            {"name": "p2", "request": {"gpu": 2}, "pools": ["a"]},
        ],
        policies=[
            {"name": "left", "reserved": {"gpu": 2}, "profiles": ["p1", "p2"]},
            {"name": "right", "profiles": ["p2"]},
        ],
        tasks=[
            running("own", "left", "p1", "a", started=1),
            running("r", "right", "p2", "a", started=1),
            queued("t", "left", "p2", 9, priority=5),
        ],
    )

    assert preempted(decide(snapshot)) == {"own": "t", "r": "t"}


def twice(**third: object) -> Snapshot:
    """`o` starts in free capacity of `a` and makes `right` over, which then loses it to `t`.

    `t` is covered and needs all of pool `a`; `r` runs there, and as long as nothing else of
    `right` does, `right` covers it.
    """
    return scenario(
        settings={"preemption": "reclaim"},
        pools=[
            {"name": "a", "capacity": {"gpu": 4}},
            {"name": "b", "capacity": {"gpu": 2}},
        ],
        profiles=[
            {"name": "p4", "request": {"gpu": 4}, "pools": ["a"]},
            {"name": "p2", "request": {"gpu": 2}, "pools": ["a"]},
            {"name": "q2", "request": {"gpu": 2}, "pools": ["b"]},
        ],
        policies=[
            {"name": "left", "reserved": {"gpu": 4}, "profiles": ["p4"]},
            {"name": "right", "reserved": {"gpu": 2}, "profiles": ["p2", "q2"]},
            {"name": "third", "profiles": ["p2"], **third},
        ],
        tasks=[
            running("r", "right", "p2", "a", started=1),
            queued("t", "left", "p4", 5),
            queued("o", "third", "p2", 6),
            queued("x", "right", "q2", 7),
        ],
    )


def test_work_placed_in_a_pass_may_be_displaced_in_it() -> None:
    """Once `x` has made `right` over, `t` has a right to `r` and to what `third` just got."""
    plan = decide(twice())

    assert placed(plan) == {"t": "a", "x": "b"}
    assert preempted(plan) == {"r": "t"}
    waiting = {task: wait.reasons[0].code.value for wait in plan.waiting for task in wait.tasks}
    assert waiting == {"o": "capacity"}


def test_min_runtime_does_not_protect_what_has_not_started() -> None:
    snapshot = twice(queues={"p2": {"min_runtime": 1}})

    assert preempted(decide(snapshot)) == {"r": "t"}


def chain(*more: object) -> Snapshot:
    """`p` takes `v`; then `x` and `y` make `right` and `fourth` over, and `t` takes the pool."""
    return scenario(
        settings={"preemption": "reclaim"},
        pools=[
            {"name": "a", "capacity": {"gpu": 4}},
            {"name": "b", "capacity": {"gpu": 4}},
        ],
        profiles=[
            {"name": "p4", "request": {"gpu": 4}, "pools": ["a"]},
            {"name": "p2", "request": {"gpu": 2}, "pools": ["a"]},
            {"name": "q2", "request": {"gpu": 2}, "pools": ["b"]},
        ],
        policies=[
            {"name": "left", "reserved": {"gpu": 4}, "profiles": ["p4"]},
            {"name": "right", "reserved": {"gpu": 2}, "profiles": ["p2", "q2"]},
            {"name": "third", "profiles": ["p2"]},
            {"name": "fourth", "reserved": {"gpu": 2}, "profiles": ["p2", "q2"]},
        ],
        tasks=[
            running("v", "third", "p2", "a", started=1),
            running("w", "fourth", "p2", "a", started=1),
            queued("t", "left", "p4", 1),
            queued("p", "right", "p2", 2),
            queued("x", "right", "q2", 3),
            queued("y", "fourth", "q2", 4),
            *more,
        ],
    )


def test_victims_of_work_that_is_displaced_count_for_its_taker() -> None:
    plan = decide(chain())

    assert placed(plan) == {"t": "a", "x": "b", "y": "b"}
    assert preempted(plan) == {"v": "t", "w": "t"}
    assert next(one for one in plan.placed if one.task == "t").waits_for == ("v", "w")


def test_the_rest_of_a_group_waits_with_the_one_that_was_displaced() -> None:
    plan = decide(chain(queued("p2", "right", "p2", 9)))

    assert placed(plan) == {"t": "a", "x": "b", "y": "b"}
    assert [wait.tasks for wait in plan.waiting] == [("p", "p2")]
