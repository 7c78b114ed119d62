"""What passes over equal configurations share must not change what they decide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.engine.state import engine_cache
from tests.allocation.engine.builders import amounts, gpus, placed, queued, scenario


def two_wait(*, capacity: int = 2, limit: int = 8) -> Snapshot:
    return scenario(
        pools=[{"name": "a", "capacity": {"gpu": capacity}, "profiles": ["one"]}],
        profiles=[{"name": "one", "request": {"gpu": 1}, "pools": ["a"]}],
        policies=[{"name": "team", "limit": {"gpu": limit}, "profiles": ["one"]}],
        tasks=[queued("t1", "team", "one", 1), queued("t2", "team", "one", 2)],
    )


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_cache, "_cache", {})


def test_an_equal_configuration_is_compiled_once() -> None:
    decide(two_wait())
    [first] = engine_cache._cache.values()

    decide(two_wait())

    [second] = engine_cache._cache.values()
    assert second is first


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        pytest.param(two_wait(capacity=1), {"t1": "a"}, id="a smaller pool"),
        pytest.param(two_wait(limit=1), {"t1": "a"}, id="a lower limit"),
        pytest.param(
            replace(two_wait(), settings=replace(two_wait().settings, is_enabled=False)),
            {},
            id="switched off",
        ),
    ],
)
def test_a_changed_configuration_counts_at_once(changed: Snapshot, want: dict[str, str]) -> None:
    decide(two_wait())

    assert placed(decide(changed)) == want
    assert placed(decide(two_wait())) == {"t1": "a", "t2": "a"}


def test_a_key_that_only_a_task_asks_for_is_learnt_later() -> None:
    plain = two_wait()
    [queued] = plain.queued_groups
    asking = replace(plain, queued_groups=(replace(queued, request=amounts(gpu=1, license=1)),))
    decide(plain)

    assert placed(decide(asking)) == {}
    assert placed(decide(plain)) == {"t1": "a", "t2": "a"}


def test_other_requests_of_the_same_queue_are_not_confused() -> None:
    plain = two_wait()
    [queued] = plain.queued_groups
    larger = replace(plain, queued_groups=(replace(queued, request=gpus(2)),))

    assert placed(decide(plain)) == {"t1": "a", "t2": "a"}
    assert placed(decide(larger)) == {"t1": "a"}


def test_no_two_passes_use_the_same_at_the_same_time() -> None:
    decide(two_wait())

    mine = engine_cache.acquire(two_wait())
    other = engine_cache.acquire(two_wait())

    assert mine is not other


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for capacity in range(1, 3 * engine_cache.MOST_CACHED):
        decide(two_wait(capacity=capacity))
    assert len(engine_cache._cache) == engine_cache.MOST_CACHED

    monkeypatch.setattr(engine_cache, "MOST_SHAPES", 0)
    decide(two_wait(capacity=3 * engine_cache.MOST_CACHED - 1))
    assert len(engine_cache._cache) == engine_cache.MOST_CACHED - 1
