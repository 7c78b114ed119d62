"""A pool that does not backfill: which tasks block which, as tables."""

from __future__ import annotations

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.snapshot import Snapshot
from tests.allocation.engine.builders import after, placed, queued, scenario

Fields = dict[str, object]

# Two tasks of 3 GPUs come before a small one of the same policy; the pool has 4.
LARGE = [queued("big1", "team", "large", 1), queued("big2", "team", "large", 2)]
SMALL = queued("little", "team", "small", 3)


def without_backfill(*tasks: object, team: Fields, other: Fields | None = None) -> Snapshot:
    """One pool of 4 GPUs that does not backfill and serves large work before small work."""
    return scenario(
        pools=[
            {
                "name": "a",
                "capacity": {"gpu": 4},
                "profiles": ["large", "small"],
                "backfill": False,
            }
        ],
        profiles=[
            {"name": "large", "request": {"gpu": 3}, "pools": ["a"]},
            {"name": "small", "request": {"gpu": "0.25"}, "pools": ["a"]},
        ],
        policies=[
            {"name": "team", "profiles": ["large", "small"], **team},
            {"name": "other", "profiles": ["large", "small"], **(other or {})},
        ],
        tasks=list(tasks),
    )


@pytest.mark.parametrize(
    "team",
    [
        pytest.param({"reserved": {"gpu": 4}}, id="it is over quota, the small one is reserved"),
        pytest.param({"reserved": {"gpu": 8}, "limit": {"gpu": 4}}, id="a limit holds it back"),
    ],
)
def test_who_is_no_candidate_of_the_tier_stands_in_nobodys_way(team: Fields) -> None:
    snapshot = without_backfill(*LARGE, SMALL, team=team)

    plan = decide(snapshot)

    assert placed(plan) == {"big1": "a", "little": "a"}
    assert placed(decide(after(snapshot, plan))) == {}


@pytest.mark.parametrize(
    "team",
    [
        pytest.param({"reserved": {"gpu": 8}}, id="both are reserved"),
        pytest.param({"reserved": {"gpu": 3}}, id="both are over quota"),
    ],
)
def test_nothing_passes_a_candidate_of_its_tier_that_found_no_free_capacity(team: Fields) -> None:
    snapshot = without_backfill(*LARGE, SMALL, team=team)

    plan = decide(snapshot)

    assert placed(plan) == {"big1": "a"}
    assert placed(decide(after(snapshot, plan))) == {}


def test_over_quota_work_does_not_pass_a_reserved_candidate_that_found_no_free_capacity() -> None:
    little = queued("little", "other", "small", 0)
    snapshot = without_backfill(
        *LARGE, little, team={"reserved": {"gpu": 8}}, other={"reserved": {"gpu": 0}}
    )

    plan = decide(snapshot)

    assert placed(plan) == {"big1": "a"}
    assert placed(decide(after(snapshot, plan))) == {}


def test_a_task_that_found_a_later_pool_stands_in_nobodys_way() -> None:
    snapshot = scenario(
        pools=[
            {
                "name": "a",
                "capacity": {"gpu": 4},
                "profiles": ["large", "small"],
                "backfill": False,
            },
            {"name": "b", "capacity": {"gpu": 3}, "profiles": ["large"]},
        ],
        profiles=[
            {"name": "large", "request": {"gpu": 3}, "pools": ["a", "b"]},
            {"name": "small", "request": {"gpu": 1}, "pools": ["a"]},
        ],
        policies=[
            {"name": "team", "reserved": {"gpu": 8}, "profiles": ["large", "small"]},
        ],
        tasks=[*LARGE, SMALL],
    )

    plan = decide(snapshot)

    assert placed(plan) == {"big1": "a", "big2": "b", "little": "a"}
    assert placed(decide(after(snapshot, plan))) == {}
