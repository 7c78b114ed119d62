"""Notifications reach the broker and the browsers, and losing them breaks nothing."""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TypeVar

import pytest
import redis
from asgiref.sync import async_to_sync, sync_to_async
from celery import current_app
from channels.layers import get_channel_layer

from apps.core import notifications
from apps.core.notifications import Notifier, after_commit, channel_name, group_name, listen
from tests.services import ports

BROKEN = "redis+socket:///nowhere/redis.sock"

T = TypeVar("T")


@pytest.fixture
def broker() -> redis.Redis:
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    client.delete("celery")
    return client


def in_a_thread(work: Callable[[], T]) -> T:
    """The sender has threads of its own; that of a test may hold the loop of a browser."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def _names(broker: redis.Redis) -> list[str]:
    return [json.loads(one)["headers"]["task"] for one in broker.lrange("celery", 0, -1)]


def test_a_burst_of_notifications_is_sent_once_each(broker: redis.Redis) -> None:
    notifier = Notifier()
    for _ in range(100):
        notifier._tasks["allocation.run_pass"] = None
    notifier._tasks["accounts.send_mail"] = None

    in_a_thread(notifier.flush)

    assert sorted(_names(broker)) == ["accounts.send_mail", "allocation.run_pass"]


def test_a_topic_reaches_those_who_joined_its_group() -> None:
    layer = get_channel_layer()
    assert layer is not None

    notifier = Notifier()
    notifier._topics["queue.3"] = None

    async def scenario() -> dict[str, str]:
        channel = await layer.new_channel()
        await layer.group_add(group_name("queue.3"), channel)
        await sync_to_async(notifier.flush)()
        message: dict[str, str] = await layer.receive(channel)
        return message

    assert in_a_thread(async_to_sync(scenario))["topic"] == "queue.3"


@pytest.mark.django_db
def test_what_is_not_committed_notifies_nothing(broker: redis.Redis) -> None:
    # The test's own transaction never commits.
    after_commit(notify=["allocation.run_pass"])

    assert _names(broker) == []


def test_a_broker_that_is_away_costs_one_line_and_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise redis.ConnectionError("nobody is there")

    notifier = Notifier()
    monkeypatch.setattr(current_app, "send_task", refuse)
    with caplog.at_level(logging.INFO, logger="apps.core.notifications"):
        for _ in range(5):
            notifier._tasks["allocation.run_pass"] = None
            in_a_thread(notifier.flush)
        monkeypatch.undo()
        notifier._tasks["allocation.run_pass"] = None
        in_a_thread(notifier.flush)

    assert len([record for record in caplog.records if "lost" in record.getMessage()]) == 1
    assert len([record for record in caplog.records if "restored" in record.getMessage()]) == 1


def test_pauses_are_short_at_first_and_grow_with_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    notifier = Notifier()
    pauses: list[float] = []

    def note(pause_s: float) -> None:
        # Each pause ends with the next notification, and the last one with the end.
        pauses.append(pause_s)
        notifier._is_closing = len(pauses) == 7
        notifier.notify(tasks=["execution.poll"])

    monkeypatch.setattr(notifications, "time", SimpleNamespace(sleep=note))
    monkeypatch.setattr(notifier, "_flush", lambda _: None)
    notifier.notify(tasks=["execution.poll"])
    assert notifier._thread is not None
    notifier._thread.join()

    assert pauses == [0.005, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1]


def test_a_process_that_ends_at_once_has_notified_before(broker: redis.Redis) -> None:
    notifier = Notifier()
    notifier.notify(tasks=["accounts.send_mail"])
    notifier.notify(tasks=["allocation.run_pass"])

    notifier.close()

    assert sorted(_names(broker)) == ["accounts.send_mail", "allocation.run_pass"]


@dataclass
class Listeners:
    """Processes that listen, as threads; `received` counts what each of them received."""

    broker: redis.Redis
    received: list[int] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        number = len(self.received)
        self.received.append(0)

        def receive() -> None:
            self.received[number] += 1

        self.threads.append(
            threading.Thread(target=listen, args=("execution.poll", receive, self.stopped))
        )
        self.threads[-1].start()

    def wait_connected(self) -> None:
        channel = channel_name("execution.poll")
        ports.wait_until(
            lambda: dict(self.broker.pubsub_numsub(channel))[channel.encode()] == len(self.threads),
            what="every listener subscribed",
            timeout_s=20,
        )

    def end(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def listeners(broker: redis.Redis) -> Iterator[Listeners]:
    found = Listeners(broker)
    yield found
    found.end()


def _broadcast() -> None:
    notifier = Notifier()
    notifier._tasks["execution.poll"] = None
    in_a_thread(notifier.flush)


def test_every_process_that_listens_receives_a_broadcast_and_no_worker(
    broker: redis.Redis, listeners: Listeners
) -> None:
    listeners.start()
    listeners.start()
    listeners.wait_connected()

    _broadcast()

    ports.wait_until(lambda: listeners.received == [1, 1], what="received", timeout_s=20)
    assert _names(broker) == []


def test_a_listener_whose_connection_is_cut_connects_again(
    broker: redis.Redis, listeners: Listeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "LISTEN_AGAIN_S", 0.05)
    listeners.start()
    listeners.wait_connected()

    assert broker.client_kill_filter(_type="pubsub") >= 1
    listeners.wait_connected()
    _broadcast()

    ports.wait_until(lambda: listeners.received == [1], what="received", timeout_s=20)


def test_a_listener_leaves_a_connection_that_stays_quiet(
    broker: redis.Redis, listeners: Listeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "LISTEN_QUIET_S", 0.01)
    monkeypatch.setattr(notifications, "LISTEN_STEP_S", 0.01)
    made: list[redis.Redis] = []
    connect = notifications._connection

    def note() -> redis.Redis:
        made.append(connect())
        return made[-1]

    monkeypatch.setattr(notifications, "_connection", note)
    listeners.start()

    ports.wait_until(lambda: len(made) > 2, what="new connections", timeout_s=20)
