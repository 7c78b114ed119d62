"""Preemption on nodes and devices: gangs, fractions, and keys that only nodes are short of."""

from __future__ import annotations

from typing import Any

from apps.allocation.engine import decide
from apps.allocation.engine.model.snapshot import Snapshot
from tests.allocation.engine.builders import preempted, queued, running, scenario

Fields = dict[str, Any]


def nodes(*tasks: object, request: Fields, replicas: int = 1) -> Snapshot:
    """Two nodes of 2 GPUs; `left` reserves them all."""
    return scenario(
        settings={"preemption": "reclaim"},
        pools=[
            {
                "name": "a",
                "capacity": {"gpu": 4},
                "nodes": [{"name": name, "capacity": {"gpu": 2}} for name in ("n1", "n2")],
            }
        ],
        profiles=[
            {"name": "t", "request": request, "replicas": replicas, "pools": ["a"]},
            {"name": "p1", "request": {"gpu": 1}, "pools": ["a"]},
            {"name": "half", "request": {"gpu": 0.5}, "pools": ["a"]},
            {"name": "gang", "request": {"gpu": 1}, "replicas": 2, "pools": ["a"]},
        ],
        policies=[
            {"name": "left", "reserved": {"gpu": 4}, "profiles": ["t"]},
            {"name": "right", "profiles": ["p1", "half", "gang"]},
        ],
        tasks=[*tasks, queued("t", "left", "t", 9)],
    )


def sits(task: str, profile: str, node: str, gpu: int, started: int, share: float = 1) -> object:
    devices = [{"index": gpu, "share": share}]
    return running(task, "right", profile, "a", node=node, devices=devices, started=started)


def test_victims_of_other_nodes_are_put_back() -> None:
    """Newest first would take one on each node; the one that does not help there stays."""
    tasks = [
        sits("a1", "p1", "n1", 0, 1),
        sits("b1", "p1", "n2", 0, 9),
        sits("a2", "p1", "n1", 1, 8),
        sits("b2", "p1", "n2", 1, 7),
    ]

    plan = decide(nodes(*tasks, request={"gpu": 2}))

    assert preempted(plan) == {"b1": "t", "b2": "t"}
    assert plan.placed[0].members[0].node == "n2"


def test_a_gang_takes_on_as_many_nodes_as_it_has_members() -> None:
    tasks = [
        sits("a1", "p1", "n1", 0, 1),
        sits("a2", "p1", "n1", 1, 2),
        sits("b1", "p1", "n2", 0, 3),
        sits("b2", "p1", "n2", 1, 4),
    ]

    plan = decide(nodes(*tasks, request={"gpu": 2}, replicas=2))

    assert set(preempted(plan)) == {"a1", "a2", "b1", "b2"}
    assert {one.node for one in plan.placed[0].members} == {"n1", "n2"}


def test_a_gang_is_taken_whole() -> None:
    gang = running(
        "g",
        "right",
        "gang",
        "a",
        nodes=["n1", "n2"],
        devices=[[{"index": 0, "share": 1}], [{"index": 0, "share": 1}]],
        started=1,
    )

    plan = decide(nodes(gang, sits("b", "p1", "n1", 1, 5), request={"gpu": 2}))

    assert preempted(plan) == {"g": "t"}
    assert plan.placed[0].members[0].node == "n2"


def test_fractions_are_taken_on_the_device_that_becomes_whole() -> None:
    tasks = [
        sits("a", "half", "n1", 0, 1, 0.5),
        sits("b", "half", "n1", 1, 9, 0.5),
        sits("c", "half", "n1", 0, 8, 0.5),
        sits("d", "p1", "n2", 0, 1),
        sits("e", "p1", "n2", 1, 1),
    ]

    plan = decide(nodes(*tasks, request={"gpu": 1}))

    assert preempted(plan) == {"b": "t"}
    assert plan.placed[0].members[0].devices[0].index == 1


def test_where_nodes_are_short_every_key_counts_as_needed() -> None:
    """Totals suffice; the victim holds a GPU where the CPUs are."""
    snapshot = scenario(
        settings={"preemption": "reclaim"},
        pools=[
            {
                "name": "a",
                "capacity": {"gpu": 2, "cpu": 8},
                "nodes": [
                    {"name": "n1", "capacity": {"gpu": 1, "cpu": 6}},
                    {"name": "n2", "capacity": {"gpu": 1, "cpu": 2}},
                ],
            }
        ],
        profiles=[
            {"name": "t", "request": {"gpu": 1, "cpu": 4}, "pools": ["a"]},
            {"name": "p1", "request": {"gpu": 1}, "pools": ["a"]},
        ],
        policies=[
            {"name": "left", "reserved": {"gpu": 2}, "profiles": ["t"]},
            {"name": "right", "profiles": ["p1"]},
        ],
        tasks=[
            running("x", "right", "p1", "a", node="n1", devices=[[0, 1]], started=1),
            queued("t", "left", "t", 9),
        ],
    )

    assert preempted(decide(snapshot)) == {"x": "t"}


def one_each(one: str, other: str, *, policies: list[Fields], **more: Any) -> Snapshot:
    """Nodes with a task of each of two policies, and one with two older tasks of `one`.

    A task of `team` wants two GPUs of one node.
    """
    names = [f"n{number}" for number in range(7)]
    profiles = [{"name": "t", "request": {"gpu": 1}, "pools": ["a"]}]
    tasks = [
        running(f"{one}{name}", one, "t", "a", node=name, started=50, devices=[0]) for name in names
    ]
    tasks += [
        running(f"{other}{name}", other, "t", "a", node=name, started=50, devices=[1])
        for name in names[1:]
    ]
    tasks.append(running("old", one, "t", "a", node="n0", started=1, devices=[1]))
    return scenario(
        pools=[
            {
                "name": "a",
                "capacity": {"gpu": 14},
                "nodes": [{"name": name, "capacity": {"gpu": 2}} for name in names],
            }
        ],
        profiles=profiles,
        policies=policies,
        tasks=[*tasks, queued("t", "team", "t", 99, request={"gpu": 2}, priority=1)],
        **more,
    )


def test_own_work_is_not_stopped_for_the_right_to_others_where_it_suffices() -> None:
    """Six of its own would have to stop until `team` is covered, and then one of `other`."""
    snapshot = one_each(
        "team",
        "other",
        settings={"preemption": "priority"},
        policies=[
            {"name": "team", "reserved": {"gpu": 4}, "profiles": ["t"]},
            {"name": "other", "profiles": ["t"]},
        ],
    )

    assert preempted(decide(snapshot)) == {"old": "t", "teamn0": "t"}


def test_siblings_are_not_stopped_for_the_right_to_others_where_they_suffice() -> None:
    """`team` may preempt its sibling; with enough of it gone, their parent would cover `team`."""
    snapshot = one_each(
        "sibling",
        "other",
        settings={"preemption": "reclaim"},
        policies=[
            {"name": "both", "reserved": {"gpu": 4}},
            {"name": "team", "parent": "both", "reserved": {"gpu": 4}, "profiles": ["t"]},
            {"name": "sibling", "parent": "both", "profiles": ["t"]},
            {"name": "other", "profiles": ["t"]},
        ],
    )

    assert preempted(decide(snapshot)) == {"old": "t", "siblingn0": "t"}
