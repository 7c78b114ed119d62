"""Preemption looks at each running task a few times, however many groups run or wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.engine.steps.preemption import step
from apps.allocation.engine.steps.preemption.consolidation import MOST_FAILURES
from apps.allocation.engine.steps.preemption.entitlement import Entitlement
from apps.allocation.engine.steps.preemption.victim_search import VictimSearch
from tests.allocation.engine.builders import placed, preempted, queued, running, scenario

NODES = 12
GPUS = 8
RUNNING = NODES * GPUS

Count = Callable[[object, str], list[object]]


@pytest.fixture
def calls_of(monkeypatch: pytest.MonkeyPatch) -> Count:
    def count(owner: object, name: str) -> list[object]:
        found: list[object] = []
        plain = getattr(owner, name)

        def counted(*arguments: Any, **more: Any) -> Any:
            found.append(arguments)
            return plain(*arguments, **more)

        monkeypatch.setattr(owner, name, counted)
        return found

    return count


def full_nodes(
    *tasks: object, of: str, distinct: bool = False, count: int = RUNNING, **fields: Any
) -> Snapshot:
    """Nodes full with tasks of one GPU, those that started one after another on different nodes.

    Args:
        of: the policy of these tasks.
        distinct: their requests and priorities differ, so that each is a group of its own.
        count: of tasks; fewer than the GPUs leave the last of each node free.
    """
    nodes = [f"n{number:02}" for number in range(NODES)]
    small = []
    for number in range(count):
        more: dict[str, object] = {"devices": [{"index": number // NODES, "share": 1}]}
        if distinct:
            more |= {"request": {"gpu": 1, "cpu": (number + 1) / 1000}, "priority": number % 7}
        small.append(
            running(
                f"r{number:02}", of, "t", "a", node=nodes[number % NODES], started=number, **more
            )
        )
    capacity = {"gpu": GPUS, "cpu": 64}
    return scenario(
        pools=[
            {
                "name": "a",
                "capacity": {key: NODES * amount for key, amount in capacity.items()},
                "nodes": [{"name": name, "capacity": capacity} for name in nodes],
            }
        ],
        profiles=[{"name": "t", "request": {"gpu": 1, "cpu": 1}, "pools": ["a"]}],
        tasks=[*small, *tasks],
        **{"settings": {"preemption": "reclaim"}, **fields},
    )


def test_victims_of_the_own_policy_are_judged_once_each(calls_of: Count) -> None:
    """A whole node is wanted, and the latest started are spread over all nodes."""
    judged = calls_of(Entitlement, "right")
    snapshot = full_nodes(
        queued("t", "team", "t", 200, request={"gpu": GPUS}, preemptible=False),
        of="team",
        policies=[{"name": "team", "reserved": {"gpu": 2 * RUNNING}, "profiles": ["t"]}],
    )

    plan = decide(snapshot)

    assert placed(plan) == {"t": "a"}
    assert len(preempted(plan)) == GPUS
    assert len(judged) <= 4 * RUNNING


def test_only_the_worst_candidates_are_judged(calls_of: Count) -> None:
    judged = calls_of(Entitlement, "right")
    snapshot = full_nodes(
        queued("t", "team", "t", 200, request={"gpu": 1}),
        of="other",
        distinct=True,
        policies=[
            {"name": "team", "reserved": {"gpu": 1}, "profiles": ["t"]},
            {"name": "other", "profiles": ["t"]},
        ],
    )

    assert len(preempted(decide(snapshot))) == 1
    assert len(judged) <= 6


def test_requests_that_no_victims_satisfy_do_not_each_try_them_all(calls_of: Count) -> None:
    """Of `other` only half of each node may be preempted, and each task wants a whole one."""
    given_up = calls_of(VictimSearch, "_give_up")
    waiting = [
        queued(f"t{number:02}", "team", "t", request={"gpu": GPUS, "cpu": 1 + number / 1000})
        for number in range(40)
    ]
    snapshot = full_nodes(
        *waiting,
        of="other",
        distinct=True,
        policies=[
            {"name": "team", "reserved": {"gpu": 1000}, "profiles": ["t"]},
            {"name": "other", "reserved": {"gpu": RUNNING - GPUS // 2}, "profiles": ["t"]},
        ],
    )

    assert placed(decide(snapshot)) == {}
    assert 0 < len(given_up) <= 3 * GPUS


def test_requests_for_which_nothing_can_be_moved_are_tried_a_few_times(calls_of: Count) -> None:
    tried = calls_of(step, "find_moves")
    waiting = [
        queued(f"t{number:02}", "team", "t", request={"gpu": GPUS, "cpu": 2 - number / 1000})
        for number in range(40)
    ]
    snapshot = full_nodes(
        *waiting,
        of="other",
        count=RUNNING // 2,
        settings={"preemption": "none", "consolidation": True},
        policies=[{"name": "team", "profiles": ["t"]}, {"name": "other", "profiles": ["t"]}],
    )

    assert placed(decide(snapshot)) == {}
    assert 0 < len(tried) <= MOST_FAILURES


def test_victims_that_only_give_rights_are_released_a_few_times_each(calls_of: Count) -> None:
    """Each node runs a task of `team` and one of `other`, and a task of `team` wants a whole one.

    Its own work has to stop until `team` is covered, which gives the right to one of `other`.
    """
    given_up = calls_of(VictimSearch, "_give_up")
    names = [f"n{number:02}" for number in range(60)]
    tasks = [
        running(f"{policy}{name}", policy, "t", "a", node=name, started=started, devices=[gpu])
        for gpu, policy in enumerate(("team", "other"))
        for started, name in enumerate(names)
    ]
    snapshot = scenario(
        settings={"preemption": "priority"},
        pools=[
            {
                "name": "a",
                "capacity": {"gpu": 120},
                "nodes": [{"name": name, "capacity": {"gpu": 2}} for name in names],
            }
        ],
        profiles=[{"name": "t", "request": {"gpu": 1}, "pools": ["a"]}],
        policies=[
            {"name": "team", "reserved": {"gpu": 4}, "profiles": ["t"]},
            {"name": "other", "profiles": ["t"]},
        ],
        tasks=[*tasks, queued("t", "team", "t", 99, request={"gpu": 2}, priority=1)],
    )

    plan = decide(snapshot)

    assert placed(plan) == {"t": "a"}
    assert [task for task in preempted(plan) if str(task).startswith("other")] == ["othern59"]
    assert len(given_up) <= 2 * len(tasks)
