"""Faults around pools that do not backfill, each in the smallest state that shows it."""

from __future__ import annotations

from apps.allocation.engine import decide
from tests.allocation.engine.builders import after, placed, queued, scenario
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
