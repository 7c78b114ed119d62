"""Counters that processes share, and those of each process while Redis is away."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from apps.core import rate_counters
from apps.core.rate_counters import RateCounters, RateMeter
from apps.core.shared_redis import RETRY_AFTER_S, SharedRedis
from tests.services.timeouts import scale_timeout


@pytest.fixture
def counters() -> Iterator[RateCounters]:
    made = RateCounters()
    yield made
    made.clear()


@pytest.fixture
def alone(settings: Any) -> RateCounters:
    """A process that finds no Redis."""
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    return RateCounters()


def test_processes_count_together(counters: RateCounters) -> None:
    other = RateCounters()

    assert [counters.add("a", keep_s=900), other.add("a", 2, keep_s=900)] == [1, 3]
    other.hold("b", 900)
    assert 800 < counters.held_s(["none", "b"]) <= 900
    counters.forget(["a", "b"])
    assert other.held_s(["b"]) == 0
    assert other.add("a", keep_s=900) == 1


def test_without_redis_a_process_counts_by_itself_and_waits_for_nobody(alone: RateCounters) -> None:
    began = time.monotonic()

    assert [alone.add("a", keep_s=900) for _ in range(3)] == [1, 2, 3]
    alone.hold("b", 900)
    assert 800 < alone.held_s(["none", "b"]) <= 900
    assert alone.held_s(["none"]) == 0
    alone.forget(["a", "b"])
    assert alone.held_s(["b"]) == 0
    assert alone.add("a", keep_s=900) == 1
    assert time.monotonic() - began < scale_timeout(1)


def test_what_is_over_is_forgotten_without_redis_too(
    alone: RateCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone.add("a", keep_s=900)
    alone.hold("b", 900)
    later = time.monotonic() + 901
    monkeypatch.setattr("apps.core.rate_counters.time.monotonic", lambda: later)

    assert alone.held_s(["b"]) == 0
    assert alone.add("a", keep_s=900) == 1


def test_a_redis_that_is_back_is_asked_again(
    settings: Any, alone: RateCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = settings.REDIS_URL
    alone.add("a", keep_s=900)
    assert there == "redis://127.0.0.1:1/0"
    calls: list[str] = []
    monkeypatch.setattr(SharedRedis, "_redis", lambda _: calls.append("asked"))

    alone.held_s(["a"])
    assert calls == []

    later = time.monotonic() + RETRY_AFTER_S
    monkeypatch.setattr("apps.core.rate_counters.time.monotonic", lambda: later + 1)
    with pytest.raises(AttributeError):
        alone.held_s(["a"])
    assert calls == ["asked"]


def test_the_limit_holds_for_all_processes_together(
    counters: RateCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_counters, "WINDOW_S", 10**9)
    meters = [RateMeter(counters), RateMeter(RateCounters())]

    waits = [meters[turn % 2].wait_s("key", limit=10) for turn in range(30)]

    assert waits[:10] == [0] * 10
    # Until they share their counts, each may let through what is free for it.
    assert waits.count(0) <= 20
    assert all(waits[20:])


def test_many_requests_cost_few_reads_of_redis(
    counters: RateCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_counters, "REPORT_EVERY_S", 3600)
    monkeypatch.setattr(rate_counters, "WINDOW_S", 10**9)
    shared: list[int] = []
    meter = RateMeter(counters)
    plain = counters.add

    def listening(key: str, amount: int = 1, *, keep_s: float) -> int:
        shared.append(amount)
        return plain(key, amount, keep_s=keep_s)

    counters.add = listening  # type: ignore[method-assign]  # to see what is shared
    for _ in range(1000):
        assert meter.wait_s("key", limit=5000) == 0

    assert shared == [1]


def test_no_limit_counts_nothing(alone: RateCounters) -> None:
    assert RateMeter(alone).wait_s("key", limit=0) == 0
