"""Faults around pools that do not backfill, each in the smallest state that shows it."""

from __future__ import annotations

from apps.allocation.engine import decide
from tests.allocation.engine.builders import after, placed, preempted, queued, running, scenario
from tests.allocation.engine.laws.history import Moment
from tests.allocation.engine.laws.service import nobody_envies_with_reason


def test_lower_priority_does_not_get_capacity_that_a_barrier_kept_from_higher() -> None:
    """`large2` goes on to `b`, so that `a` takes small work; `low` came before `high` there."""
    snapshot = scenario(
        pools=[
            {
                "name": "a",
                "capacity": {"gpu": 5},
                "profiles": ["large", "small"],
                "backfill": False,
            },
            {"name": "b", "capacity": {"gpu": 5}, "profiles": ["large", "small"]},
        ],
        profiles=[
            {"name": "large", "request": {"gpu": 4}, "pools": ["a", "b"]},
            {"name": "small", "request": {"gpu": 1}, "pools": ["a", "b"]},
        ],
        policies=[{"name": "team", "profiles": ["large", "small"]}],
        tasks=[
            queued("large1", "team", "large", 1),
            queued("large2", "team", "large", 2),
            queued("low", "team", "small", 3),
            queued("high", "team", "small", 4, priority=5),
        ],
    )

    plan = decide(snapshot)

    assert placed(plan) == {"large1": "a", "large2": "b", "high": "a", "low": "b"}
    nobody_envies_with_reason(Moment(snapshot, plan, decide))
    assert placed(decide(after(snapshot, plan))) == {}


def test_a_displaced_task_whose_group_is_placed_to_the_end_is_judged_by_itself() -> None:
    """`l1`'s tasks are placed, one is displaced for `gang`, and at the end it still fits."""

    def of(policy: str, task: str, gpu: float, started: int, **more: object) -> object:
        return running(task, policy, "f", "p", request={"gpu": gpu}, started=started, **more)

    small = [
        queued(f"small{number}", "l1", "f", 0, request={"gpu": 0.5}, priority=2)
        for number in range(3)
    ]
    snapshot = scenario(
        settings={"preemption": "rank"},
        now=100,
        pools=[{"name": "p", "capacity": {"gpu": 24}, "profiles": ["f"], "backfill": False}],
        profiles=[
            {"name": "f", "request": {"gpu": 1}, "pools": ["p"], "policies": ["l0", "l2", "l1"]}
        ],
        policies=[
            {"name": "l0", "profiles": ["f"]},
            {"name": "l1", "reserved": {"gpu": 4}, "profiles": ["f"]},
            {"name": "l2", "reserved": {"gpu": 11}, "profiles": ["f"]},
        ],
        tasks=[
            queued("gang", "l2", "f", 8, request={"gpu": 3}, replicas=2, priority=2),
            *small,
            queued("last", "l2", "f", 9, request={"gpu": 0.5}),
            of("l0", "r0", 3, 27),
            of("l0", "r1", 3, 11, preemptible=False),
            of("l0", "r2", 2, 26),
            of("l2", "r3", 3, 14),
            of("l1", "r5", 1, 12),
            of("l2", "r8", 3, 19),
            of("l1", "r9", 2, 7),
        ],
    )

    plan = decide(snapshot)

    assert set(placed(plan)) == {"gang", "small0", "small1", "small2", "last"}
    assert len(preempted(plan)) == 1
