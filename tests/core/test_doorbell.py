"""Hints reach the broker and the browsers, and losing them harms nobody."""

import json
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TypeVar

import pytest
import redis
from asgiref.sync import async_to_sync, sync_to_async
from celery import current_app
from channels.layers import get_channel_layer

from apps.core import doorbell
from apps.core.doorbell import Doorbell, after_commit, group_name

BROKEN = "redis+socket:///nowhere/redis.sock"

T = TypeVar("T")


@pytest.fixture
def broker() -> redis.Redis:
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    client.delete("celery")
    return client


def in_a_thread(work: Callable[[], T]) -> T:
    """The bell rings in threads of its own; that of a test may hold the loop of a browser."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def _names(broker: redis.Redis) -> list[str]:
    return [json.loads(one)["headers"]["task"] for one in broker.lrange("celery", 0, -1)]


def test_a_burst_of_hints_is_sent_once_each(broker: redis.Redis) -> None:
    bell = Doorbell()
    for _ in range(100):
        bell._tasks["allocation.run_pass"] = None
    bell._tasks["execution.look"] = None

    in_a_thread(bell.flush)

    assert sorted(_names(broker)) == ["allocation.run_pass", "execution.look"]


def test_a_topic_reaches_those_who_joined_its_group() -> None:
    layer = get_channel_layer()
    assert layer is not None

    bell = Doorbell()
    bell._topics["queue.3"] = None

    async def scenario() -> dict[str, str]:
        channel = await layer.new_channel()
        await layer.group_add(group_name("queue.3"), channel)
        await sync_to_async(bell.flush)()
        message: dict[str, str] = await layer.receive(channel)
        return message

    assert in_a_thread(async_to_sync(scenario))["topic"] == "queue.3"


@pytest.mark.django_db
def test_what_is_not_committed_rings_nothing(broker: redis.Redis) -> None:
    # The test's own transaction never commits.
    after_commit(tasks=["allocation.run_pass"])

    assert _names(broker) == []


def test_a_broker_that_is_away_costs_one_line_and_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise redis.ConnectionError("nobody is there")

    bell = Doorbell()
    monkeypatch.setattr(current_app, "send_task", refuse)
    with caplog.at_level(logging.INFO, logger="apps.core.doorbell"):
        for _ in range(5):
            bell._tasks["execution.look"] = None
            in_a_thread(bell.flush)
        monkeypatch.undo()
        bell._tasks["execution.look"] = None
        in_a_thread(bell.flush)

    assert len([record for record in caplog.records if "lost" in record.getMessage()]) == 1
    assert len([record for record in caplog.records if "back" in record.getMessage()]) == 1


def test_pauses_are_short_at_first_and_grow_with_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    bell = Doorbell()
    pauses: list[float] = []

    def note(pause_s: float) -> None:
        # Each pause hears of the next hint, and the last one of the end.
        pauses.append(pause_s)
        bell._is_closing = len(pauses) == 7
        bell.ring(tasks=["execution.look"])

    monkeypatch.setattr(doorbell, "time", SimpleNamespace(sleep=note))
    monkeypatch.setattr(bell, "_flush", lambda _: None)
    bell.ring(tasks=["execution.look"])
    assert bell._thread is not None
    bell._thread.join()

    assert pauses == [0.005, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1]


def test_a_process_that_ends_at_once_has_rung_before(broker: redis.Redis) -> None:
    bell = Doorbell()
    bell.ring(tasks=["execution.look"])
    bell.ring(tasks=["allocation.run_pass"])

    bell.close()

    assert sorted(_names(broker)) == ["allocation.run_pass", "execution.look"]
