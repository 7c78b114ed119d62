"""One node's conversation: a thread that syncs, sync after sync."""

import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import structlog
from django.db import DatabaseError, InterfaceError, OperationalError, connections
from django.utils import timezone

from apps.core.connections import connections_release
from apps.core.crash_points import crash_point
from apps.execution.bundle import helper_version
from apps.execution.client import NodeClient
from apps.execution.connections import client_for, connection_facts, ensure_helper
from apps.execution.leases import NodeClock
from apps.execution.node_server.fence_cleanup import FenceCleanup
from apps.execution.node_server.inventory_probe import InventoryProbe, Submit, at_once
from apps.execution.protocol.answers import Clocks, MalformedAnswer, SyncReport
from apps.execution.protocol.bounds import LOG_BYTES, plain
from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import MemberKey, StopRequest, SyncRequest
from apps.execution.reconciler import UnknownMembers
from apps.execution.services.applier import ReportOutcome
from apps.execution.services.inventory import (
    node_mark_back,
    node_mark_healthy,
    node_record_miss,
    node_store_unknown,
)
from apps.execution.services.lease_renewal import leases_renew
from apps.execution.services.node_ownership import NotServing, as_server
from apps.execution.services.preflight import node_preflight_again, preflight_note
from apps.execution.services.reports import ReportContext, log_positions, members_of, report_apply
from apps.execution.services.restore_detection import (
    database_trust,
    own_serial,
    serial_record,
    serial_signature,
)
from apps.execution.transport.base import HostKeyRefused, MachineRefused, TransportError
from apps.nodes.models import Node, NodeState
from apps.tasks.models import Member

log = structlog.get_logger(__name__)

# Until its inventory is there a node that was away is not healthy again: it is heard sooner then.
SOON_S = 0.2
# Nodes of one process take turns; one that fails is tried again sooner.
PREFLIGHT_EVERY_S = 900.0
PREFLIGHT_AGAIN_S = 15.0
# What tasks print line by line is fetched so often; the first line after a pause comes at once.
LOGS_EVERY_S = 0.35
# After a failure: the first retry comes soon, then slower, so that a dead node costs little.
RETRY_S = (0.5, 1.0, 2.0, 5.0)
# An answer that is so long overdue is none.
OVERDUE_S = 2.0


class NodeLoop:
    """Keeps one node's rows true while this process serves it.

    `clock` is what the node last answered, None until it does. `last_clock` is as much as is known
    without that: its clock showed this, or more, when it was read.

    Args:
        launching: members, by their rows, that this process is launching.
        submit: runs what the node may take long to answer, next to the syncs.
    """

    def __init__(
        self,
        node: Node,
        *,
        token: str,
        installation: str,
        tick_s: float,
        launching: Callable[[], Collection[int]] = tuple,
        submit: Submit = at_once,
    ) -> None:
        self.node_id = node.pk
        self.client: NodeClient | None = None
        self.clock: NodeClock | None = None
        self.last_clock = NodeClock(node.boot_id, node.clock_uptime_s, time.monotonic())
        self._token = token
        self._installation = installation
        self._tick_s = tick_s
        self._launching = launching
        self._stopped = threading.Event()
        self._failures = 0
        self._last_problem = ""
        self._requested_at: float | None = None
        self._probe = InventoryProbe(node.pk, token=token, installation=installation, submit=submit)
        self._preflight_at = time.monotonic() + node.pk * 61 % PREFLIGHT_EVERY_S
        self._used_at = time.monotonic()
        self._report_version = ""
        self._logs_due_at = 0.0
        self._last_helper = ""
        self._reached_by: tuple[object, ...] = ()
        self._acknowledged: tuple[MemberKey, ...] = ()
        self._serial_refused = 0
        self._unknown: dict[MemberKey, float] = {}
        self._fence_cleanup = FenceCleanup()
        self.thread = threading.Thread(target=self._run, name=f"node-{node.pk}", daemon=True)

    @property
    def is_over(self) -> bool:
        return self._stopped.is_set() or not self.thread.is_alive()

    @property
    def is_preflight_due(self) -> bool:
        return time.monotonic() >= self._preflight_at

    def preflight(self, client: NodeClient) -> None:
        """See whether the node still starts containers; called from a thread of the pool.

        Raises:
            NotServing: another process has taken the node.
        """
        self._preflight_at = time.monotonic() + PREFLIGHT_EVERY_S
        node = Node.objects.get(pk=self.node_id)
        detail = node_preflight_again(node, client)
        with as_server(node.pk, self._token):
            preflight_note(node.pk, detail)

    @property
    def is_unanswered(self) -> bool:
        """Whether the node was asked since it last answered, and did not answer.

        False where this process has not come to asking: then it is not the node that is silent.
        """
        requested_at = self._requested_at
        is_overdue = (
            requested_at is not None and time.monotonic() - requested_at > self._tick_s + OVERDUE_S
        )
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
            except Exception as error:
                # Whatever it was, the next exchange begins from the database again.
                log.exception("node.loop_failed")
                is_fine = self._failed(error)
            finally:
                connections_release()
            if is_fine and self._last_problem:
                log.info("node.answers")
                self._last_problem = ""
            self._failures = 0 if is_fine else self._failures + 1
            if not is_fine:
                retry_s = RETRY_S[min(self._failures, len(RETRY_S)) - 1]
                # Nodes that were lost together are not asked together.
                self._stopped.wait(retry_s * random.uniform(0.5, 1))  # noqa: S311  # no secret
        connections.close_all()
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
            with self._exchange_under_way():
                client = self._ready_client(node)
        except (HostKeyRefused, MachineRefused) as error:
            return self._record_miss(node, str(error), is_refused=True)
        except (TransportError, MalformedAnswer) as error:
            return self._record_miss(node, str(error))
        self._probe.start(client)
        if node.preflight_failures:
            self._preflight_at = min(self._preflight_at, time.monotonic() + PREFLIGHT_AGAIN_S)
        members = members_of(node)
        request = self._sync_request(node, members)
        connections_release()
        with self._exchange_under_way():
            outcome = client.sync(request)
        if not isinstance(outcome, Answered):
            return self._record_miss(node, outcome.detail)
        result = self._apply(node, members, outcome)
        self._record_answer(node, client, outcome.clocks, result)
        self._report_version = outcome.answer.version
        self._note_logs(outcome.answer)
        with self._exchange_under_way():
            self._carry_out(client, result)
            self._fence_cleanup.forget(node, client, self._token)
        self._used_at = time.monotonic()
        return True

    def _sync_request(self, node: Node, members: list[Member]) -> SyncRequest:
        """What to ask for; renews the leases that go along."""
        serial = own_serial()
        return SyncRequest(
            installation=self._installation,
            seen=self._report_version,
            wait_s=self._wait_s(node),
            logs_after_s=max(0.0, self._logs_due_at - time.monotonic()),
            logs=log_positions(members),
            acknowledged=self._acknowledged,
            leases=leases_renew(node, members, self.last_clock, self._token),
            serial=serial,
            serial_signature=serial_signature(serial),
            serial_refused=self._serial_refused,
        )

    def _apply(
        self, node: Node, members: list[Member], outcome: Answered[SyncReport]
    ) -> ReportOutcome:
        """Store what the node reports of its members."""
        report, clocks = outcome.answer, outcome.clocks
        self._may_crash(report)
        self._serial_refused = serial_record(node, report.serial, report.serial_signature)
        # By now: this answer may say that the database was restored. No launch goes out
        # before that, which asks for the clock.
        trust = database_trust()
        self._note_clock(clocks)
        unknown = UnknownMembers(
            since={
                member: float("-inf") if trust.is_confirmed else at
                for member, at in self._unknown.items()
            },
            may_be_killed=trust.is_confirmed or not trust.is_doubted,
        )
        context = ReportContext(
            members,
            self._token,
            unknown,
            time.monotonic(),
            trust.is_doubted,
            self._launching(),
        )
        result = report_apply(node, report, clocks, context)
        self._note_unknown(node, result)
        return result

    def _note_logs(self, report: SyncReport) -> None:
        if report.logs:
            has_more = any(len(one.content) >= LOG_BYTES for one in report.logs)
            self._logs_due_at = time.monotonic() + (0 if has_more else LOGS_EVERY_S)

    def _wait_s(self, node: Node) -> float:
        is_awaited = not (self._probe.is_known or self._probe.has_failed)
        return SOON_S if is_awaited and node.state != NodeState.HEALTHY else self._tick_s

    @contextmanager
    def _exchange_under_way(self) -> Iterator[None]:
        """Something is asked of the node now."""
        self._requested_at = time.monotonic()
        try:
            yield
        finally:
            self._requested_at = None

    def _may_crash(self, report: SyncReport) -> None:
        if self._acknowledged:
            crash_point("finish.acknowledged")
        if any(member.state == "exited" for member in report.members):
            crash_point("finish.reported")

    def _ready_client(self, node: Node) -> NodeClient:
        facts = connection_facts(node)
        if self.client is not None and facts != self._reached_by:
            self.client.transport.close()
            self.client = None
        if self.client is None:
            self.client = client_for(node, installation=self._installation)
            self._reached_by, self._last_helper = facts, ""
            ensure_helper(self.client, node)
        return self.client

    def _record_answer(
        self, node: Node, client: NodeClient, clocks: Clocks, result: ReportOutcome
    ) -> None:
        is_other_helper = clocks.helper not in (helper_version(), self._last_helper)
        if is_other_helper or clocks.boot_id != node.boot_id:
            self._probe.want()
        if is_other_helper:
            # It stays so where the node takes no other one.
            self._last_helper = clocks.helper
            ensure_helper(client, node)
        with as_server(node.pk, self._token):
            if node.state != NodeState.HEALTHY and result.to_stop:
                left = len(result.to_stop)
                node_mark_back(
                    node, f"It is back; {left} members of earlier attempts are being ended there."
                )
            elif node.state != NodeState.HEALTHY and not self._probe.is_known:
                node_mark_back(node, "It is back; its inventory is awaited.")
            elif (
                node.state_detail != plain(result.problem)
                or node.missed_syncs
                or node.state != NodeState.HEALTHY
            ):
                node_mark_healthy(node, result.problem)
            else:
                Node.objects.filter(pk=node.pk).update(last_seen_at=timezone.now())

    def _note_unknown(self, node: Node, result: ReportOutcome) -> None:
        if set(result.unknown) != set(self._unknown) or len(result.unknown) != node.unknown_work:
            now = time.monotonic()
            self._unknown = {one: self._unknown.get(one, now) for one in result.unknown}
            with as_server(node.pk, self._token):
                node_store_unknown(node, result.unknown)

    def _carry_out(self, client: NodeClient, result: ReportOutcome) -> None:
        self._acknowledged = result.acknowledged
        if result.acknowledged:
            crash_point("finish.committed")
        for member in result.to_stop:
            client.stop(
                StopRequest(
                    installation=self._installation,
                    task_id=member.task_id,
                    generation=member.generation,
                    rank=member.rank,
                    grace_s=0,
                    is_kill=True,
                )
            )

    def _record_miss(self, node: Node, detail: str, *, is_refused: bool = False) -> bool:
        # An answer that cannot be used is none.
        silent_s = time.monotonic() - min(self.last_clock.read_at, self._used_at)
        with as_server(node.pk, self._token):
            node_record_miss(node, detail, silent_s=silent_s, is_refused=is_refused)
        self._report_version = ""
        if isinstance(self.client, NodeClient):
            self.client.transport.close()
            self.client = None
        # Once, and again when there is something else to say: a node may be refused for weeks.
        if detail != self._last_problem:
            log.warning("node.missed", detail=detail)
        self._last_problem = detail
        return False

    def _failed(self, error: Exception) -> bool:
        """Show at the node that its answer could not be used, unless the database is away."""
        if isinstance(error, OperationalError | InterfaceError):
            return False
        words = f"Its answer could not be used: {type(error).__name__}."
        try:
            node = Node.objects.get(pk=self.node_id)
            return self._record_miss(node, words)
        except (DatabaseError, Node.DoesNotExist, NotServing):
            log.warning("node.failure_not_shown", detail=words)
            return False

    def _note_clock(self, clocks: Clocks) -> None:
        self.clock = self.last_clock = NodeClock(clocks.boot_id, clocks.uptime_s, time.monotonic())
