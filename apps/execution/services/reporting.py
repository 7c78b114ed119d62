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
from apps.execution.protocol.answers import Clocks, LogPart, Report
from apps.execution.protocol.requests import LogPosition, Member
from apps.execution.reconcile import (
    MemberRow,
    NodeReport,
    NoteVanished,
    Phase,
    Unknown,
    reconcile,
)
from apps.execution.services.applying import LAUNCH_IN_FLIGHT, Applier, Reported
from apps.execution.services.guarding import as_server
from apps.nodes.models import Node
from apps.tasks.models import Attempt, Holding
from apps.tasks.services.attempts import members_acknowledged
from apps.tasks.services.logs import MOST_BYTES, log_append
from apps.tasks.states import LIVE_ATTEMPT_STATES, AttemptState, MemberState

# The helper refuses a request that names more.
MOST_LOGS = 1000
# What storing logs may take of one exchange, during which nothing else of the node is heard.
LOGS_S = 5.0
# Tasks by whose numbers a statement asks.
AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Asked:
    """With what a node was asked, and by whom.

    Args:
        holdings: the members as the database had them before. What the node was told to start
            since then may be missing in its report without being gone.
        token: the process that serves the node.
        unknown: since when, by this process's own clock, each unknown member is there.
        now: of that clock.
        is_doubted: the database was restored from a backup: what it believes may be long over.
        launching: members, by their rows, whose launch is under way in this process.
    """

    holdings: Iterable[Holding]
    token: str = ""
    unknown: Unknown = field(default_factory=lambda: Unknown(since={}, may_be_killed=False))
    now: float = 0.0
    is_doubted: bool = False
    launching: Collection[int] = ()


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


def report_apply(node: Node, report: Report, clocks: Clocks, asked: Asked) -> Reported:
    """Carry out what the table of docs/execution.md, "When something is away", says.

    Raises:
        NotServing: another process has taken the node; the rest is left to it.
    """
    report = _by_our_clock(report, clocks)
    before = {holding.pk: holding.state for holding in asked.holdings}
    holdings = {key_of(holding): holding for holding in members_of(node)}
    unreadable = {one.member for one in report.unreadable}
    missing = [one for one in _there(report) if one not in holdings]
    beyond = _rows_beyond(missing)
    # Another row of the same machine has these: that one looks after them.
    elsewhere = {
        key
        for key, row in beyond.items()
        if row.node_id != node.pk and _phase(row) is not Phase.OVER
    }
    rows = {**holdings, **{key: row for key, row in beyond.items() if key not in elsewhere}}
    applier = Applier(
        rows,
        before,
        token=asked.token,
        boot_id=clocks.boot_id,
        launching=asked.launching,
    )
    # One of each member, the first: the helper sends no more.
    parts = {one.member: one for one in reversed(report.logs) if one.member in holdings}
    over = {one.member for one in report.members if one.state == "exited"}
    until = monotonic() + LOGS_S
    # The result of a member waits for the end of its log; the logs of others wait for the results.
    last = [(holdings[key], part) for key, part in parts.items() if key in over]
    _store_logs(applier, node, last, token=asked.token, until=until)
    ours = replace(
        report,
        members=tuple(one for one in report.members if one.member not in elsewhere),
        unreadable=tuple(one for one in report.unreadable if one.member not in elsewhere),
    )
    actions = reconcile(
        # Of those that cannot be read the node has not said that they are gone.
        [_row(row, node, clocks) for member, row in rows.items() if member not in unreadable],
        NodeReport(clocks.boot_id, clocks.uptime_s, ours.members),
        asked.unknown,
        now=asked.now,
    )
    if asked.is_doubted:
        # What ran when the backup was made may have ended since, and its result with it.
        actions = tuple(one for one in actions if not isinstance(one, NoteVanished))
    applier.apply(actions, ours, checkpoints_of=holdings)
    others = [(holdings[key], part) for key, part in parts.items() if key not in over]
    _store_logs(applier, node, others, token=asked.token, until=until)
    with as_server(node.pk, asked.token):
        _forget(holdings, report)
        # With its boot: a clock of another one would say nothing about leases.
        Node.objects.filter(pk=node.pk).update(
            boot_id=clocks.boot_id, clock_uptime_s=clocks.uptime_s
        )
    return applier.reported()


def _store_logs(
    applier: Applier,
    node: Node,
    parts: Iterable[tuple[Holding, LogPart]],
    *,
    token: str,
    until: float,
) -> None:
    """Store pieces; what is left at `until` is asked for again.

    Those come first whose log is least stored: one that takes long holds no other up for good.
    """
    for holding, part in sorted(parts, key=lambda one: (one[0].log_offset, one[0].pk)):
        if monotonic() >= until:
            return
        pieces = (node, holding, part, token)
        if not applier.is_usable(part.member, partial(_store_log, *pieces)):
            # Nobody comes past a piece that cannot be stored: it is left out.
            applier.is_usable(part.member, partial(_skip_log, *pieces))


def _store_log(node: Node, holding: Holding, part: LogPart, token: str) -> None:
    holding.log_offset = log_append(
        holding_id=holding.pk,
        offset=part.offset,
        content=part.content,
        at=clock.now(),
        guard=partial(as_server, node.pk, token),
    )


def _skip_log(node: Node, holding: Holding, part: LogPart, token: str) -> None:
    with as_server(node.pk, token):
        holding.log_offset = max(holding.log_offset, part.offset + len(part.content))
        Holding.objects.filter(pk=holding.pk).update(log_offset=holding.log_offset)
        Attempt.objects.filter(pk=holding.attempt_id).update(log_is_cut=True)


def _rows_beyond(members: Collection[Member]) -> dict[Member, Holding]:
    """Rows that ended long ago, or are of another node row, of members that the node has."""
    tasks = sorted({UUID(one.task_id) for one in members if _is_uuid(one.task_id)})
    found: dict[Member, Holding] = {}
    for at in range(0, len(tasks), AT_ONCE):
        some = Holding.objects.filter(attempt__task__in=tasks[at : at + AT_ONCE])
        found |= {key_of(row): row for row in some.select_related("attempt")}
    wanted = set(members)
    return {member: row for member, row in found.items() if member in wanted}


def _is_uuid(text: str) -> bool:
    """Whoever wrote on the node may have called a member anything."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _by_our_clock(report: Report, clocks: Clocks) -> Report:
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


def _row(holding: Holding, node: Node, clocks: Clocks) -> MemberRow:
    boot_id = holding.boot_id or node.boot_id
    # Measured here since the claim: a launch that was sent can then not arrive any more.
    claimed = holding.attempt.not_before or holding.attempt.allocated_at
    is_over = clock.now() - claimed > LAUNCH_IN_FLIGHT
    not_after_s = clocks.uptime_s + (-1 if is_over else 1)
    return MemberRow(key_of(holding), _phase(holding), boot_id=boot_id, not_after_s=not_after_s)


def _phase(holding: Holding) -> Phase:
    state = holding.attempt.state
    if holding.state == MemberState.EXITED or state not in LIVE_ATTEMPT_STATES:
        return Phase.OVER
    if state == AttemptState.STOPPING:
        return Phase.STOPPING
    return Phase.RUNNING if holding.state == MemberState.RUNNING else Phase.STARTING


def _there(report: Report) -> set[Member]:
    """Every member that the node names, whatever it says of it."""
    return {one.member for one in report.members} | {one.member for one in report.unreadable}


def _forget(holdings: Mapping[Member, Holding], report: Report) -> None:
    """Members that are over and that the node has dropped need not be looked at again."""
    there = _there(report)
    gone = [
        holding.pk
        for key, holding in holdings.items()
        if key not in there and _phase(holding) is Phase.OVER
    ]
    if gone:
        members_acknowledged(gone)
