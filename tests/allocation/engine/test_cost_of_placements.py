"""Members are located once for all passes over the same running work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apps.allocation.engine import Engine
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.engine.state import initial_state
from tests.allocation.engine.builders import placed, queued, running, scenario


class LookedAt(Exception):
    """Raised where the pass should not look."""


def look(*_: object) -> None:
    raise LookedAt


def torn() -> Snapshot:
    """Two nodes with one free GPU each, and a task that waits for two on one node."""
    return scenario(
        pools=[
            {
                "name": "a",
                "profiles": ["one", "two"],
                "capacity": {"gpu": 4},
                "nodes": [{"name": name, "capacity": {"gpu": 2}} for name in ("n1", "n2")],
            }
        ],
        profiles=[
            {"name": "one", "request": {"gpu": 1}, "pools": ["a"]},
            {"name": "two", "request": {"gpu": 2}, "pools": ["a"]},
        ],
        policies=[{"name": "team", "profiles": ["one", "two"]}],
        tasks=[
            running("r1", "team", "one", "a", node="n1", devices=[[[0, 1]]]),
            running("r2", "team", "one", "a", node="n2", devices=[[[1, 1]]]),
            queued("t", "team", "two"),
        ],
    )


def test_the_same_running_work_is_not_seated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = torn()
    engine = Engine()
    plan = engine.decide(snapshot)
    monkeypatch.setattr(initial_state, "_take_known", look)

    assert engine.decide(replace(snapshot, now_us=1)) == plan
    with pytest.raises(LookedAt):
        engine.decide(torn())


def test_what_ended_since_the_last_pass_has_left_its_node() -> None:
    snapshot = torn()
    engine = Engine()
    assert placed(engine.decide(snapshot)) == {}

    [group] = snapshot.running
    later = replace(snapshot, running=(replace(group, tasks=group.tasks[1:]),))

    [place] = engine.decide(later).placed
    assert [member.node for member in place.members] == ["n1"]
    assert placed(engine.decide(snapshot)) == {}


def test_placing_leaves_alone_what_is_kept() -> None:
    snapshot = torn()
    [group] = snapshot.running
    freed = replace(snapshot, running=(replace(group, tasks=group.tasks[1:]),))

    engine = Engine()

    assert engine.decide(freed) == engine.decide(freed)
