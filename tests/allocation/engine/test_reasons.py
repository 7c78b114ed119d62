"""Every waiting task says why, in numbers; taking the named blocker away changes the verdict."""

from __future__ import annotations

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.reasons import Detail, Reason, ReasonCode, from_data, to_data
from apps.allocation.engine.model.snapshot import Id, Snapshot
from apps.allocation.engine.sentences import amount_text, sentence
from tests.allocation.engine.builders import placed, queued, reasons, running, scenario

Fields = dict[str, object]

POOL: Fields = {"name": "a", "capacity": {"gpu": 4}}
PROFILES = [
    {"name": "p1", "request": {"gpu": 1}, "pools": ["a"]},
    {"name": "p4", "request": {"gpu": 4}, "pools": ["a"]},
]
TEAM: Fields = {"name": "team", "reserved": {"gpu": 4}, "profiles": ["p1", "p4"]}


class Plain:
    """Names as they are."""

    def pool(self, id_: Id) -> str:
        return f"pool {id_}"

    def policy(self, id_: Id) -> str:
        return f"policy {id_}"

    def is_reader(self, _id: Id) -> bool:
        return True

    def queue(self, id_: Id) -> str:
        return f"queue {id_}"

    def task(self, id_: Id) -> str:
        return f"task {id_}"


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
def test_every_reason_is_a_sentence_and_survives_storing(
    blocked: Snapshot,
    freed: Snapshot,
    want: ReasonCode,
) -> None:
    del freed, want
    for wait in decide(blocked).waiting:
        for reason in wait.reasons:
            words = sentence(reason, Plain())

            assert words.text.endswith(".")
            assert words.help.endswith(".")
            assert "None" not in words.text
            assert from_data(to_data(reason)) == reason


def test_a_full_pool_says_how_much_is_needed_and_free() -> None:
    plan = decide(snapshot(queued("t1", "team", "p4"), running("r", "team", "p1", "a")))

    words = sentence(plan.waiting[0].reasons[0], Plain())

    want = "There is not enough free capacity: pool a has 3 GPUs free of the 4 GPUs needed."
    assert words.text == want


def test_capacity_on_several_nodes_is_not_capacity_on_one() -> None:
    nodes = [{"name": "n1", "capacity": {"gpu": 2}}, {"name": "n2", "capacity": {"gpu": 2}}]
    plan = decide(snapshot(queued("t1", "team", "p4"), pool={"nodes": nodes}))

    detail = plan.waiting[0].reasons[0].details[0]

    assert (detail.needed, detail.free, detail.largest) == (4000, 4000, 2000)


def test_a_protected_reason_says_when() -> None:
    reason = Reason(
        ReasonCode.PROTECTED, (Detail(pool="a", tasks=("x", "y"), until_us=90 * 1_000_000),)
    )

    words = sentence(reason, Plain(), now_us=0)

    assert "2 tasks" in words.text
    assert "in 2 min" in words.text


@pytest.mark.parametrize(
    ("key", "milli", "want"),
    [
        pytest.param("gpu", 500, "0.5 GPU", id="half a GPU"),
        pytest.param("gpu", 1000, "1 GPU", id="one GPU"),
        pytest.param("gpu", 8000, "8 GPUs", id="many GPUs"),
        pytest.param("gpu", 0, "0 GPUs", id="none"),
        pytest.param("memory_mb", 2_048_000, "2048 MB of memory", id="memory"),
        pytest.param("license", 1000, "1 license", id="a key of one's own"),
    ],
)
def test_amounts_are_written_as_people_say_them(key: str, milli: int, want: str) -> None:
    assert amount_text(key, milli) == want


def test_a_reason_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown field"):
        from_data({"code": "capacity", "details": [{"colour": 1}]})


def test_a_sentence_names_few_pools_and_counts_the_rest() -> None:
    reason = Reason(ReasonCode.NO_SERVER, tuple(Detail(pool=name) for name in "abcde"))

    words = sentence(reason, Plain())

    assert words.text.startswith("Nothing serves pool a, pool b and 3 more pools:")


@pytest.mark.parametrize(
    ("code", "want"),
    [
        pytest.param(
            ReasonCode.NEEDS_RESERVATION,
            "The task may not be preempted and needs 4 GPUs, more than the 2 GPUs reserved for "
            "policy dev.",
            id="not preemptible",
        ),
        pytest.param(
            ReasonCode.OVER_QUOTA_NOT_ALLOWED,
            "The task needs 4 GPUs, more than the 2 GPUs reserved for policy dev, and this queue "
            "takes no work beyond the reservation.",
            id="nothing over quota",
        ),
    ],
)
def test_a_reservation_that_is_too_small_is_not_said_to_be_used_up(
    code: ReasonCode, want: str
) -> None:
    detail = Detail(policy="dev", key="gpu", usage=0, limit=2000, needed=4000)

    assert sentence(Reason(code, (detail,)), Plain()).text == want


def test_work_that_may_never_be_stopped_again_gives_no_hope_of_it() -> None:
    words = sentence(Reason(ReasonCode.PROTECTED, (Detail(pool="a", tasks=("x",)),)), Plain())

    assert words.text.endswith("but the task there may not be stopped again.")
    assert words.help.endswith("as soon as enough of that work ends.")
