"""Serves nodes from this process: claims them, keeps a loop for each, launches and stops."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import structlog
from django.conf import settings
from django.db import DatabaseError, connections

from apps.execution.connections import installation_key
from apps.execution.selectors import members_to_launch, members_to_stop
from apps.execution.services.guarding import NotServing
from apps.execution.services.restoring import trust_now
from apps.execution.services.starting import member_launch, member_stop
from apps.execution.serving.claims import Claims
from apps.execution.serving.identity import process_token
from apps.execution.serving.loop import NodeLoop
from apps.execution.serving.sweeps import Sweeps
from apps.nodes.models import Node
from apps.tasks.models import Holding

log = structlog.get_logger(__name__)

# The doorbell may get lost, and other processes may have heard it: this is the net below.
LOOK_EVERY_S = 1.0
LAUNCHES_AT_ONCE = 32
# A launch may fetch an image for minutes: a node's others leave room for its sync and its stops,
# and a person's for the launches of others.
LAUNCHES_PER_NODE = 6
LAUNCHES_PER_OWNER = 16
# Stops and preflights have threads of their own: neither waits until an image is there.
OTHERS_AT_ONCE = 16
# Nodes hold their answers for up to a tick; processes that are told to end are not waited longer.
ENDS_WITHIN_S = 3.0
# A stop that was sent is sent again after so long; nodes take it as the same one.
STOP_AGAIN_S = 15.0


class NodeServer:
    """One per process. `look()` may be called from any thread, as often as one likes."""

    def __init__(self) -> None:
        self.token = process_token()
        self._claims = Claims(self.token, self.look)
        self._sweeps = Sweeps(self.token)
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._loops: dict[int, NodeLoop] = {}
        self._busy: dict[tuple[str, int], Future[None]] = {}
        # The nodes and owners of the members whose launch is under way, and who waits beside them.
        self._launches: dict[int, tuple[int, int]] = {}
        self._are_held_back = False
        self._stops_sent: dict[int, float] = {}
        self._launchers = ThreadPoolExecutor(LAUNCHES_AT_ONCE, thread_name_prefix="launch")
        self._others = ThreadPoolExecutor(OTHERS_AT_ONCE, thread_name_prefix="exchange")
        self._thread = threading.Thread(target=self._run, name="node-server", daemon=True)

    def start(self) -> None:
        """Begin to serve, in threads of this process."""
        self._claims.start()
        self._thread.start()

    def look(self) -> None:
        """Look in the database now."""
        self._wake.set()

    def stop(self) -> None:
        """Let go of every node, so that another process can take them at once."""
        self._stopped.set()
        self._wake.set()
        self._claims.stop()
        for loop in list(self._loops.values()):
            loop.stop()
        try:
            self._claims.release()
        except DatabaseError:
            # Its claims then end by themselves.
            log.exception("serving.release_failed")
        finally:
            connections.close_all()
            for pool in (self._launchers, self._others):
                pool.shutdown(wait=False, cancel_futures=True)
        self.join(timeout_s=ENDS_WITHIN_S, exchanges_too=False)

    def join(self, *, timeout_s: float, exchanges_too: bool = True) -> None:
        """Wait until every thread has ended; an exchange under way may take its time."""
        until = time.monotonic() + timeout_s
        loops = [loop.thread for loop in self._loops.values()]
        for thread in [self._thread, self._claims.thread, *loops]:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))
        if exchanges_too:
            for pool in (self._launchers, self._others):
                pool.shutdown(wait=True)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            next_s = LOOK_EVERY_S
            try:
                next_s = min(LOOK_EVERY_S, self._look_once())
            except Exception:
                # A database that is away comes back; nodes go on meanwhile.
                log.exception("serving.look_failed")
            finally:
                connections.close_all()
            self._wake.wait(next_s)

    def _look_once(self) -> float:
        """Do what is due; seconds until more is, at most."""
        self._tend_loops()
        self._busy = {key: future for key, future in self._busy.items() if not future.done()}
        # Somebody waits for these; what the sweeps find has mostly been due for a while.
        self._launch_and_stop()
        return self._sweeps.sweep(self._loops)

    def _launch_and_stop(self) -> None:
        ready = {
            node_id: loop
            for node_id, loop in self._loops.items()
            if not loop.is_over and loop.client is not None and loop.clock is not None
        }
        if not ready:
            return
        # What was to be launched when a backup was made may have been launched since.
        if not trust_now().is_doubted:
            self._launch_due(ready)
        self._preflight(ready)
        to_stop = list(members_to_stop(ready))
        known = {holding.pk for holding in to_stop}
        self._stops_sent = {pk: at for pk, at in self._stops_sent.items() if pk in known}
        for holding in to_stop:
            self._stop_member(holding, ready)

    def _tend_loops(self) -> None:
        """A loop for every node that is claimed, and for no other."""
        mine = self._claims.mine
        for node_id, loop in list(self._loops.items()):
            if node_id not in mine:
                loop.stop()
                del self._loops[node_id]
        wanted = [pk for pk in mine if pk not in self._loops or self._loops[pk].is_over]
        for node in Node.objects.filter(pk__in=wanted):
            self._loops[node.pk] = NodeLoop(
                node,
                token=self.token,
                installation=installation_key(),
                tick_s=settings.SYNC_TICK_S,
                launching=self._launching,
            )
            self._loops[node.pk].thread.start()

    def _launch_due(self, ready: dict[int, NodeLoop]) -> None:
        """Launch what is due, as far as its node and its owner have room for it."""
        under_way = self._launching()
        self._launches = {pk: one for pk, one in self._launches.items() if pk in under_way}
        of_node = Counter(node_id for node_id, _ in self._launches.values())
        of_owner = Counter(owner_id for _, owner_id in self._launches.values())
        self._are_held_back = False
        for holding in members_to_launch(ready, token=self.token):
            if holding.pk in self._launches:
                continue
            node_id, owner_id = holding.node_id or 0, holding.attempt.task.owner_id
            if of_node[node_id] >= LAUNCHES_PER_NODE or of_owner[owner_id] >= LAUNCHES_PER_OWNER:
                self._are_held_back = True
                continue
            if self._launch(holding, ready[node_id]):
                self._launches[holding.pk] = (node_id, owner_id)
                of_node[node_id] += 1
                of_owner[owner_id] += 1

    def _launch(self, holding: Holding, loop: NodeLoop) -> bool:
        """Whether the node can be asked."""
        client, clock = loop.client, loop.clock
        if client is None or clock is None:
            return False
        launch = partial(
            member_launch, holding_id=holding.pk, client=client, clock=clock, token=self.token
        )
        self._submit(self._launchers, ("launch", holding.pk), launch)
        self._busy["launch", holding.pk].add_done_callback(self._after_launch)
        return True

    def _after_launch(self, _done: Future[None]) -> None:
        if self._are_held_back:
            self.look()

    def _preflight(self, ready: dict[int, NodeLoop]) -> None:
        for node_id, loop in ready.items():
            if loop.is_preflight_due and loop.client is not None:
                self._submit(
                    self._others, ("preflight", node_id), partial(loop.preflight, loop.client)
                )

    def _stop_member(self, holding: Holding, ready: dict[int, NodeLoop]) -> None:
        client = ready[holding.node_id or 0].client
        now = time.monotonic()
        if client is None or now - self._stops_sent.get(holding.pk, -STOP_AGAIN_S) < STOP_AGAIN_S:
            return
        self._stops_sent[holding.pk] = now
        stop = partial(member_stop, holding=holding, client=client, token=self.token)
        self._submit(self._others, ("stop", holding.pk), stop)

    def _launching(self) -> frozenset[int]:
        """Members whose launch is under way here, by their rows; asked by the loops' threads."""
        exchanges = list(self._busy.items())
        return frozenset(pk for (kind, pk), one in exchanges if kind == "launch" and not one.done())

    def _submit(
        self, pool: ThreadPoolExecutor, key: tuple[str, int], work: Callable[[], None]
    ) -> None:
        if key not in self._busy:
            self._busy[key] = pool.submit(_guarded, key, work)


def _guarded(key: tuple[str, int], work: Callable[[], None]) -> None:
    """A failure in a thread of the pool is logged, not lost; the database says what to do next."""
    try:
        work()
    except NotServing:
        log.info("serving.left_to_another_process", what=key[0], holding=key[1])
    except Exception:
        log.exception("serving.exchange_failed", what=key[0], holding=key[1])
    finally:
        connections.close_all()
