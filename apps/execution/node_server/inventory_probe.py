"""The inventory of a node, asked for next to its syncs: a driver that hangs delays none of them."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import structlog
from django.db import DatabaseError

from apps.core.connections import connections_release
from apps.execution.client import NodeClient
from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import SyncRequest
from apps.execution.services.device_samples import MachineCounters, node_store_samples
from apps.execution.services.inventory import (
    node_store_inventory,
    node_store_occupied,
    probe_request,
)
from apps.execution.services.node_ownership import NotServing, as_server
from apps.execution.services.preflight import preflight_note
from apps.nodes.models import Node

log = structlog.get_logger(__name__)

PROBE_EVERY_S = 60.0
# A node that does not answer a probe takes new work until the third in a row.
PROBE_AGAIN_S = 15.0

Submit = Callable[[Callable[[], None]], "Future[None]"]


def at_once(work: Callable[[], None]) -> "Future[None]":
    """Runs the work in the thread that asks for it."""
    done: Future[None] = Future()
    work()
    done.set_result(None)
    return done


class InventoryProbe:
    """Probes of one node, one at a time.

    `is_known`: the inventory is that of the machine that is connected now.

    Args:
        submit: runs a probe, in a thread of its own.
    """

    def __init__(self, node_id: int, *, token: str, installation: str, submit: Submit) -> None:
        self.is_known = False
        self.has_failed = False
        self._node_id = node_id
        self._token = token
        self._installation = installation
        self._submit = submit
        self._due_at = float("-inf")
        self._client: NodeClient | None = None
        self._counters: MachineCounters | None = None
        self._under_way: Future[None] | None = None

    def want(self) -> None:
        """The inventory may be another one: probe as soon as possible."""
        self._due_at = float("-inf")

    def start(self, client: NodeClient) -> None:
        """Begin a probe if one is due, and none under way."""
        if client is not self._client:
            self._client, self.is_known, self.has_failed = client, False, False
            self.want()
        is_under_way = self._under_way is not None and not self._under_way.done()
        if not is_under_way and time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + PROBE_EVERY_S
            self._under_way = self._submit(partial(self._run, client))

    def _run(self, client: NodeClient) -> None:
        try:
            problem = self._probe(client)
            if problem:
                self._failed(client, problem)
        except NotServing:
            log.info("node.probe_left_to_another_process", node=self._node_id)
        except DatabaseError:
            # It comes back; the node is asked again.
            log.exception("node.probe_not_stored", node=self._node_id)
            self.want()
        except Exception as error:
            log.exception("node.probe_failed", node=self._node_id)
            self._failed(client, f"Its inventory could not be used: {type(error).__name__}.")
        finally:
            if self._submit is not at_once:
                connections_release()

    def _probe(self, client: NodeClient) -> str:
        """What is wrong with a node that answers; empty also once the inventory is stored."""
        node = Node.objects.get(pk=self._node_id)
        outcome = client.probe(probe_request(node, installation=self._installation))
        if not isinstance(outcome, Answered):
            # A node that answers nothing at all is the heartbeat's business.
            is_there = isinstance(client.sync(self._sync()), Answered)
            return f"Its probe is not answered: {outcome.detail}" if is_there else ""
        with as_server(node.pk, self._token):
            node_store_inventory(node, outcome.answer, outcome.clocks)
        before, self._counters = self._counters, MachineCounters.of(outcome.answer, outcome.clocks)
        rates = self._counters.since(before) if self._counters is not None else None
        full = client.sync(self._sync(full=True))
        if isinstance(full, Answered):
            with as_server(node.pk, self._token):
                node_store_occupied(node, full.answer.device_processes)
                node_store_samples(node, outcome.answer, full.answer.device_processes, rates)
        if client is self._client:
            self.is_known, self.has_failed = True, False
        return ""

    def _sync(self, *, full: bool = False) -> SyncRequest:
        return SyncRequest(installation=self._installation, full=full)

    def _failed(self, client: NodeClient, problem: str) -> None:
        """As a failed preflight check: the node is drained until it passes one."""
        if client is not self._client:
            # Its connection has been replaced meanwhile.
            return
        self.has_failed = True
        self._due_at = time.monotonic() + PROBE_AGAIN_S
        try:
            with as_server(self._node_id, self._token):
                preflight_note(self._node_id, problem)
        except (NotServing, DatabaseError):
            log.warning("node.probe_failure_not_shown", node=self._node_id, detail=problem)
