"""What a node's report means for the members that the database has on it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from operator import or_

from django.db.models import Q
from django.utils import timezone

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
from apps.tasks.models import Holding
from apps.tasks.services.attempts import members_acknowledged
from apps.tasks.services.logs import MOST_BYTES, log_append
from apps.tasks.states import LIVE_ATTEMPT_STATES, AttemptState, MemberState

# The helper refuses a request that names more.
MOST_LOGS = 1000


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
    before = {holding.pk: holding.state for holding in asked.holdings}
    holdings = {key_of(holding): holding for holding in members_of(node)}
    _store_logs(node, holdings, report.logs, asked.token)
    missing = [member.member for member in report.members if member.member not in holdings]
    rows = {**holdings, **_of_the_past(node, missing)}
    actions = reconcile(
        [_row(holding, node, clocks) for holding in rows.values()],
        NodeReport(clocks.boot_id, clocks.uptime_s, report.members),
        asked.unknown,
        now=asked.now,
    )
    if asked.is_doubted:
        # What ran when the backup was made may have ended since, and its result with it.
        actions = tuple(one for one in actions if not isinstance(one, NoteVanished))
    applier = Applier(
        rows,
        before,
        token=asked.token,
        boot_id=clocks.boot_id,
        launching=asked.launching,
    )
    result = applier.apply(actions)
    for seen in report.members:
        applier.note_checkpoint(seen)
    with as_server(node.pk, asked.token):
        _forget(holdings, report)
        # With its boot: a clock of another one would say nothing about leases.
        Node.objects.filter(pk=node.pk).update(
            boot_id=clocks.boot_id, clock_uptime_s=clocks.uptime_s
        )
    return result


def _store_logs(
    node: Node, holdings: Mapping[Member, Holding], parts: Iterable[LogPart], token: str
) -> None:
    now = timezone.now()
    for part in parts:
        holding = holdings.get(part.member)
        if holding is not None:
            with as_server(node.pk, token):
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
    boot_id = holding.boot_id or node.boot_id
    # Measured here since the claim: a launch that was sent can then not arrive any more.
    claimed = holding.attempt.not_before or holding.attempt.allocated_at
    is_over = timezone.now() - claimed > LAUNCH_IN_FLIGHT
    not_after_s = clocks.uptime_s + (-1 if is_over else 1)
    return MemberRow(key_of(holding), _phase(holding), boot_id=boot_id, not_after_s=not_after_s)


def _phase(holding: Holding) -> Phase:
    state = holding.attempt.state
    if holding.state == MemberState.EXITED or state not in LIVE_ATTEMPT_STATES:
        return Phase.OVER
    if state == AttemptState.STOPPING:
        return Phase.STOPPING
    return Phase.RUNNING if holding.state == MemberState.RUNNING else Phase.STARTING


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
