"""Faults that the laws found, each in the smallest state that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.scenarios import snapshot_from_json, snapshot_to_json
from tests.allocation.engine.builders import placed, queued, running, scenario
from tests.allocation.engine.laws import BY_NAME, LAWS
from tests.allocation.engine.laws.history import Moment, carried_out
from tests.allocation.engine.laws.repetition import (
    a_second_pass_decides_nothing,
    passes_come_to_rest,
)
from tests.allocation.engine.laws.service import (
    covered_work_gets_its_claims,
    strict_order_holds,
)

# Each broke the law whose name it has; all of it together does it.
FOUND = sorted((Path(__file__).parent / "found").glob("*.json"))


def pass_over(snapshot: Snapshot) -> Moment:
    return Moment(snapshot, decide(snapshot), decide)


def test_a_policy_whose_victims_still_stop_is_not_over_because_of_them() -> None:
    """Dev is back at its reservation once `d2` stops; the next pass preempted `d1` as well."""
    profiles = [{"name": "p", "request": {"gpu": 2}, "pools": ["a"]}]
    snapshot = scenario(
        settings={"preemption": "reclaim", "over_quota": "fair_share"},
        pools=[{"name": "a", "capacity": {"gpu": 4}}],
        profiles=profiles,
        policies=[
            {"name": "dev", "reserved": {"gpu": 2}, "weight": 0, "profiles": ["p"]},
            {"name": "research", "reserved": {"gpu": 1}, "profiles": ["p"]},
        ],
        tasks=[
            queued("t1", "research", "p", 0),
            queued("t2", "research", "p", 1),
            running("d1", "dev", "p", "a", started=1),
            running("d2", "dev", "p", "a", started=2),
        ],
    )

    moment = pass_over(snapshot)

    assert [one.task for one in moment.plan.preempted] == ["d2"]
    a_second_pass_decides_nothing(moment)


def test_a_better_rank_takes_nothing_that_its_team_covers() -> None:
    """Low covers `t` and reclaims from `r` of high, whose better place preempted `t`, and so on."""
    snapshot = scenario(
        settings={"preemption": "rank"},
        pools=[{"name": "a", "capacity": {"gpu": 2}}],
        profiles=[{"name": "p", "request": {"gpu": 2}, "pools": ["a"]}],
        policies=[
            {"name": "high", "parent": "top", "reserved": {"gpu": 1}, "profiles": ["p"]},
            {"name": "low", "parent": "top", "reserved": {"gpu": 2}, "profiles": ["p"]},
            {"name": "top", "reserved": {"gpu": 1}},
        ],
        tasks=[queued("t", "low", "p", 0), running("r", "high", "p", "a", started=1)],
    )

    moment = pass_over(snapshot)

    assert placed(moment.plan) == {"t": "a"}
    passes_come_to_rest(moment)


def test_a_task_that_asks_for_nothing_says_why_it_waits() -> None:
    """No node of the pool takes work; there was no key to name."""
    snapshot = scenario(
        pools=[
            {
                "name": "a",
                "capacity": {"gpu": 1},
                "nodes": [{"name": "n", "capacity": {"gpu": 1}, "schedulable": False}],
            }
        ],
        profiles=[{"name": "p", "request": {"gpu": 0}, "pools": ["a"]}],
        policies=[{"name": "dev", "profiles": ["p"]}],
        tasks=[queued("t", "dev", "p")],
    )

    waits = decide(snapshot).waiting

    assert [reason.code for reason in waits[0].reasons] == ["capacity"]


def test_worst_first_may_find_no_free_capacity_where_another_order_would() -> None:
    """Why law 6 speaks of an order: once `small` is a victim dev is covered, `large` is safe."""
    profiles = [
        {"name": name, "request": {"gpu": gpus}, "pools": ["a"]}
        for name, gpus in (("p1", 1), ("p4", 4))
    ]
    both = ["p1", "p4"]
    snapshot = scenario(
        settings={"preemption": "reclaim"},
        pools=[{"name": "a", "capacity": {"gpu": 5}}],
        profiles=profiles,
        policies=[
            {"name": "dev", "reserved": {"gpu": 4}, "profiles": both},
            {"name": "research", "reserved": {"gpu": 4}, "profiles": both},
        ],
        tasks=[
            queued("t", "research", "p4"),
            running("large", "dev", "p4", "a", started=1),
            running("small", "dev", "p1", "a", started=2),
        ],
    )

    moment = pass_over(snapshot)

    assert (moment.plan.placed, moment.plan.preempted) == ((), ())
    covered_work_gets_its_claims(moment)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_state_that_once_broke_a_law_keeps_all_of_them(path: Path) -> None:
    assert path.stem in BY_NAME
    moment = pass_over(snapshot_from_json(json.loads(path.read_text(encoding="utf-8"))))

    for law in LAWS:
        law.check(moment)


def test_the_rest_of_a_group_may_start_where_the_one_that_was_displaced_did_not() -> None:
    """`t` takes the capacity that `o` got in `a`: what is left of the limit serves `o` in `c`."""
    both = {"request": {"gpu": 2}, "pools": ["a", "c"]}
    snapshot = scenario(
        settings={"preemption": "reclaim"},
        pools=[
            {"name": "a", "capacity": {"gpu": 4}},
            {"name": "b", "capacity": {"gpu": 2}},
            {"name": "c", "capacity": {"gpu": 2}},
        ],
        profiles=[
            {"name": "p4", "request": {"gpu": 4}, "pools": ["a"]},
            {"name": "p2", **both},
            {"name": "q2", "request": {"gpu": 2}, "pools": ["b"]},
        ],
        policies=[
            {"name": "left", "reserved": {"gpu": 4}, "profiles": ["p4"]},
            {"name": "right", "reserved": {"gpu": 2}, "profiles": ["p2", "q2"]},
            {"name": "third", "limit": {"gpu": 2}, "profiles": ["p2"]},
        ],
        tasks=[
            running("r", "right", "p2", "a", started=1),
            queued("t", "left", "p4", 5),
            queued("o", "third", "p2", 6),
            queued("o2", "third", "p2", 6),
            queued("x", "right", "q2", 7),
        ],
    )

    plan = decide(snapshot)

    assert placed(plan) == {"t": "a", "x": "b", "o": "c"}
    assert plan.displaced == ("o2",)


def test_only_the_next_pass_takes_what_one_has_given_to_a_strict_policy() -> None:
    """Why law 7 makes an exception: `t3` starts behind `t0`, which then must not wait after all.

    Once `t0` runs it blocks no task, and `t4`, which may not be preempted, takes its capacity.
    """
    profiles = [{"name": name, "request": {"gpu": 1}, "pools": ["a"]} for name in ("p1", "p2")]
    snapshot = scenario(
        settings={"preemption": "reclaim"},
        pools=[{"name": "a", "capacity": {"gpu": 2}, "profiles": ["p2", "p1"], "backfill": False}],
        profiles=profiles,
        policies=[
            {"name": "dev", "reserved": {"gpu": 2}, "strict": True, "profiles": ["p1", "p2"]},
        ],
        tasks=[
            queued("t0", "dev", "p1", 1),
            queued("t3", "dev", "p2", 9, preemptible=False),
            queued("t4", "dev", "p2", 9, preemptible=False),
        ],
    )

    moment = pass_over(snapshot)
    second = decide(carried_out(snapshot, moment.plan))

    assert placed(moment.plan) == {"t0": "a", "t3": "a"}
    assert moment.plan.displaced == ()
    assert [(one.task, one.beneficiary) for one in second.preempted] == [("t0", "t4")]
    strict_order_holds(moment)
    a_second_pass_decides_nothing(moment)


@pytest.mark.parametrize("over_quota", ["priority", "fair_share"])
@pytest.mark.parametrize(
    ("is_leaving", "want"),
    [
        pytest.param(True, [], id="it leaves, and no task takes its capacity"),
        pytest.param(False, ["d1"], id="it is moved, and will be there again"),
    ],
)
def test_work_that_leaves_anyway_is_no_reason_to_take_more(
    over_quota: str, want: list[str], *, is_leaving: bool
) -> None:
    """Its taker was aborted; Dev is back at its reservation once `d2` is gone."""
    snapshot = scenario(
        settings={"preemption": "reclaim", "over_quota": over_quota},
        pools=[{"name": "a", "capacity": {"gpu": 8}}],
        profiles=[{"name": "p", "request": {"gpu": 4}, "pools": ["a"]}],
        policies=[
            {"name": "dev", "reserved": {"gpu": 4}, "profiles": ["p"]},
            {"name": "research", "reserved": {"gpu": 4}, "profiles": ["p"]},
        ],
        tasks=[
            queued("t", "research", "p", 0),
            running("d1", "dev", "p", "a", started=1),
            running("d2", "dev", "p", "a", started=2, state="stopping", leaving=is_leaving),
        ],
    )

    plan = decide(snapshot)

    assert [one.task for one in plan.preempted] == want
    again = snapshot_from_json(json.loads(snapshot_to_json(snapshot)))
    assert [one.task for one in decide(again).preempted] == want
