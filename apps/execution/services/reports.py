"""What a node's report means for the members that the database has on it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from time import monotonic
from uuid import UUID

from django.db.models import Q
from msgspec.structs import replace

from apps.core import clock
from apps.execution.protocol.answers import Clocks, LogChunk, SyncReport
from apps.execution.protocol.requests import LogPosition, MemberKey
from apps.execution.reconciler import (
    MemberRow,
    NodeReport,
    NoteVanished,
    Phase,
    UnknownMembers,
    reconcile,
)
from apps.execution.services.applier import LAUNCH_IN_FLIGHT, Applier, ReportOutcome
from apps.execution.services.node_ownership import as_server
from apps.nodes.models import Node
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, AttemptState, MemberState
from apps.tasks.models import Attempt, Member
from apps.tasks.services.members.exits import members_acknowledge
from apps.tasks.services.members.logs import MOST_BYTES, log_append

# The helper refuses a request that names more.
MOST_LOGS = 1000
# What storing logs may take of one exchange, during which nothing else of the node is heard.
LOGS_S = 5.0
# Tasks by whose numbers a statement asks.
AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class ReportContext:
    """The request that a report answers, and the process that sent it.

    Args:
        members: as the database had them before. A member whose launch was sent
            since then may be missing in its report without being gone.
        token: the process that serves the node.
        unknown: since when, by this process's own clock, each unknown member is there.
        now: of that clock.
        is_doubted: the database was restored from a backup: what it believes may be long over.
        launching: members, by their rows, that this process is launching.
    """

    members: Iterable[Member]
    token: str = ""
    unknown: UnknownMembers = field(
        default_factory=lambda: UnknownMembers(since={}, may_be_killed=False)
    )
    now: float = 0.0
    is_doubted: bool = False
    launching: Collection[int] = ()


def members_of(node: Node) -> list[Member]:
    """Members of the node that hold something, or whose result it has not dropped yet."""
    return list(
        Member.objects.filter(
            Q(released_at__isnull=True) | Q(is_acknowledged=False), node=node
        ).select_related("attempt")
    )


def member_key(row: Member) -> MemberKey:
    """How the node names this member."""
    return MemberKey(str(row.attempt.task_id), row.attempt.generation, row.rank)


def log_positions(members: Iterable[Member]) -> tuple[LogPosition, ...]:
    """From where on the logs of these members are wanted.

    Ended members first, since their result waits for the last byte; then those whose log is least
    stored, so that all have their turn on a node with more members than one exchange may name.
    """
    wanted = sorted(
        members, key=lambda one: (one.state != MemberState.EXITED, one.log_offset, one.pk)
    )
    positions = (
        LogPosition(
            task_id=str(row.attempt.task_id),
            generation=row.attempt.generation,
            rank=row.rank,
            offset=row.log_offset,
        )
        for row in wanted
        if row.state in {MemberState.STARTING, MemberState.RUNNING, MemberState.EXITED}
        # One piece beyond what is stored tells that there is more, so that the cut is marked.
        and row.log_offset <= MOST_BYTES
    )
    return tuple(islice(positions, MOST_LOGS))


def report_apply(
    node: Node, report: SyncReport, clocks: Clocks, context: ReportContext
) -> ReportOutcome:
    """Carry out what the table of docs/execution.md, "When a component is unavailable", says.

    Raises:
        NotServing: another process has taken the node; the rest is left to it.
    """
    report = _by_our_clock(report, clocks)
    before = {row.pk: row.state for row in context.members}
    members = {member_key(row): row for row in members_of(node)}
    unreadable = {one.member for one in report.unreadable}
    ended, elsewhere = _other_rows(node, [k for k in _reported_keys(report) if k not in members])
    rows = {**members, **ended}
    applier = Applier(
        rows,
        before,
        token=context.token,
        boot_id=clocks.boot_id,
        launching=context.launching,
    )
    # One of each member, the first: the helper sends no more.
    parts = {one.member: one for one in reversed(report.logs) if one.member in members}
    over = {one.member for one in report.members if one.state == "exited"}
    until = monotonic() + LOGS_S
    # The result of a member waits for the end of its log; the logs of others wait for the results.
    last = [(members[key], part) for key, part in parts.items() if key in over]
    _store_logs(applier, node, last, token=context.token, until=until)
    ours = _without(report, elsewhere)
    actions = reconcile(
        # Of those that cannot be read the node has not said that they are gone.
        [_row(row, node, clocks) for member, row in rows.items() if member not in unreadable],
        NodeReport(clocks.boot_id, clocks.uptime_s, ours.members),
        context.unknown,
        now=context.now,
    )
    if context.is_doubted:
        # What ran when the backup was made may have ended since, and its result with it.
        actions = tuple(one for one in actions if not isinstance(one, NoteVanished))
    applier.apply(actions, ours, checkpoints_of=members)
    others = [(members[key], part) for key, part in parts.items() if key not in over]
    _store_logs(applier, node, others, token=context.token, until=until)
    with as_server(node.pk, context.token):
        _forget(members, report)
        # With its boot: a clock of another one would say nothing about leases.
        Node.objects.filter(pk=node.pk).update(
            boot_id=clocks.boot_id, clock_uptime_s=clocks.uptime_s
        )
    return applier.outcome()


def _store_logs(
    applier: Applier,
    node: Node,
    parts: Iterable[tuple[Member, LogChunk]],
    *,
    token: str,
    until: float,
) -> None:
    """Store pieces; what is left at `until` is asked for again.

    Those come first whose log is least stored: one that takes long blocks no other for good.
    """
    for row, part in sorted(parts, key=lambda one: (one[0].log_offset, one[0].pk)):
        if monotonic() >= until:
            return
        pieces = (node, row, part, token)
        if not applier.is_usable(part.member, partial(_store_log, *pieces)):
            # A piece that cannot be stored would block those behind it: it is left out.
            applier.is_usable(part.member, partial(_skip_log, *pieces))


def _store_log(node: Node, row: Member, part: LogChunk, token: str) -> None:
    row.log_offset = log_append(
        member_id=row.pk,
        offset=part.offset,
        content=part.content,
        at=clock.now(),
        guard=partial(as_server, node.pk, token),
    )


def _skip_log(node: Node, row: Member, part: LogChunk, token: str) -> None:
    with as_server(node.pk, token):
        row.log_offset = max(row.log_offset, part.offset + len(part.content))
        Member.objects.filter(pk=row.pk).update(log_offset=row.log_offset)
        Attempt.objects.filter(pk=row.attempt_id).update(log_is_cut=True)


def _without(report: SyncReport, members: Collection[MemberKey]) -> SyncReport:
    return replace(
        report,
        members=tuple(one for one in report.members if one.member not in members),
        unreadable=tuple(one for one in report.unreadable if one.member not in members),
    )


def _other_rows(
    node: Node, members: Collection[MemberKey]
) -> tuple[dict[MemberKey, Member], set[MemberKey]]:
    """Rows that ended long ago, and the members that another row of the same machine has."""
    found = _rows_of(members)
    elsewhere = {
        key
        for key, row in found.items()
        if row.node_id != node.pk and _phase(row) is not Phase.OVER
    }
    return {key: row for key, row in found.items() if key not in elsewhere}, elsewhere


def _rows_of(members: Collection[MemberKey]) -> dict[MemberKey, Member]:
    """The rows of these members, on whatever node."""
    tasks = sorted({UUID(one.task_id) for one in members if _is_uuid(one.task_id)})
    found: dict[MemberKey, Member] = {}
    for at in range(0, len(tasks), AT_ONCE):
        some = Member.objects.filter(attempt__task__in=tasks[at : at + AT_ONCE])
        found |= {member_key(row): row for row in some.select_related("attempt")}
    wanted = set(members)
    return {member: row for member, row in found.items() if member in wanted}


def _is_uuid(text: str) -> bool:
    """A process on the node may have given a member any name."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _by_our_clock(report: SyncReport, clocks: Clocks) -> SyncReport:
    """The same with times of the database's clock, where the node's is minutes away from it.

    In whole minutes: what an exchange takes must not move a time with every report.
    """
    skew_s = 60.0 * round((clocks.wall_s - clock.now().timestamp()) / 60)
    if not skew_s:
        return report

    def ours(wall_s: float | None) -> float | None:
        return None if wall_s is None else wall_s - skew_s

    members = tuple(
        replace(
            one,
            started_wall_s=ours(one.started_wall_s),
            ended_wall_s=ours(one.ended_wall_s),
            checkpointed_wall_s=ours(one.checkpointed_wall_s),
        )
        for one in report.members
    )
    return replace(report, members=members)


def _row(row: Member, node: Node, clocks: Clocks) -> MemberRow:
    boot_id = row.boot_id or node.boot_id
    # Measured here since the claim: a launch that was sent can then not arrive any more.
    claimed = row.attempt.not_before or row.attempt.allocated_at
    is_over = clock.now() - claimed > LAUNCH_IN_FLIGHT
    not_after_s = clocks.uptime_s + (-1 if is_over else 1)
    return MemberRow(member_key(row), _phase(row), boot_id=boot_id, not_after_s=not_after_s)


def _phase(row: Member) -> Phase:
    state = row.attempt.state
    if row.state == MemberState.EXITED or state not in LIVE_ATTEMPT_STATES:
        return Phase.OVER
    if state == AttemptState.STOPPING:
        return Phase.STOPPING
    return Phase.RUNNING if row.state == MemberState.RUNNING else Phase.STARTING


def _reported_keys(report: SyncReport) -> set[MemberKey]:
    """Every member that the node names, whatever it says of it."""
    return {one.member for one in report.members} | {one.member for one in report.unreadable}


def _forget(members: Mapping[MemberKey, Member], report: SyncReport) -> None:
    """Mark members that are over and that the node has dropped: no pass loads them again."""
    reported_keys = _reported_keys(report)
    gone = [
        row.pk
        for key, row in members.items()
        if key not in reported_keys and _phase(row) is Phase.OVER
    ]
    if gone:
        members_acknowledge(gone)
