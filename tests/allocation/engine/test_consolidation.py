"""Consolidation: running work is moved inside its pool so that a task fits."""

from __future__ import annotations

from typing import Any

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.plan import Plan
from apps.allocation.engine.model.snapshot import Id, Snapshot
from apps.allocation.engine.steps.preemption.consolidation import MOST_TRIALS, _Search
from tests.allocation.engine.builders import placed, queued, running, scenario

Fields = dict[str, object]


def moved(plan: Plan) -> dict[Id, Id]:
    """Where each moved task goes."""
    return {one.task: one.members[0].node for one in plan.moved}


def cluster(
    *tasks: object, nodes: dict[str, int], level: str = "reclaim", **more: object
) -> Snapshot:
    """One pool; two teams without reservations, so that no task may preempt."""
    capacity = sum(nodes.values())
    profiles: list[Fields] = [
        {"name": f"p{size}", "request": {"gpu": size}, "pools": ["a"]} for size in (1, 2, 3, 4)
    ]
    profiles.append({"name": "half", "request": {"gpu": 0.5}, "pools": ["a"]})
    profiles.append({"name": "gang", "request": {"gpu": 2}, "replicas": 2, "pools": ["a"]})
    names = [str(profile["name"]) for profile in profiles]
    return scenario(
        settings={"preemption": level, "consolidation": True},
        now=100,
        pools=[
            {
                "name": "a",
                "capacity": {"gpu": capacity},
                "profiles": names,
                "nodes": [
                    {"name": name, "capacity": {"gpu": gpus}} for name, gpus in nodes.items()
                ],
            }
        ],
        profiles=profiles,
        policies=[
            {"name": "left", "profiles": names, **more},
            {"name": "right", "profiles": names},
        ],
        tasks=list(tasks),
    )


def on(task: str, profile: str, node: str, *gpus: int, share: float = 1, **more: object) -> object:
    devices = [{"index": gpu, "share": share} for gpu in gpus]
    fields: Fields = {"nodes": [node], "devices": [devices], "started": 5, **more}
    return running(task, "right", profile, "a", **fields)


APART = (on("x", "p1", "n1", 0), on("y", "p1", "n2", 0))


def test_one_move_frees_capacity_on_a_node() -> None:
    plan = decide(cluster(*APART, queued("t", "left", "p2", 9), nodes={"n1": 2, "n2": 2}))

    assert moved(plan) == {"x": "n2"}
    assert placed(plan) == {"t": "a"}
    assert plan.placed[0].waits_for == ("x",)
    assert not plan.preempted


def test_it_is_the_one_that_loses_least() -> None:
    tasks = (on("x", "p1", "n1", 0), on("y", "p1", "n2", 0, checkpointed=99))

    plan = decide(cluster(*tasks, queued("t", "left", "p2", 9), nodes={"n1": 2, "n2": 2}))

    assert moved(plan) == {"y": "n1"}


@pytest.mark.parametrize("level", ["none", "reclaim", "priority", "rank"])
def test_moves_need_no_further_right_at_any_level(level: str) -> None:
    snapshot = cluster(*APART, queued("t", "left", "p2", 9), nodes={"n1": 2, "n2": 2}, level=level)

    assert moved(decide(snapshot)) == {"x": "n2"}


@pytest.mark.parametrize("why", [{"preemptible": False}, {"state": "stopping"}])
def test_protected_work_is_not_moved(why: Any) -> None:
    tasks = (on("x", "p1", "n1", 0, **why), on("y", "p1", "n2", 0, **why))

    plan = decide(cluster(*tasks, queued("t", "left", "p2", 9), nodes={"n1": 2, "n2": 2}))

    assert moved(plan) == {}
    assert placed(plan) == {}


def test_a_limit_allows_no_moves() -> None:
    plan = decide(
        cluster(*APART, queued("t", "left", "p2", 9), nodes={"n1": 2, "n2": 2}, limit={"gpu": 1})
    )

    assert moved(plan) == {}


def test_a_move_may_need_another_one() -> None:
    """`x` has no other place until `y` makes one for it."""
    tasks = (
        on("x", "p2", "n1", 0, 1),
        on("y", "p1", "n2", 0),
        on("z", "p3", "n3", 0, 1, 2, preemptible=False),
    )
    nodes = {"n1": 4, "n2": 2, "n3": 4}

    plan = decide(cluster(*tasks, queued("t", "left", "p4", 9), nodes=nodes))

    assert moved(plan) == {"x": "n2", "y": "n3"}
    assert placed(plan) == {"t": "a"}


def test_halves_share_a_device_for_a_whole_one() -> None:
    tasks = (on("x", "half", "n1", 0, share=0.5), on("y", "half", "n1", 1, share=0.5))

    plan = decide(cluster(*tasks, queued("t", "left", "p1", 9), nodes={"n1": 2}))

    assert set(moved(plan)) == {"x"}
    assert placed(plan) == {"t": "a"}


def test_a_gang_gets_capacity_on_two_nodes() -> None:
    tasks = [on(f"x{number}", "p1", f"n{number}", 0) for number in range(4)]
    nodes = {f"n{number}": 2 for number in range(4)}

    plan = decide(cluster(*tasks, queued("t", "left", "gang", 9), nodes=nodes))

    assert len(plan.moved) == 2
    assert {member.node for member in plan.placed[0].members} == {"n0", "n1"}


def test_moved_work_stays_on_the_models_of_its_profile() -> None:
    snapshot = scenario(
        settings={"preemption": "reclaim", "consolidation": True},
        pools=[
            {
                "name": "a",
                "capacity": {"gpu": 4},
                "nodes": [
                    {"name": "n1", "capacity": {"gpu": 2}, "model": "big"},
                    {"name": "n2", "capacity": {"gpu": 2}, "model": "small"},
                ],
            }
        ],
        profiles=[
            {"name": "p1", "request": {"gpu": 1}, "pools": ["a"], "models": ["big"]},
            {"name": "p2", "request": {"gpu": 2}, "pools": ["a"]},
            {"name": "q1", "request": {"gpu": 1}, "pools": ["a"]},
        ],
        policies=[{"name": "left", "profiles": ["p1", "p2", "q1"]}],
        tasks=[
            running("x", "left", "p1", "a", node="n1", devices=[[{"index": 0, "share": 1}]]),
            running("y", "left", "q1", "a", node="n2", devices=[[{"index": 0, "share": 1}]]),
            queued("t", "left", "p2", 9),
        ],
    )

    assert moved(decide(snapshot)) == {"y": "n1"}


def test_nodes_that_look_alike_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 nodes with 3 of 4 GPUs in use by large tasks: no set of moves helps, found out soon."""
    tasks = [on(f"x{number:03d}", "p3", f"n{number:03d}", 0, 1, 2) for number in range(100)]
    nodes = {f"n{number:03d}": 4 for number in range(100)}
    searches: list[_Search] = []
    made = _Search.__init__

    def remember(self: _Search, *args: object) -> None:
        made(self, *args)  # type: ignore[arg-type]  # handed on as they came
        searches.append(self)

    monkeypatch.setattr(_Search, "__init__", remember)

    plan = decide(cluster(*tasks, queued("t", "left", "p4", 9), nodes=nodes))

    assert placed(plan) == {}
    assert 0 < sum(search.trials for search in searches) < MOST_TRIALS / 10
