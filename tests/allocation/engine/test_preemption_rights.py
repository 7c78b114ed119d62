"""Which task may preempt which, and which first: the sentences of docs/allocation.md one by one."""

from __future__ import annotations

from typing import Any

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.snapshot import Snapshot
from tests.allocation.engine.builders import placed, preempted, queued, running, scenario

Fields = dict[str, Any]


def policy(name: str, reserved: int | None, *profiles: str, **more: object) -> Fields:
    fields: Fields = {"name": name, "profiles": list(profiles), **more}
    return fields if reserved is None else {**fields, "reserved": {"gpu": reserved}}


def one_pool(
    gpus: int, policies: list[Fields], *tasks: object, level: str = "reclaim", **settings: object
) -> Snapshot:
    """One pool; profile `p3` takes 3 GPUs, and so on, the largest first in the pool."""
    sizes = (4, 3, 2, 1)
    return scenario(
        settings={"preemption": level, **settings},
        now=100,
        pools=[
            {"name": "a", "capacity": {"gpu": gpus}, "profiles": [f"p{size}" for size in sizes]}
        ],
        profiles=[{"name": f"p{size}", "request": {"gpu": size}, "pools": ["a"]} for size in sizes],
        policies=policies,
        tasks=list(tasks),
    )


def family(*tasks: object, north: int, south: int, level: str = "reclaim") -> Snapshot:
    """Departments `north` (teams `n1`, `n2`) and `south` (team `s1`); each team reserves 1."""
    return one_pool(
        4,
        [
            policy("north", north),
            policy("south", south),
            policy("n1", 1, "p1", "p2", parent="north"),
            policy("n2", 1, "p1", "p2", parent="north"),
            policy("s1", 1, "p1", "p2", parent="south"),
        ],
        *tasks,
        level=level,
    )


def test_paths_that_part_below_a_department_are_judged_there() -> None:
    """`north` covers everything: between its teams only their own reservations count."""
    full = [running(f"x{number}", "n2", "p1", "a", started=number) for number in range(4)]

    plan = decide(family(*full, queued("t", "n1", "p1", 9), north=4, south=0))

    assert preempted(plan) == {"x3": "t"}


def test_a_department_within_its_reservation_loses_nothing_to_another() -> None:
    full = [running(f"x{number}", "n2", "p1", "a", started=number) for number in range(4)]

    plan = decide(family(*full, queued("t", "s1", "p1", 9), north=4, south=2))

    assert preempted(plan) == {}


def test_every_policy_of_the_victims_path_must_be_over() -> None:
    """`north` is over by 2, but `n1` covers what it runs: only `n2` loses."""
    full = [
        running("safe", "n1", "p1", "a", started=50),
        *[running(f"x{number}", "n2", "p1", "a", started=number) for number in range(3)],
    ]

    plan = decide(family(*full, queued("t", "s1", "p1", 9), north=2, south=2))

    assert preempted(plan) == {"x2": "t"}


def test_a_team_that_is_over_takes_with_the_right_of_its_department() -> None:
    """Where the paths part `south` covers the task, whatever its team uses."""
    full = [
        running("s", "s1", "p1", "a", started=1),
        *[running(f"x{number}", "n2", "p1", "a", started=number) for number in range(3)],
    ]

    plan = decide(family(*full, queued("t", "s1", "p1", 9), north=1, south=2))

    assert preempted(plan) == {"x2": "t"}


def test_work_of_a_policy_that_was_given_children_is_judged_by_that_policy() -> None:
    over = one_pool(
        2,
        [
            policy("dept", 2),
            policy("team", 2, "p1", "p2", parent="dept"),
            policy("other", 0, "p1"),
        ],
        running("x", "dept", "p1", "a", started=1),
        running("y", "dept", "p1", "a", started=2),
        queued("t", "team", "p1", 9),
    )

    assert preempted(decide(over)) == {}


def test_a_policy_back_at_its_reservation_is_safe() -> None:
    """Of the 3 that `right` runs it may lose 2; the rest comes from `third`."""
    plan = decide(
        one_pool(
            4,
            [policy("left", 4, "p3"), policy("right", 1, "p1"), policy("third", 0, "p1")],
            *[running(f"r{number}", "right", "p1", "a", started=number) for number in range(3)],
            running("z", "third", "p1", "a", started=0),
            queued("t", "left", "p3", 9),
        )
    )

    assert preempted(plan) == {"z": "t", "r2": "t", "r1": "t"}


def test_nobody_is_touched_where_all_victims_together_make_no_free_capacity() -> None:
    plan = decide(
        one_pool(
            4,
            [policy("left", 4, "p3"), policy("right", 2, "p1")],
            *[running(f"r{number}", "right", "p1", "a", started=number) for number in range(4)],
            queued("t", "left", "p3", 9),
        )
    )

    assert preempted(plan) == {}
    assert placed(plan) == {}


def test_work_that_must_not_be_preempted_takes_own_lower_work_at_any_level() -> None:
    plan = decide(
        one_pool(
            2,
            [policy("left", 2, "p2", "p1")],
            running("own", "left", "p1", "a", started=1),
            running("own2", "left", "p1", "a", started=2),
            queued("t", "left", "p2", 9, preemptible=False),
        )
    )

    assert preempted(plan) == {"own": "t", "own2": "t"}


@pytest.mark.parametrize(
    "own",
    [
        pytest.param({"priority": 1}, id="a higher priority"),
        pytest.param({"preemptible": False}, id="not preemptible itself"),
    ],
)
def test_it_takes_nothing_that_stands_above_it(own: Fields) -> None:
    plan = decide(
        one_pool(
            2,
            [policy("left", 2, "p2")],
            running("own", "left", "p2", "a", started=1, **own),
            queued("t", "left", "p2", 9, preemptible=False),
        )
    )

    assert preempted(plan) == {}


@pytest.mark.parametrize(
    ("reserved", "want"),
    [
        pytest.param(2, {"own": "t"}, id="within the reservation"),
        pytest.param(1, {}, id="larger than the reservation"),
    ],
)
def test_a_higher_priority_takes_own_work_for_what_the_reservation_holds(
    reserved: int, want: dict[str, str]
) -> None:
    plan = decide(
        one_pool(
            2,
            [policy("left", reserved, "p2")],
            running("own", "left", "p2", "a", started=1),
            queued("t", "left", "p2", 9, priority=1),
            level="priority",
        )
    )

    assert preempted(plan) == want


def test_a_limit_alone_is_a_reason_to_take_own_lower_work() -> None:
    plan = decide(
        one_pool(
            4,
            [policy("left", 2, "p2", limit={"gpu": 2})],
            running("own", "left", "p2", "a", started=1),
            queued("t", "left", "p2", 9, priority=1),
            level="priority",
        )
    )

    assert preempted(plan) == {"own": "t"}
    assert placed(plan) == {"t": "a"}


def test_where_only_a_limit_is_short_others_lose_nothing() -> None:
    plan = decide(
        one_pool(
            4,
            [policy("left", 4, "p2", limit={"gpu": 2}), policy("right", 0, "p2")],
            running("own", "left", "p2", "a", started=1),
            running("r", "right", "p2", "a", started=1),
            queued("t", "left", "p2", 9, priority=1),
            level="priority",
        )
    )

    assert preempted(plan) == {"own": "t"}


@pytest.mark.parametrize(
    ("level", "want"),
    [pytest.param("priority", {}, id="priority"), pytest.param("rank", {"own": "t"}, id="rank")],
)
def test_the_level_rank_lets_over_quota_work_take_that_of_its_own_policy(
    level: str, want: dict[str, str]
) -> None:
    """Over-quota work of any policy, so also of its own, whatever the reservation holds."""
    plan = decide(
        one_pool(
            2,
            [policy("left", 0, "p2")],
            running("own", "left", "p2", "a", started=1),
            queued("t", "left", "p2", 9, priority=1),
            level=level,
        )
    )

    assert preempted(plan) == want


def test_a_rank_takes_nothing_that_a_policy_covers() -> None:
    plan = decide(
        one_pool(
            2,
            [policy("left", 0, "p2"), policy("right", 2, "p1")],
            running("r", "right", "p1", "a", started=1),
            running("r2", "right", "p1", "a", started=1),
            queued("t", "left", "p2", 9),
            level="rank",
        )
    )

    assert preempted(plan) == {}


def test_others_work_goes_before_own() -> None:
    plan = decide(
        one_pool(
            4,
            [policy("left", 3, "p2", "p1"), policy("right", 0, "p2")],
            running("own", "left", "p1", "a", started=50),
            running("own2", "left", "p1", "a", started=60, priority=9),
            running("r", "right", "p2", "a", started=1, priority=9),
            queued("t", "left", "p2", 9, priority=5),
            level="priority",
        )
    )

    assert preempted(plan) == {"own": "t", "r": "t"}


@pytest.mark.parametrize(
    ("first", "second", "want"),
    [
        pytest.param({"priority": 1}, {"started": 1}, "y", id="the lowest priority"),
        pytest.param({"started": 9}, {"started": 8}, "x", id="started last"),
        pytest.param({"started": 9}, {"started": 1, "checkpointed": 10}, "y", id="checkpoint"),
        pytest.param({}, {}, "x", id="the smallest id"),
    ],
)
def test_the_worst_goes_first(first: Fields, second: Fields, want: str) -> None:
    plan = decide(
        one_pool(
            4,
            [policy("left", 4, "p2"), policy("right", 0, "p2")],
            running("x", "right", "p2", "a", **{"started": 5, **first}),
            running("y", "right", "p2", "a", **{"started": 5, **second}),
            queued("t", "left", "p2", 9),
        )
    )

    assert preempted(plan) == {want: "t"}


def test_the_policy_with_the_worst_place_goes_before_what_loses_least() -> None:
    plan = decide(
        one_pool(
            4,
            [policy("left", 4, "p2"), policy("mid", 0, "p2"), policy("last", 0, "p2")],
            running("x", "mid", "p2", "a", started=90),
            running("y", "last", "p2", "a", started=1),
            queued("t", "left", "p2", 9),
        )
    )

    assert preempted(plan) == {"y": "t"}


def test_work_beyond_a_limit_by_permission_may_always_be_taken() -> None:
    """It is over quota however much its policy reserves."""
    plan = decide(
        one_pool(
            2,
            [policy("left", 2, "p2"), policy("right", 4, "p2")],
            running("x", "right", "p2", "a", started=1, exceed_limit=True),
            queued("t", "left", "p2", 9),
        )
    )

    assert preempted(plan) == {"x": "t"}


def test_a_removed_policy_loses_first() -> None:
    plan = decide(
        one_pool(
            4,
            [
                policy("left", 4, "p2"),
                policy("gone", 4, "p2", removed=True),
                policy("last", 0, "p2"),
            ],
            running("x", "gone", "p2", "a", started=1, priority=9),
            running("y", "last", "p2", "a", started=90),
            queued("t", "left", "p2", 9),
        )
    )

    assert preempted(plan) == {"x": "t"}


def test_a_strict_policy_takes_nothing_back_for_a_later_task() -> None:
    plan = decide(
        one_pool(
            4,
            [policy("left", 2, "p4", "p2", strict=True), policy("right", 0, "p2")],
            running("x", "right", "p2", "a", started=1),
            running("y", "right", "p2", "a", started=1),
            queued("first", "left", "p4", 1),
            queued("t", "left", "p2", 9),
        )
    )

    assert preempted(plan) == {}
    assert placed(plan) == {}


@pytest.mark.parametrize(
    ("used", "want"),
    [
        pytest.param(3, {"x2": "t"}, id="less than the other has"),
        pytest.param(1, {}, id="as much as the other has"),
    ],
)
def test_under_fair_shares_the_smaller_share_takes(used: int, want: dict[str, str]) -> None:
    plan = decide(
        one_pool(
            used,
            [policy("left", 0, "p1"), policy("right", 0, "p1")],
            *[running(f"x{number}", "right", "p1", "a", started=number) for number in range(used)],
            queued("t", "left", "p1", 9),
            over_quota="fair_share",
        )
    )

    assert preempted(plan) == want
