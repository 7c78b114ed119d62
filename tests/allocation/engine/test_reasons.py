"""Every waiting task says why, in numbers; taking the named blocker away changes the verdict."""

from __future__ import annotations

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.reasons import ReasonCode, from_data, to_data
from apps.allocation.engine.model.snapshot import Snapshot
from tests.allocation.engine.builders import placed, queued, reasons, running, scenario

Fields = dict[str, object]

POOL: Fields = {"name": "a", "capacity": {"gpu": 4}}
PROFILES = [
    {"name": "p1", "request": {"gpu": 1}, "pools": ["a"]},
    {"name": "p4", "request": {"gpu": 4}, "pools": ["a"]},
]
TEAM: Fields = {"name": "team", "reserved": {"gpu": 4}, "profiles": ["p1", "p4"]}


def snapshot(
    *tasks: object,
    pool: Fields | None = None,
    team: Fields | None = None,
    others: list[object] | None = None,
    profiles: list[object] | None = None,
    settings: Fields | None = None,
) -> Snapshot:
    return scenario(
        settings={"preemption": "none", **(settings or {})},
        pools=[POOL | (pool or {})],
        profiles=profiles or PROFILES,
        policies=[TEAM | (team or {}), *(others or [])],
        tasks=list(tasks),
    )


T1 = queued("t1", "team", "p1")
FULL = running("full", "team", "p4", "a", started=1)
OTHER: Fields = {"name": "other", "profiles": ["p1", "p4"]}
NO_LINK: list[object] = [{"name": "p1", "request": {"gpu": 1}, "pools": []}, PROFILES[1]]


def _protected_case(**queue: int) -> Snapshot:
    """Work over quota that blocks a reservation, with these settings of its queue."""
    return scenario(
        settings={"preemption": "reclaim"},
        now=100,
        pools=[POOL],
        profiles=PROFILES,
        policies=[TEAM, OTHER | {"queues": {"p4": queue}}],
        tasks=[queued("t1", "team", "p4", 5), running("r", "other", "p4", "a", started=90)],
    )


CASES = [
    pytest.param(
        snapshot(T1, settings={"enabled": False}),
        snapshot(T1),
        ReasonCode.DISABLED,
        id="switched off",
    ),
    pytest.param(
        snapshot(T1, team={"queues": {"p1": {"paused": True}}}),
        snapshot(T1),
        ReasonCode.PAUSED,
        id="the queue is paused",
    ),
    pytest.param(
        snapshot(T1, team={"paused": True}),
        snapshot(T1),
        ReasonCode.PAUSED,
        id="the policy is paused",
    ),
    pytest.param(
        snapshot(T1, team={"spent": True}),
        snapshot(T1),
        ReasonCode.BUDGET,
        id="the budget is spent",
    ),
    pytest.param(
        snapshot(T1, pool={"paused": True}),
        snapshot(T1),
        ReasonCode.PAUSED,
        id="the pool is paused",
    ),
    pytest.param(
        snapshot(T1, profiles=NO_LINK), snapshot(T1), ReasonCode.NO_POOL, id="linked to no pool"
    ),
    pytest.param(
        snapshot(T1, pool={"has_server": False}),
        snapshot(T1),
        ReasonCode.NO_SERVER,
        id="nobody serves the pool",
    ),
    pytest.param(
        snapshot(T1, running("r", "team", "p1", "a"), team={"limit": {"gpu": 1}}),
        snapshot(T1, team={"limit": {"gpu": 1}}),
        ReasonCode.LIMIT,
        id="the limit is reached",
    ),
    pytest.param(
        snapshot(
            queued("t1", "team", "p1", user="ann"),
            running("r", "team", "p1", "a", user="ann"),
            team={"user_limit": {"gpu": 1}},
        ),
        snapshot(
            queued("t1", "team", "p1", user="ann"),
            running("r", "team", "p1", "a", user="bob"),
            team={"user_limit": {"gpu": 1}},
        ),
        ReasonCode.LIMIT,
        id="the limit per user is reached",
    ),
    pytest.param(
        snapshot(
            queued("t1", "team", "p1", preemptible=False),
            running("r", "team", "p1", "a", preemptible=False),
            team={"reserved": {"gpu": 1}},
        ),
        snapshot(
            queued("t1", "team", "p1", preemptible=False),
            running("r", "team", "p1", "a"),
            team={"reserved": {"gpu": 1}},
        ),
        ReasonCode.NEEDS_RESERVATION,
        id="the reservation is full of work that is never preempted",
    ),
    pytest.param(
        snapshot(
            T1,
            team={"reserved": {"gpu": 0}, "queues": {"p1": {"allow_over_quota": False}}},
        ),
        snapshot(
            T1,
            team={"reserved": {"gpu": 1}, "queues": {"p1": {"allow_over_quota": False}}},
        ),
        ReasonCode.OVER_QUOTA_NOT_ALLOWED,
        id="the queue takes nothing over quota",
    ),
    pytest.param(snapshot(T1, FULL), snapshot(T1), ReasonCode.CAPACITY, id="the pool is full"),
    pytest.param(
        snapshot(
            queued("t1", "other", "p1", 5),
            queued("t4", "team", "p4", 1),
            running("r", "team", "p1", "a"),
            pool={"backfill": False, "profiles": ["p4", "p1"]},
            others=[OTHER | {"reserved": {"gpu": 1}}],
            team={"reserved": {"gpu": 8}},
        ),
        snapshot(
            queued("t1", "other", "p1", 5),
            running("r", "team", "p1", "a"),
            pool={"backfill": False, "profiles": ["p4", "p1"]},
            others=[OTHER | {"reserved": {"gpu": 1}}],
            team={"reserved": {"gpu": 8}},
        ),
        ReasonCode.OUTRANKED,
        id="a pool without backfill waits for a larger task",
    ),
    pytest.param(
        snapshot(
            queued("t1", "team", "p1", 5),
            queued("t4", "team", "p4", 1),
            running("r", "team", "p1", "a"),
            team={"strict": True, "reserved": {"gpu": 8}},
        ),
        snapshot(
            queued("t1", "team", "p1", 5),
            running("r", "team", "p1", "a"),
            team={"strict": True, "reserved": {"gpu": 8}},
        ),
        ReasonCode.BEHIND,
        id="a strict policy starts its tasks in order",
    ),
    pytest.param(
        snapshot(
            queued("t1", "other", "p1", 5),
            queued("t4", "team", "p4", 1),
            running("r", "other", "p1", "a"),
            others=[OTHER],
        ),
        snapshot(queued("t1", "other", "p1", 5), running("r", "other", "p1", "a"), others=[OTHER]),
        ReasonCode.HELD,
        id="capacity is held for a reservation",
    ),
    pytest.param(
        snapshot(
            queued("t1", "team", "p4", 1),
            running("r", "team", "p4", "a", state="stopping") | {"for": "t1"},  # type: ignore[operator]  # a dict
        ),
        snapshot(queued("t1", "team", "p4", 1)),
        ReasonCode.DRAINING,
        id="work is stopping for it",
    ),
    pytest.param(
        _protected_case(min_runtime=60), _protected_case(), ReasonCode.PROTECTED, id="too new"
    ),
    pytest.param(
        _protected_case(max_preemptions=0),
        _protected_case(),
        ReasonCode.PROTECTED,
        id="taken too often",
    ),
]


@pytest.mark.parametrize(("blocked", "freed", "want"), CASES)
def test_the_dominant_reason_names_what_is_in_the_way(
    blocked: Snapshot, freed: Snapshot, want: ReasonCode
) -> None:
    plan = decide(blocked)

    assert reasons(plan)["t1"] == want.value
    assert "t1" in placed(decide(freed))


@pytest.mark.parametrize(("blocked", "freed", "want"), CASES)
def test_every_reason_survives_storing(
    blocked: Snapshot,
    freed: Snapshot,
    want: ReasonCode,
) -> None:
    del freed, want
    for wait in decide(blocked).waiting:
        for reason in wait.reasons:
            assert from_data(to_data(reason)) == reason


def test_capacity_on_several_nodes_is_not_capacity_on_one() -> None:
    nodes = [{"name": "n1", "capacity": {"gpu": 2}}, {"name": "n2", "capacity": {"gpu": 2}}]
    plan = decide(snapshot(queued("t1", "team", "p4"), pool={"nodes": nodes}))

    detail = plan.waiting[0].reasons[0].details[0]

    assert (detail.needed, detail.free, detail.largest) == (4000, 4000, 2000)


def test_a_reason_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown field"):
        from_data({"code": "capacity", "details": [{"colour": 1}]})
