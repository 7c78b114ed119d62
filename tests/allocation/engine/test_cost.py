"""What a pass does not do: work whose result is not used."""

from __future__ import annotations

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.reasons import ReasonCode
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.engine.state import initial_state
from apps.allocation.engine.steps.preemption import step
from tests.allocation.engine.builders import placed, queued, running, scenario


def two_nodes(*, reserved: int = 0, gpus: int = 1) -> Snapshot:
    """Two nodes full with over-quota work of `other`, while a task of `team` waits."""
    return scenario(
        settings={"preemption": "reclaim"},
        pools=[
            {
                "name": "a",
                "profiles": ["one", "wanted"],
                "capacity": {"gpu": 4},
                "nodes": [{"name": name, "capacity": {"gpu": 2}} for name in ("n1", "n2")],
            }
        ],
        profiles=[
            {"name": "one", "request": {"gpu": 1}, "pools": ["a"]},
            {"name": "wanted", "request": {"gpu": gpus}, "pools": ["a"]},
        ],
        policies=[
            {"name": "other", "profiles": ["one"]},
            {"name": "team", "reserved": {"gpu": reserved}, "profiles": ["wanted"]},
        ],
        tasks=[
            *(running(f"r{n}", "other", "one", "a", node=f"n{n % 2 + 1}") for n in range(4)),
            queued("t", "team", "wanted"),
        ],
    )


class LookedAt(Exception):
    """Raised where the pass should not look."""


def look(*_: object) -> None:
    raise LookedAt


def test_nobody_looks_at_the_nodes_of_a_full_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_state.InitialState, "_nodes", look)

    [wait] = decide(two_nodes()).waiting

    [capacity] = [one for one in wait.reasons if one.code is ReasonCode.CAPACITY]
    assert [(one.free, one.largest) for one in capacity.details] == [(0, 0)]


def test_a_right_makes_a_pass_look_at_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_state.InitialState, "_nodes", look)

    with pytest.raises(LookedAt):
        decide(two_nodes(reserved=1))


def test_who_has_no_right_makes_nobody_look_for_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "find_candidate_groups", look)

    assert placed(decide(two_nodes())) == {}

    with pytest.raises(LookedAt):
        decide(two_nodes(reserved=1))


@pytest.mark.parametrize("gpus", [1, 2])
def test_unknown_placements_are_found_once_somebody_takes_them(gpus: int) -> None:
    plan = decide(two_nodes(reserved=2, gpus=gpus))

    assert placed(plan) == {"t": "a"}
    [place] = plan.placed
    assert len(plan.preempted) == gpus
    assert len({member.node for member in place.members}) == 1
