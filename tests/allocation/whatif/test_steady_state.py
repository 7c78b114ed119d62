"""Passes carried out on paper until they rest."""

from dataclasses import replace

import pytest

from apps.allocation.engine.model.snapshot import Id, Snapshot
from apps.allocation.whatif.comparison import compare
from apps.allocation.whatif.steady_state import run_to_rest
from apps.allocation.whatif.usage_counts import policy_uses, pool_uses, reservations_of
from tests.allocation.engine.builders import queued, running, scenario


def team(name: str, reserved: int = 0, **more: object) -> object:
    return {"name": name, "reserved": {"gpu": reserved}, "profiles": ["p"], **more}


def shared(*tasks: object, reclaims: bool = True, gpus: int = 8, **fields: object) -> Snapshot:
    """One pool; Dev has nothing reserved, Research 4; every task takes 4."""
    defaults: dict[str, object] = {
        "settings": {"preemption": "reclaim" if reclaims else "none"},
        "pools": [{"name": "a", "capacity": {"gpu": gpus}, "profiles": ["p"]}],
        "profiles": [{"name": "p", "request": {"gpu": 4}, "pools": ["a"]}],
        "policies": [team("dev"), team("research", 4)],
        "tasks": list(tasks),
    }
    return scenario(**{**defaults, **fields})


def running_in(snapshot: Snapshot) -> dict[Id, Id]:
    return {
        running_task.task: group.pool for group in snapshot.running for running_task in group.tasks
    }


def waiting_in(snapshot: Snapshot) -> list[Id]:
    return [head.task for group in snapshot.queued_groups for head in group.heads]


def every_queue(snapshot: Snapshot) -> list[Id]:
    return [queue.id for queue in snapshot.queues]


TAKE_BACK = shared(
    running("d1", "dev", "p", "a", started=1, submitted=1),
    running("d2", "dev", "p", "a", started=2, submitted=2),
    queued("d3", "dev", "p", submitted=3),
    queued("r1", "research", "p", submitted=4),
)


def test_a_victim_waits_again_in_its_old_place_and_the_taker_runs() -> None:
    rested = run_to_rest(TAKE_BACK, returning=every_queue(TAKE_BACK))

    assert rested.is_at_rest
    assert running_in(rested.snapshot) == {"d1": "a", "r1": "a"}
    assert waiting_in(rested.snapshot) == ["d2", "d3"]
    assert (rested.passes, rested.preempted["d2"].beneficiary) == (2, "r1")


def test_a_victim_whose_queue_does_not_take_it_back_is_gone() -> None:
    rested = run_to_rest(TAKE_BACK, returning=())

    assert waiting_in(rested.snapshot) == ["d3"]


def test_whoever_is_stopping_already_frees_capacity() -> None:
    snapshot = shared(
        running("d1", "dev", "p", "a", state="stopping"),
        running("d2", "dev", "p", "a"),
        queued("d3", "dev", "p"),
    )

    rested = run_to_rest(snapshot, returning=())

    assert running_in(rested.snapshot) == {"d2": "a", "d3": "a"}


def test_whoever_is_moved_runs_on_and_is_no_victim() -> None:
    snapshot = scenario(
        settings={"preemption": "none", "consolidation": True},
        pools=[
            {
                "name": "a",
                "capacity": {"gpu": 4},
                "profiles": ["one", "two"],
                "nodes": [{"name": n, "capacity": {"gpu": 2}} for n in ("n1", "n2")],
            }
        ],
        profiles=[
            {"name": "one", "request": {"gpu": 1}, "pools": ["a"]},
            {"name": "two", "request": {"gpu": 2}, "pools": ["a"]},
        ],
        policies=[{"name": "dev", "profiles": ["one", "two"]}],
        tasks=[
            running("s1", "dev", "one", "a", node="n1"),
            running("s2", "dev", "one", "a", node="n2"),
            queued("big", "dev", "two"),
        ],
    )
    apart = replace(snapshot, settings=replace(snapshot.settings, has_consolidation=False))

    rested = run_to_rest(snapshot, returning=every_queue(snapshot))
    found = compare(snapshot, run_to_rest(apart, returning=()), rested)

    assert running_in(rested.snapshot) == {"s1": "a", "s2": "a", "big": "a"}
    nodes = [
        running_task.members[0].node
        for group in rested.snapshot.running
        for running_task in group.tasks
        if running_task.task != "big"
    ]
    assert len(set(nodes)) == 1
    assert (len(rested.moved), rested.preempted) == (1, {})
    assert (found.moved, found.preempted) == (rested.moved, ())
    assert [place.task for place in found.starts] == ["big"]


def test_the_tasks_behind_the_heads_are_counted() -> None:
    snapshot = shared(queued("d1", "dev", "p"), queued("d2", "dev", "p"), reclaims=False, gpus=4)
    queued_groups = tuple(replace(run, count=1000) for run in snapshot.queued_groups)

    rested = run_to_rest(replace(snapshot, queued_groups=queued_groups), returning=())

    assert [(run.count, len(run.heads)) for run in rested.snapshot.queued_groups] == [(999, 1)]
    assert rested.waiting[0].count == 999


def test_a_long_chain_is_cut_and_says_so() -> None:
    rested = run_to_rest(TAKE_BACK, returning=every_queue(TAKE_BACK), most_passes=1)

    assert (rested.passes, rested.is_at_rest) == (1, False)


def test_the_state_after_a_plan_holds_nothing_twice() -> None:
    after = run_to_rest(TAKE_BACK, returning=every_queue(TAKE_BACK)).snapshot

    everyone = [*running_in(after), *waiting_in(after)]
    assert sorted(map(str, everyone)) == ["d1", "d2", "d3", "r1"]
    assert pool_uses(after)["a"].use == {"gpu": 8000}


def test_running_work_is_labelled_as_people_read_it() -> None:
    snapshot = shared(
        running("old", "dev", "p", "a", started=1),
        running("young", "dev", "p", "a", started=2),
        running("high", "dev", "p", "a", started=3, priority=5),
        running("fixed", "dev", "p", "a", started=4, preemptible=False),
        queued("next", "dev", "p"),
        gpus=16,
        policies=[team("dev", 8), team("research")],
    )

    use = policy_uses(snapshot)["dev"]

    assert (use.reserved, use.over_quota) == ({"gpu": 8000}, {"gpu": 8000})
    assert (use.running, use.waiting) == (4, 1)


def test_a_department_counts_what_its_teams_hold_and_reserve() -> None:
    snapshot = shared(
        running("d1", "dev", "p", "a"),
        running("r1", "research", "p", "a"),
        queued("r2", "research", "p"),
        policies=[
            {"name": "both", "reserved": {"cpu": 3}},
            team("dev", 0, parent="both"),
            team("research", 4, parent="both"),
        ],
    )

    use = policy_uses(snapshot)["both"]

    assert reservations_of(snapshot.policies)["both"] == {"cpu": 3000, "gpu": 4000}
    assert (use.reserved, use.over_quota) == ({"gpu": 4000}, {"gpu": 4000})
    assert (use.running, use.waiting) == (2, 1)


def test_what_happens_anyway_is_no_effect_of_the_change() -> None:
    found = compare(
        TAKE_BACK,
        run_to_rest(TAKE_BACK, returning=every_queue(TAKE_BACK)),
        run_to_rest(TAKE_BACK, returning=every_queue(TAKE_BACK)),
    )

    assert (found.starts, found.preempted, found.moved) == ((), (), ())
    assert (found.delayed, found.no_longer_preempted, found.rejected) == ((), (), ())
    assert sum(wait.count for _, wait in found.waiting) == 2


def test_a_change_that_lets_reclaim_starts_one_and_preempts_another() -> None:
    off = replace(TAKE_BACK, settings=shared(reclaims=False).settings)
    without, with_it = (run_to_rest(one, returning=every_queue(off)) for one in (off, TAKE_BACK))

    found = compare(off, without, with_it)
    undone = compare(off, with_it, without)

    assert [place.task for place in found.starts] == ["r1"]
    assert [(one.task, one.beneficiary) for one in found.preempted] == [("d2", "r1")]
    assert (undone.delayed, undone.no_longer_preempted) == (("r1",), ("d2",))


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({}, [], id="nothing changed"),
        pytest.param({"gpus": 2}, ["request.gpu"], id="the pool is too small now"),
        pytest.param(
            {"policies": [team("dev", limit={"gpu": 2}), team("research", 4)]},
            ["request.gpu"],
            id="the limit is too low now",
        ),
        pytest.param(
            {"policies": [team("dev", 3), team("research", 4)]},
            ["request.gpu"],
            id="the reservation is too small for work that cannot be preempted",
        ),
    ],
)
def test_work_that_could_never_run_any_more_is_rejected(
    change: dict[str, object], want: list[str]
) -> None:
    task = queued("d1", "dev", "p", preemptible=False)
    before = shared(task, policies=[team("dev", 4), team("research", 4)])
    after = shared(task, **{"policies": [team("dev", 4), team("research", 4)], **change})  # type: ignore[arg-type]  # fields of a scenario

    found = compare(before, run_to_rest(before, returning=()), run_to_rest(after, returning=()))

    assert [key for one in found.rejected for key in one.problems] == want
    assert not found.waiting
