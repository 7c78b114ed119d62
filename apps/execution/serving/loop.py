"""One node's conversation: a thread that syncs, sync after sync."""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import structlog
from django.db import connections
from django.utils import timezone

from apps.core.crashing import crash_point
from apps.execution.bundle import helper_version
from apps.execution.client import NodeClient
from apps.execution.connections import client_for, install_helper
from apps.execution.leases import NodeClock
from apps.execution.protocol.answers import AnswerMalformed, Clocks, Report
from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import Member, Stop, Sync
from apps.execution.reconcile import Unknown
from apps.execution.services.applying import Reported
from apps.execution.services.guarding import NotServing, as_server
from apps.execution.services.inventory import (
    node_answered,
    node_clearing,
    node_has_unknown,
    node_missed,
    node_occupied,
    node_probed,
    probe_request,
)
from apps.execution.services.renewing import leases_renewed
from apps.execution.services.reporting import Asked, log_positions, members_of, report_apply
from apps.execution.services.restoring import own_serial, serial_heard, trust_now
from apps.execution.serving.traces import Traces
from apps.execution.transport.base import HostKeyRefused, TransportError
from apps.nodes.models import Node, NodeState

log = structlog.get_logger(__name__)

PROBE_EVERY_S = 60.0
# After a failure: the first retry comes soon, then slower, so that a dead node costs little.
RETRY_S = (0.5, 1.0, 2.0, 5.0)
# An answer that is so long overdue is none.
OVERDUE_S = 2.0


class NodeLoop:
    """Keeps one node's rows true while this process serves it.

    `clock` is what the node last answered, None until it does. `heard` is as much as is known
    without that: its clock showed this, or more, when it was read.

    Args:
        launching: members, by their rows, whose launch is under way in this process.
    """

    def __init__(
        self,
        node: Node,
        *,
        token: str,
        installation: str,
        tick_s: float,
        launching: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self.node_id = node.pk
        self.client: NodeClient | None = None
        self.clock: NodeClock | None = None
        self.heard = NodeClock(node.boot_id, node.clock_uptime_s, time.monotonic())
        self._token = token
        self._installation = installation
        self._tick_s = tick_s
        self._launching = launching
        self._stopped = threading.Event()
        self._failures = 0
        self._asked_at: float | None = None
        self._probed_at = float("-inf")
        self._seen = ""
        self._acknowledged: tuple[Member, ...] = ()
        self._unknown: dict[Member, float] = {}
        self._traces = Traces()
        self.thread = threading.Thread(target=self._run, name=f"node-{node.pk}", daemon=True)

    @property
    def is_over(self) -> bool:
        return self._stopped.is_set() or not self.thread.is_alive()

    @property
    def is_unanswered(self) -> bool:
        """Whether the node was asked since it last answered, and did not answer.

        False where this process has not come to asking: then it is not the node that is silent.
        """
        asked_at = self._asked_at
        is_overdue = asked_at is not None and time.monotonic() - asked_at > self._tick_s + OVERDUE_S
        return self._failures > 0 or is_overdue

    def stop(self) -> None:
        """End after the exchange under way."""
        self._stopped.set()

    def _run(self) -> None:
        structlog.contextvars.bind_contextvars(node=self.node_id)
        while not self._stopped.is_set():
            try:
                is_fine = self._exchange()
            except NotServing:
                # What this process knows of the node is old: another one goes on from here.
                self.stop()
                break
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
        """One sync; False when the node did not answer.

        Raises:
            NotServing: another process has taken the node.
        """
        node = Node.objects.filter(pk=self.node_id, removed_at__isnull=True).first()
        if node is None or node.served_by != self._token:
            raise NotServing(f"node {self.node_id}")
        try:
            with self._asking():
                client = self._ready_client(node)
        except HostKeyRefused as error:
            return self._missed(node, str(error), is_refused=True)
        except (TransportError, AnswerMalformed) as error:
            return self._missed(node, str(error))
        if time.monotonic() - self._probed_at > PROBE_EVERY_S and not self._probe(node, client):
            return False
        holdings = members_of(node)
        trust = trust_now()
        request = Sync(
            installation=self._installation,
            seen=self._seen,
            wait_s=self._tick_s,
            logs=log_positions(holdings),
            acknowledged=self._acknowledged,
            leases=leases_renewed(node, holdings, self.heard, self._token),
            serial=own_serial(),
        )
        connections.close_all()
        with self._asking():
            outcome = client.sync(request)
        if not isinstance(outcome, Answered):
            return self._missed(node, outcome.detail)
        report, clocks = outcome.answer, outcome.clocks
        self._may_crash(report)
        self._note_clock(clocks)
        serial_heard(report.serial)
        unknown = Unknown(
            since={
                member: float("-inf") if trust.is_confirmed else at
                for member, at in self._unknown.items()
            },
            may_be_killed=trust.is_confirmed or not trust_now().is_doubted,
        )
        asked = Asked(
            holdings,
            self._token,
            unknown,
            time.monotonic(),
            trust.is_doubted,
            self._launching(),
        )
        result = report_apply(node, report, clocks, asked)
        self._note_unknown(node, result)
        self._heard(node, client, clocks, result)
        self._seen = report.version
        with self._asking():
            self._carry_out(client, result)
            self._traces.forget(node, client, self._token)
        return True

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Something is asked of the node now."""
        self._asked_at = time.monotonic()
        try:
            yield
        finally:
            self._asked_at = None

    def _may_crash(self, report: Report) -> None:
        if self._acknowledged:
            crash_point("finish.acknowledged")
        if any(member.state == "exited" for member in report.members):
            crash_point("finish.reported")

    def _ready_client(self, node: Node) -> NodeClient:
        if self.client is None:
            self.client = client_for(node, installation=self._installation)
            install_helper(self.client, node)
            self._probed_at = float("-inf")
        return self.client

    def _probe(self, node: Node, client: NodeClient) -> bool:
        with self._asking():
            outcome = client.probe(probe_request(node, installation=self._installation))
        if not isinstance(outcome, Answered):
            return self._missed(node, outcome.detail)
        self._note_clock(outcome.clocks)
        with as_server(node.pk, self._token):
            node_probed(node, outcome.answer, outcome.clocks)
        self._probed_at = time.monotonic()
        with self._asking():
            full = client.sync(Sync(installation=self._installation, full=True))
        if isinstance(full, Answered):
            with as_server(node.pk, self._token):
                node_occupied(node, full.answer.device_processes)
        return True

    def _heard(self, node: Node, client: NodeClient, clocks: Clocks, result: Reported) -> None:
        if clocks.helper != helper_version() or clocks.boot_id != node.boot_id:
            self._probed_at = float("-inf")
        if clocks.helper != helper_version():
            install_helper(client, node)
        with as_server(node.pk, self._token):
            if node.state != NodeState.HEALTHY and result.to_stop:
                node_clearing(node, len(result.to_stop))
            elif node.state_detail or node.missed_syncs or node.state != NodeState.HEALTHY:
                node_answered(node)
            else:
                Node.objects.filter(pk=node.pk).update(last_seen_at=timezone.now())

    def _note_unknown(self, node: Node, result: Reported) -> None:
        if set(result.unknown) != set(self._unknown) or len(result.unknown) != node.unknown_work:
            now = time.monotonic()
            self._unknown = {one: self._unknown.get(one, now) for one in result.unknown}
            with as_server(node.pk, self._token):
                node_has_unknown(node, result.unknown)

    def _carry_out(self, client: NodeClient, result: Reported) -> None:
        self._acknowledged = result.acknowledged
        if result.acknowledged:
            crash_point("finish.committed")
        for member in result.to_stop:
            client.stop(
                Stop(
                    installation=self._installation,
                    task_id=member.task_id,
                    generation=member.generation,
                    rank=member.rank,
                    grace_s=0,
                    is_kill=True,
                )
            )

    def _missed(self, node: Node, detail: str, *, is_refused: bool = False) -> bool:
        silent_s = time.monotonic() - self.heard.read_at
        with as_server(node.pk, self._token):
            node_missed(node, detail, silent_s=silent_s, is_refused=is_refused)
        self._seen = ""
        if isinstance(self.client, NodeClient):
            self.client.transport.close()
            self.client = None
        log.warning("node.missed", detail=detail)
        return False

    def _note_clock(self, clocks: Clocks) -> None:
        self.clock = self.heard = NodeClock(clocks.boot_id, clocks.uptime_s, time.monotonic())
