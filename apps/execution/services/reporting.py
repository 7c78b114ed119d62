"""What a node's report means for the members that the database has on it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import islice
from operator import or_

import structlog
from django.db.models import Q
from django.utils import timezone

from apps.execution.launching import LAUNCH_WINDOW_S
from apps.execution.protocol.answers import Clocks, LogPart, Report, ReportedMember
from apps.execution.protocol.requests import LogPosition, Member
from apps.execution.reconcile import (
    Acknowledge,
    Action,
    Kill,
    KillAndRequeue,
    Launch,
    MemberRow,
    NodeReport,
    NoteLost,
    NoteResult,
    NoteRunning,
    NoteStopped,
    NoteVanished,
    Phase,
    Quarantine,
    Unknown,
    reconcile,
)
from apps.nodes.models import Node
from apps.tasks.models import Holding
from apps.tasks.services.attempts import (
    Ended,
    member_exited,
    member_release_start,
    member_started,
    members_acknowledged,
)
from apps.tasks.services.logs import MOST_BYTES, log_append
from apps.tasks.states import LIVE_ATTEMPT_STATES, AttemptState, MemberState

log = structlog.get_logger(__name__)

# After a claim, how long its launch may still arrive: the window on the node's clock, and on top
# what an exchange takes.
LAUNCH_IN_FLIGHT = timedelta(seconds=LAUNCH_WINDOW_S + 10)
# Nothing that the database does not know is killed before restored databases are told apart.
NOBODY_KNOWS = Unknown(since={}, may_be_killed=False)

# The helper refuses a request that names more.
MOST_LOGS = 1000


@dataclass(frozen=True, slots=True)
class Reported:
    """What the next exchange has to say: results that are stored, members that must go.

    `unknown` are ours by their names, and the database has never heard of them.
    """

    acknowledged: tuple[Member, ...] = ()
    to_stop: tuple[Member, ...] = ()
    unknown: tuple[Member, ...] = ()


def members_of(node: Node) -> list[Holding]:
    """Members of the node that hold something, or whose result it has not dropped yet."""
    return list(
        Holding.objects.filter(
            Q(released_at__isnull=True) | Q(is_acknowledged=False), node=node
        ).select_related("attempt")
    )


def key_of(holding: Holding) -> Member:
    """How the node names this member."""
    return Member(str(holding.attempt.task_id), holding.attempt.generation, holding.rank)


def log_positions(holdings: Iterable[Holding]) -> tuple[LogPosition, ...]:
    """From where on the logs of these members are wanted.

    Ended members first, since their result waits for the last byte; then those whose log is least
    stored, so that all have their turn on a node with more members than one exchange may name.
    """
    wanted = sorted(
        holdings, key=lambda one: (one.state != MemberState.EXITED, one.log_offset, one.pk)
    )
    positions = (
        LogPosition(
            task_id=str(holding.attempt.task_id),
            generation=holding.attempt.generation,
            rank=holding.rank,
            offset=holding.log_offset,
        )
        for holding in wanted
        if holding.state in {MemberState.STARTING, MemberState.RUNNING, MemberState.EXITED}
        # One piece beyond what is stored tells that there is more, so that the cut is marked.
        and holding.log_offset <= MOST_BYTES
    )
    return tuple(islice(positions, MOST_LOGS))


def report_apply(
    node: Node, report: Report, clocks: Clocks, *, asked_with: Iterable[Holding]
) -> Reported:
    """Carry out what the table of docs/execution.md, "When something is away", says.

    Args:
        asked_with: the members as the database had them before the node was asked. What it was
            told to start since then may be missing in the report without being gone.
    """
    before = {holding.pk: holding.state for holding in asked_with}
    holdings = {key_of(holding): holding for holding in members_of(node)}
    _store_logs(holdings, report.logs)
    missing = [member.member for member in report.members if member.member not in holdings]
    rows = {**holdings, **_of_the_past(node, missing)}
    actions = reconcile(
        [_row(holding, node, clocks) for holding in rows.values()],
        NodeReport(clocks.boot_id, clocks.uptime_s, report.members),
        NOBODY_KNOWS,
        now=0,
    )
    result = _Applier(rows, before).apply(actions)
    _forget(holdings, report)
    if node.boot_id != clocks.boot_id:
        Node.objects.filter(pk=node.pk).update(boot_id=clocks.boot_id)
    return result


def _store_logs(holdings: Mapping[Member, Holding], parts: Iterable[LogPart]) -> None:
    now = timezone.now()
    for part in parts:
        holding = holdings.get(part.member)
        if holding is not None:
            holding.log_offset = log_append(
                holding_id=holding.pk, offset=part.offset, content=part.content, at=now
            )


def _of_the_past(node: Node, members: Iterable[Member]) -> dict[Member, Holding]:
    """Rows that ended long ago, of members that the node still has."""
    wanted = [
        Q(
            attempt__task_id=member.task_id,
            attempt__generation=member.generation,
            rank=member.rank,
        )
        for member in members
        if _is_uuid(member.task_id)
    ]
    if not wanted:
        return {}
    rows = Holding.objects.filter(reduce(or_, wanted), node=node).select_related("attempt")
    return {key_of(row): row for row in rows}


def _is_uuid(text: str) -> bool:
    """Whoever wrote on the node may have called a member anything."""
    return len(text) == 36 and all(sign in "0123456789abcdef-" for sign in text)


def _row(holding: Holding, node: Node, clocks: Clocks) -> MemberRow:
    phase = _phase(holding)
    if phase is not Phase.STARTING:
        return MemberRow(key_of(holding), phase, boot_id=node.boot_id)
    # Measured here since the claim: a launch that was sent can then not arrive any more,
    # whichever boot it was meant for.
    claimed = holding.attempt.not_before or holding.attempt.allocated_at
    is_over = timezone.now() - claimed > LAUNCH_IN_FLIGHT
    not_after_s = clocks.uptime_s + (-1 if is_over else 1)
    return MemberRow(key_of(holding), phase, boot_id=clocks.boot_id, not_after_s=not_after_s)


def _phase(holding: Holding) -> Phase:
    state = holding.attempt.state
    if holding.state == MemberState.EXITED or state not in LIVE_ATTEMPT_STATES:
        return Phase.OVER
    if state == AttemptState.STOPPING:
        return Phase.STOPPING
    return Phase.RUNNING if holding.state == MemberState.RUNNING else Phase.STARTING


class _Applier:
    """Writes down what actions mean, and gathers what the node is to be told."""

    def __init__(self, rows: Mapping[Member, Holding], before: Mapping[int, str]) -> None:
        self._rows = rows
        self._before = before
        self._acknowledged: list[Member] = []
        self._to_stop: list[Member] = []
        self._unknown: list[Member] = []

    def apply(self, actions: Iterable[Action]) -> Reported:
        for action in actions:
            self._apply(action)
        return Reported(tuple(self._acknowledged), tuple(self._to_stop), tuple(self._unknown))

    def _apply(self, action: Action) -> None:
        match action:
            case Launch(member):
                self._launch(member)
            case Kill(member):
                self._to_stop.append(member)
            case KillAndRequeue(member):
                words = "The node had never started it."
                if self._gone(member, Ended(None, words, is_lost=True)):
                    self._to_stop.append(member)
            case Acknowledge(member):
                self._acknowledged.append(member)
            case Quarantine(member):
                self._unknown.append(member)
            case _:
                self._note(action)

    def _note(self, action: Action) -> None:
        """Leases come with their own work; stops are sent, and sent again, by the server."""
        match action:
            case NoteRunning(report):
                self._started(report)
            case NoteResult(report):
                self._ended(report)
            case NoteVanished(member):
                self._gone(member, Ended(None, "container_lost: it is gone without a result."))
            case NoteLost(member):
                words = "node_loss: the node has started anew."
                self._gone(member, Ended(None, words, is_lost=True))
            case NoteStopped(member):
                self._stopped(member)

    def _started(self, seen: ReportedMember) -> None:
        at = timezone.now() if seen.started_wall_s is None else _moment(seen.started_wall_s)
        member_started(holding_id=self._rows[seen.member].pk, at=at)

    def _ended(self, seen: ReportedMember) -> None:
        holding = self._rows[seen.member]
        if seen.started_wall_s is not None and holding.state != MemberState.RUNNING:
            member_started(holding_id=holding.pk, at=_moment(seen.started_wall_s))
            holding.state = MemberState.RUNNING
        # The result is taken with the last byte, so that nobody reads a log without its end.
        if holding.log_offset < min(seen.log_bytes, MOST_BYTES + 1):
            return
        at = _moment(seen.ended_wall_s) if seen.ended_wall_s is not None else timezone.now()
        ended = Ended(
            exit_code=seen.exit_code, detail=seen.error, at=at, is_stop_asked=seen.is_stop_asked
        )
        member_exited(holding_id=holding.pk, ended=ended)
        self._acknowledged.append(seen.member)

    def _gone(self, member: Member, ended: Ended) -> bool:
        holding = self._rows[member]
        if self._before.get(holding.pk) != MemberState.RUNNING:
            return False
        return member_exited(holding_id=holding.pk, ended=ended)

    def _stopped(self, member: Member) -> None:
        """A launch may be under way: then the node's answer to the stop tells that it is not."""
        holding = self._rows[member]
        was_running = self._before.get(holding.pk) == MemberState.RUNNING
        if was_running or holding.state == MemberState.ALLOCATED:
            member_exited(holding_id=holding.pk, ended=Ended(None, "It has stopped."))

    def _launch(self, member: Member) -> None:
        """Free the claim; whoever looks next launches, and the node starts at most one."""
        holding = self._rows[member]
        claimed = holding.attempt.not_before or holding.attempt.allocated_at
        if holding.state == MemberState.STARTING and timezone.now() - claimed > LAUNCH_IN_FLIGHT:
            member_release_start(holding_id=holding.pk, delay_s=0, detail="The launch got lost.")


def _forget(holdings: Mapping[Member, Holding], report: Report) -> None:
    """Members that are over and that the node has dropped need not be looked at again."""
    there = {member.member for member in report.members}
    gone = [
        holding.pk
        for key, holding in holdings.items()
        if key not in there and _phase(holding) is Phase.OVER
    ]
    if gone:
        members_acknowledged(gone)


def _moment(wall_s: float) -> datetime:
    """The node's wall clock; times in the future would make nonsense of every duration."""
    return min(datetime.fromtimestamp(wall_s, tz=UTC), timezone.now())
