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
# A launch may fetch an image for as long as its registry likes: those of a node leave room for
# its sync and its stops, and those of a person there for the launches of others.
LAUNCHES_PER_NODE = 6
LAUNCHES_PER_NODE_AND_OWNER = 3
# Threads beyond, for members of gangs that are waited for: their image is there.
LAUNCHES_OF_READY = 8
# Stops have threads of their own, which a node that takes them and does not answer does not fill.
STOPS_AT_ONCE = 16
STOPS_PER_NODE = 4
PREFLIGHTS_AT_ONCE = 4
# What was held back is looked for once something has ended, not more often than this.
LOOK_AGAIN_S = 0.25
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
        # Node and owner of each member whose launch is under way, but for those that are ready.
        self._launches: dict[int, tuple[int, int]] = {}
        self._are_held_back = False
        self._looked_at = float("-inf")
        self._stops_sent: dict[int, float] = {}
        self._pools = {
            kind: ThreadPoolExecutor(size, thread_name_prefix=kind)
            for kind, size in (
                ("launch", LAUNCHES_AT_ONCE + LAUNCHES_OF_READY),
                ("stop", STOPS_AT_ONCE),
                ("preflight", PREFLIGHTS_AT_ONCE),
            )
        }
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
            for pool in self._pools.values():
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
            for pool in self._pools.values():
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
        self._looked_at = time.monotonic()
        self._are_held_back = False
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
        of_node = Counter(one.node_id for one in to_stop if self._is_under_way("stop", one.pk))
        for holding in to_stop:
            if of_node[holding.node_id] >= STOPS_PER_NODE:
                self._are_held_back = True
            elif self._stop_member(holding, ready):
                of_node[holding.node_id] += 1

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
        room = _Room(list(self._launches.values()))
        for holding in members_to_launch(ready, token=self.token):
            if holding.pk in under_way:
                continue
            place = (holding.node_id or 0, holding.attempt.task.owner_id)
            if holding.ready_at is None and not room.is_for(*place):
                self._are_held_back = True
            elif self._launch(holding, ready[place[0]]) and holding.ready_at is None:
                self._launches[holding.pk] = place
                room.take(*place)

    def _launch(self, holding: Holding, loop: NodeLoop) -> bool:
        """Whether the node can be asked."""
        client, clock = loop.client, loop.clock
        if client is None or clock is None:
            return False
        launch = partial(
            member_launch, holding_id=holding.pk, client=client, clock=clock, token=self.token
        )
        self._submit(("launch", holding.pk), launch)
        return True

    def _preflight(self, ready: dict[int, NodeLoop]) -> None:
        for node_id, loop in ready.items():
            if loop.is_preflight_due and loop.client is not None:
                self._submit(("preflight", node_id), partial(loop.preflight, loop.client))

    def _stop_member(self, holding: Holding, ready: dict[int, NodeLoop]) -> bool:
        """Whether it is sent now."""
        client = ready[holding.node_id or 0].client
        now = time.monotonic()
        if client is None or now - self._stops_sent.get(holding.pk, -STOP_AGAIN_S) < STOP_AGAIN_S:
            return False
        self._stops_sent[holding.pk] = now
        stop = partial(member_stop, holding=holding, client=client, token=self.token)
        self._submit(("stop", holding.pk), stop)
        return True

    def _is_under_way(self, kind: str, pk: int) -> bool:
        one = self._busy.get((kind, pk))
        return one is not None and not one.done()

    def _launching(self) -> frozenset[int]:
        """Members whose launch is under way here, by their rows; asked by the loops' threads."""
        exchanges = list(self._busy.items())
        return frozenset(pk for (kind, pk), one in exchanges if kind == "launch" and not one.done())

    def _submit(self, key: tuple[str, int], work: Callable[[], None]) -> None:
        if key not in self._busy:
            self._busy[key] = self._pools[key[0]].submit(_guarded, key, work)
            self._busy[key].add_done_callback(self._ended)

    def _ended(self, _done: Future[None]) -> None:
        if self._are_held_back:
            # A pause of this thread: a node that fails at once would else keep everybody looking.
            time.sleep(max(0.0, self._looked_at + LOOK_AGAIN_S - time.monotonic()))
            self.look()


class _Room:
    """How many launches are under way, by (node, owner) of each, and whether more may be.

    A person gets at most as many as they leave to all others.
    """

    def __init__(self, under_way: list[tuple[int, int]]) -> None:
        self._total = len(under_way)
        self._of_node = Counter(node_id for node_id, _ in under_way)
        self._of_owner = Counter(owner_id for _, owner_id in under_way)
        self._of_both = Counter(under_way)

    def is_for(self, node_id: int, owner_id: int) -> bool:
        free = LAUNCHES_AT_ONCE - self._total
        return (
            self._of_node[node_id] < LAUNCHES_PER_NODE
            and self._of_both[node_id, owner_id] < LAUNCHES_PER_NODE_AND_OWNER
            and self._of_owner[owner_id] < free
        )

    def take(self, node_id: int, owner_id: int) -> None:
        self._total += 1
        self._of_node[node_id] += 1
        self._of_owner[owner_id] += 1
        self._of_both[node_id, owner_id] += 1


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
