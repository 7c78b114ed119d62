"""Serves nodes from this process: claims them, keeps a loop for each, launches and stops."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import structlog
from django.conf import settings
from django.db import DatabaseError, connections

from apps.core.connections import connections_release
from apps.execution.connections import installation_key
from apps.execution.node_server.claims import Claims
from apps.execution.node_server.identity import process_token
from apps.execution.node_server.loop import NodeLoop
from apps.execution.node_server.periodic_checks import PeriodicChecks
from apps.execution.selectors import members_to_launch, members_to_stop
from apps.execution.services.member_launch import (
    MemberStart,
    member_launch,
    member_launch_continue,
    member_stop,
)
from apps.execution.services.node_ownership import NotServing
from apps.execution.services.restore_detection import database_trust
from apps.nodes.models import Node
from apps.tasks.models import Member

log = structlog.get_logger(__name__)

# A notification may get lost, or reach another process: polling finds what it announced.
POLL_EVERY_S = 1.0
LAUNCHES_AT_ONCE = 32
# An exchange may take as long as its node likes: those of a node leave capacity for its sync and
# its stops, and those of a user there for the launches of others.
LAUNCHES_PER_NODE = 6
LAUNCHES_PER_NODE_AND_OWNER = 3
# Threads beyond, for members of gangs that are waited for: their image is there.
LAUNCHES_OF_READY = 8
# A pull is polled, and holds no thread: soon at first, then seldom, as it has lasted.
POLL_FETCH_S = 1.0
POLL_FETCH_MOST_S = 5.0
POLL_FETCH_SHARE = 0.1
# Stops have threads of their own, which a node that takes them and does not answer does not fill.
STOPS_AT_ONCE = 16
STOPS_PER_NODE = 4
PREFLIGHTS_AT_ONCE = 4
PROBES_AT_ONCE = 16
# Nodes whose first connection begins with one poll.
CONNECTS_AT_ONCE = 50
# What was held back is looked for once something has ended, not more often than this.
POLL_AGAIN_S = 0.25
# Nodes hold their answers for up to a tick; a process that is asked to end waits no longer.
ENDS_WITHIN_S = 3.0
# A stop that was sent is sent again after so long; nodes take it as the same one.
STOP_AGAIN_S = 15.0


class NodeServer:
    """One per process. `wake()` may be called from any thread, as often as one likes."""

    def __init__(self) -> None:
        self.token = process_token()
        self._claims = Claims(self.token, self.wake)
        self._checks = PeriodicChecks(self.token)
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._loops: dict[int, NodeLoop] = {}
        self._busy: dict[tuple[str, int], Future[None]] = {}
        # Node and owner of each member whose launch is under way, but for those that are ready.
        self._launches: dict[int, tuple[int, int]] = {}
        self._running_pulls: dict[int, _RunningPull] = {}
        self._are_held_back = False
        self._polled_at = float("-inf")
        self._stops_sent: dict[int, float] = {}
        self._executors = {
            kind: ThreadPoolExecutor(size, thread_name_prefix=kind)
            for kind, size in (
                ("launch", LAUNCHES_AT_ONCE + LAUNCHES_OF_READY),
                ("stop", STOPS_AT_ONCE),
                ("preflight", PREFLIGHTS_AT_ONCE),
                ("probe", PROBES_AT_ONCE),
            )
        }
        self._thread = threading.Thread(target=self._run, name="node-server", daemon=True)

    def start(self) -> None:
        """Begin to serve, in threads of this process."""
        self._claims.start()
        self._thread.start()

    def wake(self) -> None:
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
            log.exception("node_server.release_failed")
        finally:
            connections.close_all()
            for executor in self._executors.values():
                executor.shutdown(wait=False, cancel_futures=True)
        self.join(timeout_s=ENDS_WITHIN_S, exchanges_too=False)

    def join(self, *, timeout_s: float, exchanges_too: bool = True) -> None:
        """Wait until every thread has ended; an exchange under way may take its time."""
        until = time.monotonic() + timeout_s
        loops = [loop.thread for loop in self._loops.values()]
        for thread in [self._thread, self._claims.thread, *loops]:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))
        if exchanges_too:
            for executor in self._executors.values():
                executor.shutdown(wait=True)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            next_s = POLL_EVERY_S
            try:
                next_s = min(POLL_EVERY_S, self._poll_once())
            except Exception:
                # A database that is away comes back; nodes go on meanwhile.
                log.exception("node_server.poll_failed")
            finally:
                connections_release()
            self._wake.wait(next_s)
        connections.close_all()

    def _poll_once(self) -> float:
        """Do what is due; seconds until more is, at most."""
        self._polled_at = time.monotonic()
        self._are_held_back = False
        self._update_loops()
        self._busy = {key: future for key, future in self._busy.items() if not future.done()}
        # Users wait for these; what the checks find has mostly been due for a while.
        self._launch_and_stop()
        return self._checks.run_checks(self._loops)

    def _launch_and_stop(self) -> None:
        ready = {
            node_id: loop
            for node_id, loop in self._loops.items()
            if not loop.is_over and loop.client is not None and loop.clock is not None
        }
        if not ready:
            return
        # What was to be launched when a backup was made may have been launched since.
        if not database_trust().is_doubted:
            self._launch_due(ready)
        self._preflight(ready)
        to_stop = list(members_to_stop(ready))
        known = {member.pk for member in to_stop}
        self._stops_sent = {pk: at for pk, at in self._stops_sent.items() if pk in known}
        of_node = Counter(one.node_id for one in to_stop if self._is_under_way("stop", one.pk))
        for member in to_stop:
            if of_node[member.node_id] >= STOPS_PER_NODE:
                self._are_held_back = True
            elif self._stop_member(member, ready):
                of_node[member.node_id] += 1

    def _update_loops(self) -> None:
        """A loop for every node that is claimed, and for no other."""
        mine = self._claims.mine
        for node_id, loop in list(self._loops.items()):
            if node_id not in mine:
                loop.stop()
                del self._loops[node_id]
        wanted = [pk for pk in mine if pk not in self._loops or self._loops[pk].is_over]
        # Handshakes cost processor time on both sides: the others begin with the next polls.
        for node in Node.objects.filter(pk__in=wanted[:CONNECTS_AT_ONCE]):
            self._loops[node.pk] = NodeLoop(
                node,
                token=self.token,
                installation=installation_key(),
                tick_s=settings.SYNC_TICK_S,
                launching=self._launching,
                submit=self._executors["probe"].submit,
            )
            self._loops[node.pk].thread.start()

    def _launch_due(self, ready: dict[int, NodeLoop]) -> None:
        """Launch what is due, as far as its node and its owner have free launch slots."""
        exchanges = self._launch_exchanges()
        self._launches = {pk: one for pk, one in self._launches.items() if pk in exchanges}
        slots = _LaunchSlots(list(self._launches.values()))
        under_way = self._launching()
        for member in members_to_launch(ready, token=self.token):
            if member.pk in under_way:
                continue
            launch = partial(member_launch, member_id=member.pk, token=self.token)
            owner_key = (member.node_id or 0, member.attempt.task.owner_id)
            loop, now = ready[owner_key[0]], time.monotonic()
            if member.ready_at is None and not slots.has_free(*owner_key):
                self._are_held_back = True
            elif self._launch(member.pk, loop, launch, now) and member.ready_at is None:
                self._take(slots, member.pk, owner_key)
        # Afterwards: polls of pulls that take long leave the slots to launches.
        self._continue_pulls(ready, slots)

    def _continue_pulls(self, ready: dict[int, NodeLoop], slots: "_LaunchSlots") -> None:
        """Ask after the images that are due; those of nodes that do not answer wait for them."""
        for pk, pull in list(self._running_pulls.items()):
            member = pull.start.member
            owner_key = (member.node_id or 0, member.attempt.task.owner_id)
            if owner_key[0] not in self._loops:
                # Another process launches what is to be launched there.
                del self._running_pulls[pk]
            elif owner_key[0] not in ready or time.monotonic() < pull.due_at:
                continue
            elif not slots.has_free(*owner_key):
                self._are_held_back = True
            else:
                go_on = partial(member_launch_continue, pull.start)
                if self._launch(pk, ready[owner_key[0]], go_on, pull.began_at):
                    self._take(slots, pk, owner_key)

    def _take(self, slots: "_LaunchSlots", pk: int, owner_key: tuple[int, int]) -> None:
        self._launches[pk] = owner_key
        slots.take(*owner_key)

    def _launch(
        self, pk: int, loop: NodeLoop, launch: Callable[..., MemberStart | None], began_at: float
    ) -> bool:
        """Whether the node is asked now."""
        client, clock = loop.client, loop.clock
        if client is None or clock is None:
            return False
        pull = self._running_pulls.get(pk)

        def go_on() -> None:
            start = None
            try:
                start = launch(client=client, clock=clock)
            finally:
                if start is None:
                    self._running_pulls.pop(pk, None)
                else:
                    self._running_pulls[pk] = _running_pull(start, began_at)

        is_submitted = False
        if pull is not None:
            # Before: the answer may come before this thread goes on.
            self._running_pulls[pk] = replace(pull, due_at=float("inf"))
        try:
            is_submitted = self._submit(("launch", pk), go_on)
        finally:
            if pull is not None and not is_submitted:
                self._running_pulls[pk] = pull
        return is_submitted

    def _preflight(self, ready: dict[int, NodeLoop]) -> None:
        for node_id, loop in ready.items():
            if loop.is_preflight_due and loop.client is not None:
                self._submit(("preflight", node_id), partial(loop.preflight, loop.client))

    def _stop_member(self, member: Member, ready: dict[int, NodeLoop]) -> bool:
        """Whether it is sent now."""
        client = ready[member.node_id or 0].client
        now = time.monotonic()
        if client is None or now - self._stops_sent.get(member.pk, -STOP_AGAIN_S) < STOP_AGAIN_S:
            return False
        self._stops_sent[member.pk] = now
        stop = partial(member_stop, member=member, client=client, token=self.token)
        self._submit(("stop", member.pk), stop)
        return True

    def _is_under_way(self, kind: str, pk: int) -> bool:
        one = self._busy.get((kind, pk))
        return one is not None and not one.done()

    def _launch_exchanges(self) -> set[int]:
        """Members, by their rows, of whose launch the node is asked something right now."""
        exchanges = list(self._busy.items())
        return {pk for (kind, pk), one in exchanges if kind == "launch" and not one.done()}

    def _launching(self) -> frozenset[int]:
        """Members whose launch is under way here, by their rows; asked by the loops' threads."""
        # In this order: a launch that becomes a pull meanwhile is in one of both.
        exchanges = self._launch_exchanges()
        return frozenset(exchanges | set(self._running_pulls))

    def _submit(self, key: tuple[str, int], work: Callable[[], None]) -> bool:
        """Whether it is begun; False while the one before is under way."""
        if self._is_under_way(*key):
            return False
        self._busy[key] = self._executors[key[0]].submit(_guarded, key, work)
        self._busy[key].add_done_callback(self._ended)
        return True

    def _ended(self, _done: Future[None]) -> None:
        if self._are_held_back:
            # A pause of this thread: a node that fails at once would else start pass after pass.
            time.sleep(max(0.0, self._polled_at + POLL_AGAIN_S - time.monotonic()))
            self.wake()


@dataclass(frozen=True, slots=True)
class _RunningPull:
    """A start whose image its node pulls; times by `time.monotonic()`."""

    start: MemberStart
    began_at: float
    due_at: float


def _running_pull(start: MemberStart, began_at: float) -> _RunningPull:
    now = time.monotonic()
    wait_s = max(POLL_FETCH_S, (now - began_at) * POLL_FETCH_SHARE)
    return _RunningPull(start, began_at, now + min(wait_s, POLL_FETCH_MOST_S))


class _LaunchSlots:
    """How many launches are under way, by (node, owner) of each, and whether more may be.

    A user gets at most as many as they leave to all others.
    """

    def __init__(self, under_way: list[tuple[int, int]]) -> None:
        self._total = len(under_way)
        self._of_node = Counter(node_id for node_id, _ in under_way)
        self._of_owner = Counter(owner_id for _, owner_id in under_way)
        self._of_both = Counter(under_way)

    def has_free(self, node_id: int, owner_id: int) -> bool:
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
        log.info("node_server.left_to_another_process", what=key[0], member=key[1])
    except Exception:
        log.exception("node_server.exchange_failed", what=key[0], member=key[1])
    finally:
        connections_release()
