"""What only `make properties` found: each in the smallest state that shows it."""

from __future__ import annotations

from apps.allocation.engine import decide
from apps.allocation.engine.model.snapshot import Snapshot
from tests.allocation.engine.builders import placed, queued, running, scenario
from tests.allocation.engine.laws.bounds import nothing_is_exceeded
from tests.allocation.engine.laws.history import Moment, carried_out
from tests.allocation.engine.laws.repetition import (
    a_second_pass_decides_nothing,
    passes_come_to_rest,
)
from tests.allocation.engine.laws.service import (
    covered_work_gets_its_claims,
    nobody_envies_with_reason,
)


def pass_over(snapshot: Snapshot) -> Moment:
    return Moment(snapshot, decide(snapshot), decide)


def test_work_beyond_the_limit_takes_nothing_from_what_its_policy_covers() -> None:
    """It preempted `plain`, over quota, where `later` had the better rank."""
    snapshot = scenario(
        settings={"preemption": "priority"},
        pools=[{"name": "a", "capacity": {"gpu": 7}}],
        profiles=[{"name": "p", "request": {"gpu": 3}, "pools": ["a"]}],
        policies=[
            {"name": "first", "reserved": {"gpu": 4}, "profiles": ["p"]},
            {"name": "second", "reserved": {"gpu": 4}, "profiles": ["p"]},
        ],
        tasks=[
            queued("urgent", "second", "p", priority=1, exceed_limit=True),
            queued("plain", "second", "p"),
            queued("later", "first", "p"),
            running("r", "first", "p", "a", started=1),
        ],
    )

    moment = pass_over(snapshot)

    assert placed(moment.plan) == {"plain": "a"}
    nobody_envies_with_reason(moment)


def test_work_beyond_the_limit_does_not_keep_passes_going() -> None:
    """It preempted a covered task of its own policy, a better rank preempted it, and the covered
    task preempted that one: for ever.
    """
    beyond = {"priority": 1, "exceed_limit": True, "started": 10}
    snapshot = scenario(
        settings={"preemption": "rank"},
        pools=[{"name": "a", "capacity": {"gpu": 8}}],
        profiles=[
            {"name": "good", "request": {"gpu": 1}, "pools": ["a"]},
            {"name": "bad", "request": {"gpu": 1}, "pools": ["a"]},
        ],
        policies=[
            {"name": "dev", "reserved": {"gpu": 4}, "profiles": ["good", "bad"]},
            {"name": "research", "reserved": {"gpu": 4}, "profiles": ["good"]},
        ],
        tasks=[
            *[queued(f"t{number}", "research", "good") for number in range(5)],
            *[running(f"r{number}", "dev", "bad", "a", started=10) for number in range(4)],
            *[running(f"x{number}", "dev", "bad", "a", **beyond) for number in range(2)],
        ],
    )

    passes_come_to_rest(pass_over(snapshot))


def test_a_task_sits_where_those_are_whom_its_limit_makes_it_take() -> None:
    """Why law 4 speaks of it: `fixed` ranks above `other` in `a`, and cannot start there while `r`
    holds what one user may hold.
    """
    snapshot = scenario(
        settings={"preemption": "none"},
        pools=[
            {"name": "a", "capacity": {"gpu": 1}},
            {"name": "b", "capacity": {"gpu": 1}, "preemption": "reclaim"},
        ],
        profiles=[{"name": "p", "request": {"gpu": 1}, "pools": ["a", "b"]}],
        policies=[
            {"name": "dev", "reserved": {"gpu": 1}, "user_limit": {"gpu": 1}, "profiles": ["p"]},
            {"name": "low", "reserved": {"gpu": 0}, "profiles": ["p"]},
        ],
        tasks=[
            queued("other", "low", "p", user="u"),
            queued("fixed", "dev", "p", user="u", preemptible=False),
            running("r", "dev", "p", "b", user="u", started=1),
        ],
    )

    moment = pass_over(snapshot)

    assert placed(moment.plan) == {"fixed": "b", "other": "a"}
    nobody_envies_with_reason(moment)


def test_what_only_the_pool_counts_is_there_when_its_last_holder_is_gone() -> None:
    """`licensed` is on another node than `r`, and still needs the one licence that `r` has."""
    nodes = [{"name": "n1", "capacity": {"gpu": 2}}, {"name": "n2", "capacity": {"gpu": 3}}]
    snapshot = scenario(
        settings={"preemption": "reclaim"},
        pools=[{"name": "a", "capacity": {"gpu": 5, "license": 1}, "nodes": nodes}],
        profiles=[
            {"name": "plain", "request": {"gpu": 2}, "pools": ["a"]},
            {"name": "with", "request": {"gpu": 1, "license": 1}, "pools": ["a"]},
        ],
        policies=[
            {"name": "research", "reserved": {"gpu": 5}, "profiles": ["plain", "with"]},
            {"name": "dev", "reserved": {"gpu": 0}, "profiles": ["with"]},
        ],
        tasks=[
            queued("first", "research", "plain"),
            queued("second", "research", "plain"),
            queued("licensed", "research", "with"),
            running(
                *("r", "dev", "with", "a"),
                request={"gpu": 2, "license": 1},
                nodes=["n1"],
                devices=[[[0, "1"], [1, "1"]]],
                started=1,
            ),
        ],
    )

    moment = pass_over(snapshot)

    places = {one.task: (one.members[0].node, one.waits_for) for one in moment.plan.placed}
    assert places == {"first": ("n2", ()), "second": ("n1", ("r",)), "licensed": ("n2", ("r",))}
    nothing_is_exceeded(moment)


def test_who_waited_for_an_earlier_task_looks_for_victims_once_it_is_placed() -> None:
    """Strict order kept `fixed` out until `urgent` had started; it did not ask again."""
    snapshot = scenario(
        settings={"preemption": "reclaim"},
        pools=[{"name": "a", "capacity": {"gpu": 3}}],
        profiles=[{"name": "p", "request": {"gpu": 1}, "pools": ["a"]}],
        policies=[{"name": "team", "reserved": {"gpu": 2}, "strict": True, "profiles": ["p"]}],
        tasks=[
            queued("urgent", "team", "p", priority=1),
            queued("fixed", "team", "p", preemptible=False),
            running("r1", "team", "p", "a", started=1),
            running("r2", "team", "p", "a", started=2),
        ],
    )

    moment = pass_over(snapshot)

    assert placed(moment.plan) == {"urgent": "a", "fixed": "a"}
    a_second_pass_decides_nothing(moment)


def test_tasks_of_two_runs_take_by_turns_in_the_order_of_submission() -> None:
    """All of the first group preempted before the second: `last` got what was for `second`."""
    waits = [("first", 0, "u1"), ("second", 1, "u2"), ("last", 2, "u1")]
    snapshot = scenario(
        settings={"preemption": "rank"},
        pools=[{"name": "a", "capacity": {"gpu": 2}, "profiles": ["good", "bad"]}],
        profiles=[
            {"name": "good", "request": {"gpu": 1}, "pools": ["a"]},
            {"name": "bad", "request": {"gpu": 1}, "pools": ["a"]},
        ],
        policies=[{"name": "team", "user_limit": {"gpu": 9}, "profiles": ["good", "bad"]}],
        tasks=[
            *(queued(name, "team", "good", at, user=user) for name, at, user in waits),
            running("r1", "team", "bad", "a", started=1),
            running("r2", "team", "bad", "a", started=2),
        ],
    )

    moment = pass_over(snapshot)

    assert placed(moment.plan) == {"first": "a", "second": "a"}


def test_two_that_wait_for_one_victim_hold_no_more_than_its_gpus() -> None:
    """`left` has a GPU of `victim` that its beneficiary `taker` has no use for."""

    def on(*gpus: int) -> dict[str, object]:
        return {"nodes": ["n"], "devices": [[[gpu, "1"] for gpu in gpus]], "started": 1}

    leaving = {"state": "stopping", "for": "taker"}
    snapshot = scenario(
        pools=[
            {
                "name": "a",
                "capacity": {"gpu": 5},
                "nodes": [
                    {"name": "n", "capacity": {"gpu": 3}},
                    {"name": "empty", "capacity": {"gpu": 2}, "model": "other"},
                ],
            }
        ],
        profiles=[{"name": "p", "request": {"gpu": 1}, "pools": ["a"]}],
        policies=[{"name": "team", "reserved": {"gpu": 4}, "profiles": ["p"]}],
        tasks=[
            running("victim", "team", "p", "a", request={"gpu": 2}, **on(0, 1), **leaving),
            running("taker", "team", "p", "a", **on(0)),
            running("left", "team", "p", "a", **on(1)),
            queued("one", "team", "p"),
            queued("two", "team", "p"),
        ],
    )

    moment = pass_over(snapshot)

    assert placed(moment.plan) == {"one": "a", "two": "a"}
    assert "n" in {member.node for one in moment.plan.placed for member in one.members}
    nothing_is_exceeded(moment)


def test_what_this_pass_placed_is_taken_before_what_runs() -> None:
    """Why law 6 counts it: `small` makes dev over, and is the worst of its tasks; with it gone
    dev covers the others, and the GPU that it had is not enough for `t`.
    """
    snapshot = scenario(
        now=100,
        settings={"preemption": "reclaim"},
        pools=[{"name": "a", "capacity": {"gpu": 5}}],
        profiles=[
            {"name": name, "request": {"gpu": gpus}, "pools": ["a"]}
            for name, gpus in (("p1", 1), ("p2", 2))
        ],
        policies=[
            {"name": "research", "reserved": {"gpu": 4}, "profiles": ["p2"]},
            {"name": "dev", "reserved": {"gpu": 4}, "profiles": ["p1", "p2"]},
        ],
        tasks=[
            queued("t", "research", "p2"),
            queued("small", "dev", "p1"),
            running("r1", "dev", "p2", "a", started=1),
            running("r2", "dev", "p2", "a", started=1),
        ],
    )

    moment = pass_over(snapshot)

    assert placed(moment.plan) == {"small": "a"}
    assert moment.plan.preempted == ()
    covered_work_gets_its_claims(moment)


def test_a_second_pass_may_move_what_the_first_has_placed() -> None:
    """Why law 7 speaks of it: of two tasks for `n2` alone, one takes the place of `r`, which moves;
    `any` has only just been placed there.
    """
    snapshot = scenario(
        settings={"preemption": "none", "consolidation": True},
        pools=[
            {
                "name": "a",
                "capacity": {"gpu": 6},
                "nodes": [
                    {"name": "n1", "capacity": {"gpu": 4}, "model": "B"},
                    {"name": "n2", "capacity": {"gpu": 2}, "model": "A"},
                ],
            }
        ],
        profiles=[
            {"name": "all", "request": {"gpu": 1}, "pools": ["a"]},
            {"name": "on_a", "request": {"gpu": 1}, "pools": ["a"], "models": ["A"]},
        ],
        policies=[
            {"name": "first", "reserved": {"gpu": 4}, "profiles": ["on_a"]},
            {"name": "second", "reserved": {"gpu": 4}, "profiles": ["all"]},
        ],
        tasks=[
            queued("any", "second", "all"),
            queued("one", "first", "on_a"),
            queued("two", "first", "on_a"),
            running("r", "second", "all", "a", nodes=["n2"], devices=[[[0, "1"]]], started=1),
        ],
    )

    moment = pass_over(snapshot)
    second = decide(carried_out(snapshot, moment.plan))

    assert placed(moment.plan) == {"any": "a", "one": "a"}
    assert [(one.task, one.beneficiary) for one in second.moved] == [("any", "two")]
    a_second_pass_decides_nothing(moment)


def test_strict_order_may_serve_others_before_what_is_reserved() -> None:
    """Why law 4 speaks of it: `one` and `two` are covered, and come after `first`, which is over
    quota and so served after `other`, which is borrowed.
    """
    snapshot = scenario(
        pools=[{"name": "a", "capacity": {"cpu": 2, "gpu": 1}}],
        profiles=[{"name": "p", "request": {"cpu": 1}, "pools": ["a"]}],
        policies=[
            {"name": "dev", "reserved": {"cpu": 2, "gpu": 0}, "strict": True, "profiles": ["p"]},
            {"name": "top", "reserved": {"cpu": 1}},
            {"name": "team", "parent": "top", "reserved": {"cpu": 0}, "profiles": ["p"]},
        ],
        tasks=[
            queued("other", "team", "p"),
            queued("first", "dev", "p", request={"gpu": 1}),
            queued("one", "dev", "p", 1),
            queued("two", "dev", "p", 2),
        ],
    )

    moment = pass_over(snapshot)

    assert placed(moment.plan) == {"other": "a", "first": "a", "one": "a"}
    nobody_envies_with_reason(moment)
