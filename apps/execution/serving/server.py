"""Serves nodes from this process: claims them, keeps a loop for each, launches and stops."""

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import structlog
from django.conf import settings
from django.db import DatabaseError, connections
from django.db.models import Q
from django.utils import timezone

from apps.execution.connections import installation_key
from apps.execution.selectors import (
    attempts_never_started,
    attempts_over_time,
    attempts_stranded,
    members_to_launch,
    members_to_stop,
)
from apps.execution.services.starting import member_launch, member_stop
from apps.execution.serving.loop import NodeLoop
from apps.nodes.models import Node
from apps.tasks.models import Holding
from apps.tasks.services.attempts import attempt_end_unstarted, attempt_stop
from apps.tasks.services.withdrawing import attempt_withdraw
from apps.tasks.states import TaskState

log = structlog.get_logger(__name__)

# The doorbell may get lost, and other processes may have heard it: this is the net below.
LOOK_EVERY_S = 1.0
CLAIM_FOR = timedelta(seconds=45)
CLAIM_EVERY_S = 10.0
EXCHANGES_AT_ONCE = 32
# Nodes hold their answers for up to a tick; processes that are told to end are not waited longer.
ENDS_WITHIN_S = 3.0
# A stop that was sent is sent again after so long; nodes take it as the same one.
STOP_AGAIN_S = 15.0
STRANDED = "Its node fell silent before it started."


class NodeServer:
    """One per process. `look()` may be called from any thread, as often as one likes."""

    def __init__(self) -> None:
        self.token = uuid.uuid4().hex
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._loops: dict[int, NodeLoop] = {}
        self._busy: dict[tuple[str, int], Future[None]] = {}
        self._stops_sent: dict[int, float] = {}
        self._claimed_at = float("-inf")
        self._pool = ThreadPoolExecutor(EXCHANGES_AT_ONCE, thread_name_prefix="exchange")
        self._thread = threading.Thread(target=self._run, name="node-server", daemon=True)

    def start(self) -> None:
        """Begin to serve, in threads of this process."""
        self._thread.start()

    def look(self) -> None:
        """Look in the database now."""
        self._wake.set()

    def stop(self) -> None:
        """Let go of every node, so that another process can take them at once."""
        self._stopped.set()
        self._wake.set()
        for loop in list(self._loops.values()):
            loop.stop()
        try:
            Node.objects.filter(served_by=self.token).update(served_by="", served_until=None)
        except DatabaseError:
            # Its claims then end by themselves.
            log.exception("serving.release_failed")
        finally:
            connections.close_all()
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._join()

    def _join(self) -> None:
        """Wait for the exchanges under way: another process may begin its own at once."""
        deadline = time.monotonic() + ENDS_WITHIN_S
        threads = [self._thread, *(loop.thread for loop in self._loops.values())]
        for thread in threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def join(self, *, timeout_s: float) -> None:
        """Wait until every thread has ended; an exchange under way may take its time."""
        until = time.monotonic() + timeout_s
        for thread in [self._thread, *(loop.thread for loop in self._loops.values())]:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))
        self._pool.shutdown(wait=True)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            try:
                self._look_once()
            except Exception:
                # A database that is away comes back; nodes go on meanwhile.
                log.exception("serving.look_failed")
            finally:
                connections.close_all()
            self._wake.wait(LOOK_EVERY_S)

    def _look_once(self) -> None:
        self._claim()
        self._busy = {key: future for key, future in self._busy.items() if not future.done()}
        ready = {
            node_id: loop
            for node_id, loop in self._loops.items()
            if not loop.is_over and loop.client is not None and loop.clock is not None
        }
        for attempt_id in attempts_stranded():
            attempt_withdraw(attempt_id=attempt_id, detail=STRANDED)
        for attempt_id in attempts_never_started():
            attempt_end_unstarted(attempt_id=attempt_id)
        for attempt_id, limit_s in attempts_over_time():
            words = f"Its time limit of {limit_s} s is over."
            attempt_stop(attempt_id=attempt_id, target=TaskState.FAILED, detail=words)
        if not ready:
            return
        for holding in members_to_launch(ready):
            self._launch(holding, ready)
        to_stop = list(members_to_stop(ready))
        known = {holding.pk for holding in to_stop}
        self._stops_sent = {pk: at for pk, at in self._stops_sent.items() if pk in known}
        for holding in to_stop:
            self._stop_member(holding, ready)

    def _claim(self) -> None:
        """Take nodes that nobody serves, and renew those served here."""
        now = timezone.now()
        free = Q(served_by="") | Q(served_until__isnull=True) | Q(served_until__lt=now)
        nodes = Node.objects.filter(removed_at__isnull=True)
        age_s = time.monotonic() - self._claimed_at
        if age_s < CLAIM_EVERY_S and not nodes.filter(free).exists():
            return
        self._claimed_at = time.monotonic()
        nodes.filter(free | Q(served_by=self.token)).update(
            served_by=self.token, served_until=now + CLAIM_FOR
        )
        mine = Node.objects.filter(served_by=self.token, removed_at__isnull=True)
        for node_id in mine.values_list("pk", flat=True):
            loop = self._loops.get(node_id)
            if loop is None or loop.is_over:
                self._begin(node_id)

    def _begin(self, node_id: int) -> None:
        loop = NodeLoop(
            node_id,
            token=self.token,
            installation=installation_key(),
            tick_s=settings.SYNC_TICK_S,
        )
        self._loops[node_id] = loop
        loop.thread.start()

    def _launch(self, holding: Holding, ready: dict[int, NodeLoop]) -> None:
        loop = ready[holding.node_id or 0]
        client, clock = loop.client, loop.clock
        if client is None or clock is None:
            return
        launch = partial(
            member_launch, holding_id=holding.pk, client=client, clock=clock, token=self.token
        )
        self._submit(("launch", holding.pk), launch)

    def _stop_member(self, holding: Holding, ready: dict[int, NodeLoop]) -> None:
        client = ready[holding.node_id or 0].client
        now = time.monotonic()
        if client is None or now - self._stops_sent.get(holding.pk, -STOP_AGAIN_S) < STOP_AGAIN_S:
            return
        self._stops_sent[holding.pk] = now
        self._submit(("stop", holding.pk), partial(member_stop, holding=holding, client=client))

    def _submit(self, key: tuple[str, int], work: Callable[[], None]) -> None:
        if key not in self._busy:
            self._busy[key] = self._pool.submit(_guarded, key, work)


def _guarded(key: tuple[str, int], work: Callable[[], None]) -> None:
    """A failure in a thread of the pool is logged, not lost; the database says what to do next."""
    try:
        work()
    except Exception:
        log.exception("serving.exchange_failed", what=key[0], holding=key[1])
    finally:
        connections.close_all()
