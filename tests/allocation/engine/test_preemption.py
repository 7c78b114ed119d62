"""Preemption, and what drains: tables of single rules."""

from __future__ import annotations

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.plan import Plan
from apps.allocation.engine.model.snapshot import Id, Snapshot
from tests.allocation.engine.builders import after, placed, queued, running, scenario

Fields = dict[str, object]


def preempted(plan: Plan) -> dict[Id, Id]:
    return {one.task: one.beneficiary for one in plan.preempted}


def two_teams(
    *tasks: object, level: str, left: Fields | None = None, right: Fields | None = None
) -> Snapshot:
    """One pool of 4 GPUs; `left` reserves them all, `right` nothing."""
    return scenario(
        settings={"preemption": level},
        now=100,
        pools=[{"name": "a", "capacity": {"gpu": 4}}],
        profiles=[
            {"name": "p1", "request": {"gpu": 1}, "pools": ["a"]},
            {"name": "p4", "request": {"gpu": 4}, "pools": ["a"]},
        ],
        policies=[
            {"name": "left", "reserved": {"gpu": 4}, "profiles": ["p1", "p4"], **(left or {})},
            {"name": "right", "reserved": {"gpu": 0}, "profiles": ["p1", "p4"], **(right or {})},
        ],
        tasks=list(tasks),
    )


OVER = running("r", "right", "p4", "a", started=5)
CLAIM = queued("t", "left", "p4", 9)


@pytest.mark.parametrize("level", ["reclaim", "priority", "rank"])
def test_a_reservation_reclaims_what_others_use_over_quota(level: str) -> None:
    plan = decide(two_teams(CLAIM, OVER, level=level))

    assert preempted(plan) == {"r": "t"}
    assert placed(plan) == {"t": "a"}
    assert plan.placed[0].waits_for == ("r",)


def test_nothing_is_taken_where_preemption_is_none() -> None:
    plan = decide(two_teams(CLAIM, OVER, level="none"))

    assert preempted(plan) == {}
    assert placed(plan) == {}


def test_a_pool_may_say_otherwise_than_the_settings() -> None:
    snapshot = two_teams(CLAIM, OVER, level="none")
    pools = [{"name": "a", "capacity": {"gpu": 4}, "preemption": "reclaim"}]
    own = scenario(
        settings={"preemption": "none"},
        pools=pools,
        profiles=[{"name": "p4", "request": {"gpu": 4}, "pools": ["a"]}],
        policies=[
            {"name": "left", "reserved": {"gpu": 4}, "profiles": ["p4"]},
            {"name": "right", "profiles": ["p4"]},
        ],
        tasks=[CLAIM, OVER],
    )

    assert preempted(decide(snapshot)) == {}
    assert preempted(decide(own)) == {"r": "t"}


@pytest.mark.parametrize(
    ("victim", "right"),
    [
        pytest.param({"preemptible": False}, {"reserved": {"gpu": 0}}, id="not preemptible"),
        pytest.param({}, {"queues": {"p4": {"min_runtime": 96}}}, id="too new"),
        pytest.param({"preemptions": 2}, {"queues": {"p4": {"max_preemptions": 2}}}, id="often"),
        pytest.param({}, {"reserved": {"gpu": 4}}, id="within its reservation"),
        pytest.param({"state": "stopping"}, {}, id="stopping already"),
    ],
)
def test_protected_work_stays(victim: Fields, right: Fields) -> None:
    work = running("r", "right", "p4", "a", **{"started": 5, **victim})

    plan = decide(two_teams(CLAIM, work, level="reclaim", right=right))

    assert preempted(plan) == {}


def test_old_enough_work_is_no_longer_protected() -> None:
    right: Fields = {"queues": {"p4": {"min_runtime": 95}}}

    plan = decide(two_teams(CLAIM, OVER, level="reclaim", right=right))

    assert preempted(plan) == {"r": "t"}


def test_only_as_much_is_taken_as_is_needed() -> None:
    tasks = [running(f"r{number}", "right", "p1", "a", started=number) for number in range(4)]

    plan = decide(two_teams(queued("t", "left", "p1", 9), *tasks, level="reclaim"))

    assert preempted(plan) == {"r3": "t"}


def test_a_recent_checkpoint_is_the_cheaper_victim() -> None:
    tasks = [
        running("old", "right", "p1", "a", started=1, checkpointed=99),
        *[running(f"r{number}", "right", "p1", "a", started=10 + number) for number in range(3)],
    ]

    plan = decide(two_teams(queued("t", "left", "p1", 9), *tasks, level="reclaim"))

    assert preempted(plan) == {"old": "t"}


@pytest.mark.parametrize(
    ("level", "want"),
    [pytest.param("reclaim", {}, id="reclaim"), pytest.param("priority", {"r": "t"}, id="higher")],
)
def test_own_lower_work_gives_way_from_the_level_priority_on(
    level: str, want: dict[str, str]
) -> None:
    low = running("r", "left", "p4", "a", started=1)

    plan = decide(two_teams(queued("t", "left", "p4", 9, priority=5), low, level=level))

    assert preempted(plan) == want


@pytest.mark.parametrize(
    ("level", "want"),
    [pytest.param("priority", {}, id="priority"), pytest.param("rank", {"r": "t"}, id="rank")],
)
def test_a_better_rank_takes_over_quota_work_at_the_level_rank_only(
    level: str, want: dict[str, str]
) -> None:
    left: Fields = {"reserved": {"gpu": 0}}

    plan = decide(two_teams(CLAIM, OVER, level=level, left=left))

    assert preempted(plan) == want


def test_a_later_submission_alone_takes_nothing() -> None:
    first = running("r", "left", "p4", "a", submitted=50, started=60)

    plan = decide(two_teams(CLAIM, first, level="rank", left={"reserved": {"gpu": 0}}))

    assert preempted(plan) == {}


def test_victims_and_their_taker_count_once_while_they_drain() -> None:
    snapshot = two_teams(CLAIM, queued("u", "left", "p1", 10), OVER, level="reclaim")
    draining = after(snapshot, decide(snapshot))

    plan = decide(draining)

    assert placed(plan) == {}
    assert preempted(plan) == {}
    shortage = plan.waiting[0].reasons[0].details[0]
    assert shortage.key == "gpu"


def test_capacity_that_a_larger_victim_leaves_is_given_out_once() -> None:
    smaller = queued("t", "left", "p1", 9)
    snapshot = two_teams(smaller, OVER, level="reclaim")

    second = decide(after(snapshot, decide(snapshot)))
    others = [queued(f"u{number}", "left", "p1", 20 + number) for number in range(5)]
    drained = two_teams(
        *others,
        running("t", "left", "p1", "a", started=100),
        running("r", "right", "p4", "a", state="stopping", **{"for": "t"}),
        level="reclaim",
    )

    assert placed(second) == {}
    assert placed(decide(drained)) == {}


def test_work_that_the_pass_adds_may_make_a_policy_over_and_cost_it_running_work() -> None:
    """The policy covers all its work before the pass, and loses only while it is over."""
    snapshot = scenario(
        settings={"preemption": "rank"},
        pools=[
            {"name": "a", "capacity": {"gpu": 1}},
            {"name": "b", "capacity": {"gpu": 1}},
        ],
        profiles=[
            {"name": "p1", "request": {"gpu": 1}, "pools": ["a"]},
            {"name": "p2", "request": {"gpu": 1}, "pools": ["b"]},
        ],
        policies=[
            {"name": "left", "reserved": {"gpu": 1}, "profiles": ["p1"]},
            {"name": "right", "reserved": {"gpu": 1}, "profiles": ["p1", "p2"]},
        ],
        tasks=[
            running("r", "right", "p1", "a", started=1),
            queued("over", "right", "p2", 2),
            queued("t", "left", "p1", 3),
        ],
    )

    plan = decide(snapshot)

    assert placed(plan) == {"over": "b", "t": "a"}
    assert preempted(plan) == {"r": "t"}


def shared(
    *tasks: object, left: Fields, right: Fields, request: Fields, level: str = "reclaim"
) -> Snapshot:
    """One pool of 4 GPUs under fair shares; neither team reserves any."""
    return scenario(
        settings={"preemption": level, "over_quota": "fair_share"},
        pools=[{"name": "a", "capacity": {"gpu": 4}}],
        profiles=[{"name": "p1", "request": request, "pools": ["a"]}],
        policies=[
            {"name": "left", "profiles": ["p1"], **left},
            {"name": "right", "profiles": ["p1"], **right},
        ],
        tasks=list(tasks),
    )


@pytest.mark.parametrize("level", ["reclaim", "rank"])
def test_an_infinite_share_is_not_less_than_another(level: str) -> None:
    """Else two such teams would take the same capacity from one another for ever."""
    tasks = [running(f"r{number}", "right", "p1", "a", started=1) for number in range(4)]
    snapshot = shared(
        *tasks,
        queued("t", "left", "p1", 2),
        left={"weight": 0},
        right={"weight": 0},
        request={"gpu": 1},
        level=level,
    )

    assert preempted(decide(snapshot)) == {}


def test_nobody_has_a_share_of_what_no_pool_counts() -> None:
    tasks = [running(f"r{number}", "right", "p1", "a", started=number) for number in range(4)]
    snapshot = shared(
        *tasks, queued("t", "left", "p1", 9), left={}, right={}, request={"gpu": 1, "cpu": 4}
    )

    assert preempted(decide(snapshot)) == {"r3": "t"}
