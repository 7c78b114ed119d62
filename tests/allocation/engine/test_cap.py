"""A pass that may start only so many tasks: the next ones go on where it stopped."""

from __future__ import annotations

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.snapshot import Snapshot
from tests.allocation.engine.builders import after, placed, queued, running, scenario

Fields = dict[str, object]


def two_pools(*tasks: object, **more: object) -> Snapshot:
    """Two pools of 2 GPUs; `dev` comes before `research`, which reserves 1."""
    fields: Fields = {
        "pools": [
            {"name": "a", "capacity": {"gpu": 2}, "profiles": ["one"]},
            {"name": "b", "capacity": {"gpu": 2}, "profiles": ["one"]},
        ],
        "profiles": [{"name": "one", "request": {"gpu": 1}, "pools": ["a", "b"]}],
        "policies": [
            {"name": "dev", "profiles": ["one"]},
            {"name": "research", "reserved": {"gpu": 1}, "profiles": ["one"]},
        ],
        "tasks": list(tasks),
    }
    return scenario(**{**fields, **more})


TASKS = [
    queued("d1", "dev", "one", 1),
    queued("d2", "dev", "one", 2),
    queued("d3", "dev", "one", 3),
    queued("r1", "research", "one", 4),
]


@pytest.mark.parametrize("over_quota", ["priority", "fair_share"])
def test_passes_with_a_cap_come_to_what_one_without_decides(over_quota: str) -> None:
    snapshot = two_pools(*TASKS, settings={"preemption": "none", "over_quota": over_quota})
    want = placed(decide(snapshot))

    steps = []
    for _ in range(4):
        plan = decide(snapshot, at_most=1)
        steps.append(placed(plan))
        snapshot = after(snapshot, plan)

    assert [list(step) for step in steps] == [["r1"], ["d1"], ["d2"], ["d3"]]
    assert {task: pool for step in steps for task, pool in step.items()} == want


def test_who_was_left_over_waits_and_holds_nothing() -> None:
    plan = decide(two_pools(*TASKS), at_most=2)

    assert placed(plan) == {"r1": "a", "d1": "a"}
    assert [(wait.tasks, wait.count) for wait in plan.waiting] == [(("d2", "d3"), 2)]


def test_no_more_is_reclaimed_than_may_start() -> None:
    held = [running(f"h{number}", "dev", "one", pool) for number, pool in enumerate("aabb")]
    claims = [queued(f"r{number}", "research", "one", number) for number in range(4)]
    snapshot = two_pools(
        *held,
        *claims,
        policies=[
            {"name": "dev", "profiles": ["one"]},
            {"name": "research", "reserved": {"gpu": 4}, "profiles": ["one"]},
        ],
        settings={"preemption": "reclaim"},
    )

    plan = decide(snapshot, at_most=3)

    assert len(plan.placed) == 3
    assert len(plan.preempted) == 3


def test_in_a_strict_policy_the_earlier_task_is_not_the_one_left_over() -> None:
    snapshot = two_pools(
        queued("late", "dev", "one", 2),
        queued("early", "dev", "two", 1),
        pools=[{"name": "a", "capacity": {"gpu": 4}, "profiles": ["one", "two"]}],
        profiles=[
            {"name": "one", "request": {"gpu": 1}, "pools": ["a"]},
            {"name": "two", "request": {"gpu": 1}, "pools": ["a"]},
        ],
        policies=[{"name": "dev", "strict": True, "profiles": ["one", "two"]}],
    )

    assert placed(decide(snapshot, at_most=1)) == {"early": "a"}


def test_a_cap_of_nothing_decides_nothing() -> None:
    assert placed(decide(two_pools(*TASKS), at_most=0)) == {}
