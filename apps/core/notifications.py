"""Notifications to workers and browsers that something in the database changed.

A notification may be lost, doubled or late: beat notifies again every few seconds, and pages fetch
again after a gap. So no caller waits for the broker: one thread of the process collects
notifications for a moment and sends each once. One Celery worker receives it, except for those of
`BROADCAST`, which every process receives that listens.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

import redis
import structlog
from celery import current_app
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import transaction
from redis.backoff import NoBackoff
from redis.retry import Retry

# A notification that follows another, as that of a pass after an end, is not delayed. In a burst
# each pause is twice the one before, up to one that merges very many notifications into few.
FIRST_PAUSE_S = 0.005
COLLECT_S = 0.1
CLOSE_WITHIN_S = 2.0
# A broker that takes longer has lost the notification: others wait behind it.
SEND_WITHIN_S = 5.0
NOTIFY_ALLOCATION: Final = "allocation.run_pass"
NOTIFY_EXECUTION: Final = "execution.poll"
BROADCAST = frozenset({NOTIFY_EXECUTION})
# A signal to end is looked for so often, and a connection that brings nothing is renewed: it may
# have been silent because its other end is gone.
LISTEN_STEP_S = 0.5
LISTEN_QUIET_S = 30.0
LISTEN_AGAIN_S = 1.0

log = structlog.get_logger(__name__)


class Notifier:
    """Collects names of background work and live topics, and sends them from its own thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._tasks: dict[str, None] = {}
        self._topics: dict[str, None] = {}
        self._thread: threading.Thread | None = None
        self._is_broken = False
        self._is_closing = False
        self._redis: redis.Redis | None = None

    def notify(self, *, tasks: Iterable[str] = (), topics: Iterable[str] = ()) -> None:
        """Send soon; returns at once."""
        with self._lock:
            self._tasks.update(dict.fromkeys(tasks))
            self._topics.update(dict.fromkeys(topics))
            # After a fork the child has no thread, whatever its copy of this object says.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
                self._thread.start()
        self._wake.set()

    def flush(self) -> None:
        """Send now what was collected, in this thread."""
        with asyncio.Runner() as runner:
            self._flush(runner)

    def _flush(self, runner: asyncio.Runner) -> None:
        with self._lock:
            tasks, self._tasks = list(self._tasks), {}
            topics, self._topics = list(self._topics), {}
        self._send(tasks, topics, runner)

    def close(self) -> None:
        """Let the thread send what is left; a process that ends at once would take it along."""
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_WITHIN_S)

    def _run(self) -> None:
        # One event loop for the life of the thread: the channel layer keeps a connection per loop.
        with asyncio.Runner() as runner:
            pause_s = FIRST_PAUSE_S
            while True:
                if not self._wake.wait(COLLECT_S):
                    # The burst is over: the next notification goes out at once.
                    pause_s = FIRST_PAUSE_S
                    self._wake.wait()
                self._wake.clear()
                self._flush(runner)
                if self._is_closing:
                    return
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, COLLECT_S)

    def _send(self, tasks: list[str], topics: list[str], runner: asyncio.Runner) -> None:
        """Send all, or give up at the first that fails: the others would wait for nothing."""
        try:
            for name in tasks:
                if name in BROADCAST:
                    self._broadcast(name)
                else:
                    current_app.send_task(name, retry=False, ignore_result=True)
            if topics:
                runner.run(_announce(topics))
        except Exception as error:  # noqa: BLE001  # it may be lost, by any error
            self._note(error)
        else:
            self._note(None)

    def _broadcast(self, name: str) -> None:
        if self._redis is None:
            self._redis = _connection()
        self._redis.publish(channel_name(name), b"")

    def _note(self, error: Exception | None) -> None:
        """Log one line when the broker goes away and one when it is back."""
        if error is not None and not self._is_broken:
            log.warning("notification.lost", error=str(error))
        elif error is None and self._is_broken:
            log.info("notification.restored")
        self._is_broken = error is not None


async def _announce(topics: list[str]) -> None:
    layer = get_channel_layer()
    if layer is None:
        return
    async with asyncio.timeout(SEND_WITHIN_S):
        for topic in topics:
            message = {"type": "live.changed", "topic": topic}
            await layer.group_send(group_name(topic), message)


_notifier = Notifier()


def after_commit(*, notify: Iterable[str] = (), topics: Iterable[str] = ()) -> None:
    """Notify workers and browsers once the transaction commits.

    Args:
        notify: `NOTIFY_ALLOCATION`, `NOTIFY_EXECUTION`.
        topics: e.g. `"queue.3"`, `"task.<id>"`, `"overview"`.
    """
    names, changed = tuple(notify), tuple(topics)
    transaction.on_commit(lambda: _notifier.notify(tasks=names, topics=changed))


def notify_now(*, tasks: Iterable[str] = (), topics: Iterable[str] = ()) -> None:
    """For the fast path, which commits by itself before it calls this."""
    _notifier.notify(tasks=tasks, topics=topics)


def notifier_close() -> None:
    """For commands, which end as soon as they are done."""
    _notifier.close()


def listen(name: str, received: Callable[[], None], stopped: threading.Event) -> None:
    """Call `received` for each notification of a name of `BROADCAST`, until `stopped` is set.

    Some may be lost: a listener looks at the database by itself as well.
    """
    is_connected = True
    while not stopped.is_set():
        try:
            with _connection() as client, client.pubsub(ignore_subscribe_messages=True) as channel:
                channel.subscribe(channel_name(name))
                if not is_connected:
                    log.info("notification.listener_connected")
                is_connected = True
                _receive(channel, received, stopped)
        except redis.RedisError as error:
            if is_connected:
                log.warning("notification.listener_disconnected", error=str(error))
            is_connected = False
            stopped.wait(LISTEN_AGAIN_S)


def _receive(
    channel: redis.client.PubSub, received: Callable[[], None], stopped: threading.Event
) -> None:
    quiet_since = time.monotonic()
    while not stopped.is_set() and time.monotonic() - quiet_since < LISTEN_QUIET_S:
        if channel.get_message(timeout=LISTEN_STEP_S) is not None:
            received()
            quiet_since = time.monotonic()


def _connection() -> redis.Redis:
    # Its default of ten tries, each with its own time limit, would take minutes.
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=SEND_WITHIN_S,
        socket_connect_timeout=SEND_WITHIN_S,
        retry=Retry(NoBackoff(), 0),
    )


def channel_name(name: str) -> str:
    """The Redis channel of a notification that all listening processes receive."""
    return f"rpm.notify.{name}"


def group_name(topic: str) -> str:
    """The Channels group of a topic; a socket joins it after its permission check."""
    return f"live.{topic}"
