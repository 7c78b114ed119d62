"""One node's conversation: a thread that syncs, sync after sync."""

import threading
import time

import structlog
from django.db import connections
from django.utils import timezone

from apps.execution.bundle import helper_version
from apps.execution.client import NodeClient
from apps.execution.connections import client_for, install_helper
from apps.execution.protocol.answers import AnswerMalformed, Clocks, Report
from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import Member, Stop, Sync
from apps.execution.services.inventory import (
    node_answered,
    node_has_unknown,
    node_missed,
    node_occupied,
    node_probed,
    probe_request,
)
from apps.execution.services.reporting import (
    Reported,
    log_positions,
    members_of,
    report_apply,
)
from apps.execution.services.starting import NodeClock
from apps.execution.transport.base import HostKeyRefused, TransportError
from apps.nodes.models import Node, NodeState

log = structlog.get_logger(__name__)

PROBE_EVERY_S = 60.0
# After a failure: the first retry comes soon, then slower, so that a dead node costs little.
RETRY_S = (0.5, 1.0, 2.0, 5.0)


class NodeLoop:
    """Keeps one node's rows true while this process serves it."""

    def __init__(self, node_id: int, *, token: str, installation: str, tick_s: float) -> None:
        self.node_id = node_id
        self.client: NodeClient | None = None
        self.clock: NodeClock | None = None
        self._token = token
        self._installation = installation
        self._tick_s = tick_s
        self._stopped = threading.Event()
        self._failures = 0
        self._probed_at = float("-inf")
        self._seen = ""
        self._acknowledged: tuple[Member, ...] = ()
        self._unknown: tuple[Member, ...] = ()
        self.thread = threading.Thread(target=self._run, name=f"node-{node_id}", daemon=True)

    @property
    def is_over(self) -> bool:
        return self._stopped.is_set() or not self.thread.is_alive()

    def stop(self) -> None:
        """End after the exchange under way."""
        self._stopped.set()

    def _run(self) -> None:
        structlog.contextvars.bind_contextvars(node=self.node_id)
        while not self._stopped.is_set():
            try:
                is_fine = self._exchange()
            except Exception:
                # Whatever it was, the next exchange begins from the database again.
                log.exception("node.loop_failed")
                is_fine = False
            finally:
                connections.close_all()
            self._failures = 0 if is_fine else self._failures + 1
            if not is_fine:
                self._stopped.wait(RETRY_S[min(self._failures, len(RETRY_S)) - 1])
        if self.client is not None:
            self.client.transport.close()
            self.client = None

    def _exchange(self) -> bool:
        """One sync; False when the node did not answer."""
        node = Node.objects.filter(
            pk=self.node_id, served_by=self._token, removed_at__isnull=True
        ).first()
        if node is None:
            self.stop()
            return True
        try:
            client = self._ready_client(node)
        except HostKeyRefused as error:
            return self._missed(node, str(error), is_refused=True)
        except (TransportError, AnswerMalformed) as error:
            return self._missed(node, str(error))
        if time.monotonic() - self._probed_at > PROBE_EVERY_S and not self._probe(node, client):
            return False
        holdings = members_of(node)
        connections.close_all()
        outcome = client.sync(
            Sync(
                installation=self._installation,
                seen=self._seen,
                wait_s=self._tick_s if not self._acknowledged else 0,
                logs=log_positions(holdings),
                acknowledged=self._acknowledged,
            )
        )
        if not isinstance(outcome, Answered):
            return self._missed(node, outcome.detail)
        result = report_apply(node, outcome.answer, outcome.clocks, asked_with=holdings)
        self._heard(node, client, outcome.answer, outcome.clocks)
        self._carry_out(node, client, result)
        return True

    def _ready_client(self, node: Node) -> NodeClient:
        if self.client is None:
            self.client = client_for(node, installation=self._installation)
            install_helper(self.client, node)
            self._probed_at = float("-inf")
        return self.client

    def _probe(self, node: Node, client: NodeClient) -> bool:
        outcome = client.probe(probe_request(node, installation=self._installation))
        if not isinstance(outcome, Answered):
            return self._missed(node, outcome.detail)
        self._note_clock(outcome.clocks)
        node_probed(node, outcome.answer, outcome.clocks)
        self._probed_at = time.monotonic()
        full = client.sync(Sync(installation=self._installation, full=True))
        if isinstance(full, Answered):
            node_occupied(node, full.answer.device_processes)
        node_answered(node)
        return True

    def _heard(self, node: Node, client: NodeClient, report: Report, clocks: Clocks) -> None:
        self._note_clock(clocks)
        if clocks.helper != helper_version() or clocks.boot_id != node.boot_id:
            self._probed_at = float("-inf")
        if clocks.helper != helper_version():
            install_helper(client, node)
        if node.state_detail or node.missed_syncs or node.state != NodeState.HEALTHY:
            node_answered(node)
        else:
            Node.objects.filter(pk=node.pk).update(last_seen_at=timezone.now())
        self._seen = report.version

    def _carry_out(self, node: Node, client: NodeClient, result: Reported) -> None:
        self._acknowledged = result.acknowledged
        if result.unknown != self._unknown:
            self._unknown = result.unknown
            node_has_unknown(node, result.unknown)
        for member in result.to_stop:
            client.stop(
                Stop(
                    installation=self._installation,
                    task_id=member.task_id,
                    generation=member.generation,
                    rank=member.rank,
                    grace_s=0,
                )
            )

    def _missed(self, node: Node, detail: str, *, is_refused: bool = False) -> bool:
        node_missed(node, detail, is_refused=is_refused)
        self._seen = ""
        if isinstance(self.client, NodeClient):
            self.client.transport.close()
            self.client = None
        log.warning("node.missed", detail=detail)
        return False

    def _note_clock(self, clocks: Clocks) -> None:
        self.clock = NodeClock(clocks.boot_id, clocks.uptime_s, time.monotonic())
