"""A pass costs what its groups cost, however the tasks of different groups alternate in time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from apps.allocation.engine import Engine, decide, decision
from apps.allocation.engine.compile.compiled_snapshot import GroupState, ServingKey
from apps.allocation.engine.model.reasons import ReasonCode
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.engine.steps import offer
from tests.allocation.engine.builders import placed, queued, running, scenario

TASKS = 30


def alternating(*others: object, waiting: int = TASKS, **more: object) -> Snapshot:
    """Two queues of one policy, each first in a pool of its own, whose tasks come in turns."""
    return scenario(
        pools=[
            {"name": "a", "capacity": {"gpu": 4}, "profiles": ["x", "y"]},
            {"name": "b", "capacity": {"gpu": 4}, "profiles": ["y", "x"]},
        ],
        profiles=[
            {"name": "x", "request": {"gpu": 1}, "pools": ["a", "b"]},
            {"name": "y", "request": {"gpu": 1}, "pools": ["b", "a"]},
        ],
        policies=[{"name": "team", "profiles": ["x", "y"], **more}],
        tasks=[
            *[
                queued(f"{number:02d}", "team", "xy"[number % 2], number)
                for number in range(waiting)
            ],
            *others,
        ],
    )


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="without limits"),
        pytest.param({"limit": {"gpu": 5}}, id="with a limit that not all can have"),
    ],
)
def test_each_group_is_offered_as_one(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, int]
) -> None:
    units: list[offer.Offer] = []

    def make_offers(*arguments: object) -> list[offer.Offer]:
        found: list[offer.Offer] = offer.make_offers(*arguments)  # type: ignore[arg-type]  # as given
        units.extend(found)
        return found

    monkeypatch.setattr(decision, "make_offers", make_offers)

    decide(alternating(**more))

    # Twice: once all that may fit, then what fitted.
    assert 0 < len(units) <= 4


def test_a_full_pool_does_not_rank_every_task_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked: list[int] = []
    serving_key = GroupState.serving_key

    def counted(work: GroupState, pool: int, number: int) -> ServingKey:
        ranked.append(number)
        return serving_key(work, pool, number)

    monkeypatch.setattr(GroupState, "serving_key", counted)

    decide(alternating())

    assert max(ranked) <= 4


def test_under_a_cap_who_comes_first_starts_whatever_run_it_is_of() -> None:
    plan = decide(alternating(waiting=6), at_most=3)

    assert placed(plan) == {"00": "a", "01": "b", "02": "a"}


def test_under_a_cap_strict_order_holds_among_tasks_of_alternating_runs() -> None:
    """The pool would serve those first that may not be preempted."""
    fixed = {"preemptible": False}
    snapshot = scenario(
        pools=[{"name": "a", "capacity": {"gpu": 4}, "profiles": ["x"]}],
        profiles=[{"name": "x", "request": {"gpu": 1}, "pools": ["a"]}],
        policies=[{"name": "team", "reserved": {"gpu": 4}, "strict": True, "profiles": ["x"]}],
        tasks=[
            queued("0", "team", "x", 0, **fixed),
            queued("1", "team", "x", 1),
            queued("2", "team", "x", 2, **fixed),
            queued("3", "team", "x", 3, **fixed),
        ],
    )

    assert placed(decide(snapshot, at_most=3)) == {"0": "a", "1": "a", "2": "a"}


def test_who_comes_first_is_counted_again_once_more_wait() -> None:
    full = [running(f"old {pool}", "team", "x", pool, request={"gpu": 4}) for pool in "ab"]

    engine = Engine()
    outranked = [
        [
            (detail.pool, detail.count)
            for wait in engine.decide(alternating(*full, waiting=waiting)).waiting
            for reason in wait.reasons
            if reason.code is ReasonCode.OUTRANKED
            for detail in reason.details
        ]
        for waiting in (6, 8, 6)
    ]

    assert outranked[0] == outranked[2] == [("b", 3), ("a", 3)]
    assert outranked[1] == [("b", 4), ("a", 4)]


def calls_of_a_pass(snapshot: Snapshot) -> int:
    """Calls of Python functions while a pass decides."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        decide(snapshot)
    finally:
        sys.setprofile(before)
    return calls


def many_groups(groups: int) -> Snapshot:
    """So many groups of one queue, each of another priority."""
    return scenario(
        pools=[{"name": "a", "capacity": {"gpu": 4}, "profiles": ["x"]}],
        profiles=[{"name": "x", "request": {"gpu": 1}, "pools": ["a"]}],
        policies=[{"name": "team", "profiles": ["x"]}],
        tasks=[
            queued(f"{number:03d}", "team", "x", number, priority=-number)
            for number in range(groups)
        ],
    )


def test_twice_as_many_groups_in_a_queue_cost_twice_as_much() -> None:
    """Not four times: a member may enqueue tasks of very many priorities."""
    assert calls_of_a_pass(many_groups(400)) < 3 * calls_of_a_pass(many_groups(200))


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param(lambda _: {"gpu": 1}, id="of one size"),
        pytest.param(lambda number: {"gpu": 1, "cpu": 500 - number}, id="of different sizes"),
        pytest.param(lambda number: {"gpu": 1 if number else 5}, id="behind one that fits nowhere"),
    ],
)
def test_twice_as_many_groups_of_a_strict_policy_cost_twice_as_much(
    requests: Callable[[int], dict[str, int]],
) -> None:
    def strict(groups: int) -> Snapshot:
        return scenario(
            pools=[
                {"name": "a", "capacity": {"gpu": 4}, "profiles": ["x"]},
                {"name": "b", "capacity": {"gpu": 4}, "profiles": ["x"]},
            ],
            profiles=[{"name": "x", "request": {"gpu": 1}, "pools": ["a", "b"]}],
            policies=[{"name": "team", "strict": True, "profiles": ["x"]}],
            tasks=[
                queued(
                    f"{number:03d}",
                    "team",
                    "x",
                    number,
                    priority=-number,
                    request=requests(number),
                )
                for number in range(groups)
            ],
        )

    assert calls_of_a_pass(strict(400)) < 3 * calls_of_a_pass(strict(200))


def unused_reservation(
    groups: int,
    *,
    preemptible: Sequence[bool] = (False, True),
    first: Sequence[dict[str, object]] = (),
    last: Sequence[dict[str, object]] = (),
    sizes: Callable[[int], dict[str, object]] = lambda _: {},
    **pool: object,
) -> Snapshot:
    """So many groups of a policy whose reservation is larger than what is free."""
    return scenario(
        pools=[{"name": "a", "capacity": {"gpu": 12}, "profiles": ["x"], **pool}],
        profiles=[{"name": "x", "request": {"gpu": 1}, "pools": ["a"]}],
        policies=[
            {"name": "team", "reserved": {"gpu": 14}, "profiles": ["x"]},
            {"name": "other", "reserved": {"gpu": 4}, "profiles": ["x"]},
        ],
        tasks=[
            *first,
            *[
                queued(
                    f"{number:03d}",
                    "team",
                    "x",
                    number,
                    priority=-(number // len(preemptible)),
                    preemptible=preemptible[number % len(preemptible)],
                    **sizes(number),
                )
                for number in range(groups)
            ],
            *last,
        ],
    )


NODES = [{"name": "b1", "capacity": {"gpu": 8}}, {"name": "h1", "capacity": {"gpu": 4}}]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="of both kinds"),
        pytest.param({"preemptible": [True]}, id="preemptible"),
        pytest.param({"preemptible": [False]}, id="not preemptible"),
        pytest.param({"nodes": NODES}, id="on nodes"),
        pytest.param(
            {"nodes": NODES, "sizes": lambda _: {"request": {"gpu": 3}}},
            id="that no node has free, while the pool has",
        ),
        pytest.param({"backfill": False}, id="without backfill"),
        pytest.param(
            {"sizes": lambda number: {"request": {"gpu": 1, "cpu": 500 - number}}},
            id="of different sizes",
        ),
        pytest.param(
            {
                "preemptible": [True],
                "first": [queued(f"a{n}", "team", "x", n, priority=1) for n in range(11)],
                "last": [queued("z", "team", "x", 0, priority=-1000)],
                "sizes": lambda number: {"request": {"gpu": 2, "cpu": 500 - number}},
            },
            id="of different sizes before a smaller one that fits",
        ),
        pytest.param(
            {
                "capacity": {"gpu": 18},
                "nodes": [{"name": f"n{n}", "capacity": {"gpu": 3}} for n in range(6)],
                "preemptible": [True],
                "first": [
                    queued(f"a{n}", "team", "x", n, priority=1, request={"gpu": 2})
                    for n in range(6)
                ],
                "last": [queued("z", "other", "x", 0, priority=-1000)],
                "sizes": lambda number: {"request": {"gpu": 2, "cpu": 500 - number}},
            },
            id="of different sizes that no node has free, before a smaller one that fits",
        ),
    ],
)
def test_groups_that_no_pool_has_capacity_for_are_not_offered_one_by_one(
    more: dict[str, Any],
) -> None:
    """A reservation that is larger than what is free has budget for one more, and one more."""
    few, many = unused_reservation(100, **more), unused_reservation(200, **more)

    assert calls_of_a_pass(many) < 3 * calls_of_a_pass(few)
    # Not one for each group.
    assert decide(many).figures.matches < 40
