"""What to do when the database and a node disagree. Pure: rows and a report in, actions out.

The table of docs/execution.md, "When a component is unavailable", one function per row of it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from apps.execution.protocol.answers import ReportedMember
from apps.execution.protocol.requests import MemberKey

# How long something of ours that the database does not know is left alone.
QUARANTINE_S: Final = 600.0


class Phase(Enum):
    """The rows of the table: what the database believes about a member on this node."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member as the database knows it.

    Args:
        phase: a suspect attempt counts as what it was before its node fell silent; an attempt that
            ended, is lost, or is on another node is over.
        boot_id: the node's boot on which it was launched; empty before the first launch.
        not_after_s: last moment of its launch, on that boot's clock.
    """

    member: MemberKey
    phase: Phase
    boot_id: str = ""
    not_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What the node said.

    Args:
        uptime_s: the node's boot clock at the time of the report.
    """

    boot_id: str
    uptime_s: float
    members: tuple[ReportedMember, ...]


@dataclass(frozen=True, slots=True)
class UnknownMembers:
    """Members of ours that the database does not know.

    Args:
        since: when each was first seen, in seconds of a clock that does not jump.
        may_be_killed: the database was not restored from a backup since; else an administrator
            decides.
    """

    since: Mapping[MemberKey, float]
    may_be_killed: bool


@dataclass(frozen=True, slots=True)
class Launch:
    """Send the launch (again); the node starts at most one however often it comes."""

    member: MemberKey


@dataclass(frozen=True, slots=True)
class NoteRunning:
    """The node has started it."""

    report: ReportedMember


@dataclass(frozen=True, slots=True)
class NoteResult:
    """It has ended: write the result down, acknowledge after the commit."""

    report: ReportedMember


@dataclass(frozen=True, slots=True)
class NoteVanished:
    """It ran on this boot and is gone without a result: failed, `container_lost`."""

    member: MemberKey


@dataclass(frozen=True, slots=True)
class NoteLost:
    """The node has booted since: what ran there is lost."""

    member: MemberKey


@dataclass(frozen=True, slots=True)
class NoteStopped:
    """It was being stopped and is gone: on to its next state."""

    member: MemberKey


@dataclass(frozen=True, slots=True)
class RenewLease:
    """It runs as it should."""

    member: MemberKey


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask it to end, with its grace period."""

    member: MemberKey


@dataclass(frozen=True, slots=True)
class Kill:
    """End it at once; it must not be there."""

    member: MemberKey


@dataclass(frozen=True, slots=True)
class KillAndRequeue:
    """The database says it runs, the node never started it: end this attempt, wait again."""

    member: MemberKey


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The database has its result: the node may forget it."""

    member: MemberKey


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Ours, but unknown to the database: show it, touch nothing."""

    member: MemberKey


Action: TypeAlias = (
    Launch
    | NoteRunning
    | NoteResult
    | NoteVanished
    | NoteLost
    | NoteStopped
    | RenewLease
    | Stop
    | Kill
    | KillAndRequeue
    | Acknowledge
    | Quarantine
)


def reconcile(
    rows: Iterable[MemberRow], report: NodeReport, unknown: UnknownMembers, *, now: float
) -> tuple[Action, ...]:
    """What the difference between rows and report asks for, in the order of the members.

    Args:
        rows: live members on this node, and every other row of the database that has the task,
            generation and rank of a reported member (its phase is `OVER`).
        now: of the clock of `unknown.since`; only for the quarantine.
    """
    known = {row.member: row for row in rows}
    reported = {member.member: member for member in report.members}
    newest: dict[tuple[str, int], int] = {}
    for member in known:
        rank_of_task = (member.task_id, member.rank)
        newest[rank_of_task] = max(newest.get(rank_of_task, 0), member.generation)
    actions: list[Action] = []
    for member in sorted(known.keys() | reported.keys()):
        row, seen = known.get(member), reported.get(member)
        if row is not None:
            actions += _OF_PHASE[row.phase](row, seen, report)
        elif seen is not None and newest.get((member.task_id, member.rank), 0) > member.generation:
            actions += _older(seen)
        elif seen is not None:
            actions.append(_unknown(seen, unknown, now=now))
    return tuple(actions)


def _starting(row: MemberRow, seen: ReportedMember | None, report: NodeReport) -> list[Action]:
    if seen is None:
        # Until then a launch that was sent may still arrive; on another boot it is refused.
        is_too_late = report.boot_id != row.boot_id or report.uptime_s > row.not_after_s
        return [Launch(row.member)] if is_too_late else []
    if seen.state == "created":
        return [Launch(row.member)]
    if seen.state == "running":
        return [NoteRunning(seen)]
    return [NoteResult(seen)]


def _running(row: MemberRow, seen: ReportedMember | None, report: NodeReport) -> list[Action]:
    if seen is None:
        is_same_boot = report.boot_id == row.boot_id
        return [NoteVanished(row.member) if is_same_boot else NoteLost(row.member)]
    if seen.state == "created":
        return [KillAndRequeue(row.member)]
    if seen.state == "running":
        return [RenewLease(row.member)]
    return [NoteResult(seen)]


def _stopping(row: MemberRow, seen: ReportedMember | None, _report: NodeReport) -> list[Action]:
    if seen is None:
        return [NoteStopped(row.member)]
    if seen.state == "created":
        return [Kill(row.member)]
    if seen.state == "running":
        # A node that has heard it kills after the grace period by itself.
        return [RenewLease(row.member)] if seen.is_stop_asked else [Stop(row.member)]
    return [NoteResult(seen)]


def _over(row: MemberRow, seen: ReportedMember | None, _report: NodeReport) -> list[Action]:
    if seen is None:
        return []
    return [Acknowledge(row.member) if seen.state == "exited" else Kill(row.member)]


def _older(seen: ReportedMember) -> list[Action]:
    """A generation that the database has left behind."""
    return [Acknowledge(seen.member) if seen.state == "exited" else Kill(seen.member)]


def _unknown(seen: ReportedMember, unknown: UnknownMembers, *, now: float) -> Action:
    since = unknown.since.get(seen.member)
    is_due = since is not None and now - since >= QUARANTINE_S
    if not is_due or not unknown.may_be_killed:
        return Quarantine(seen.member)
    return Acknowledge(seen.member) if seen.state == "exited" else Kill(seen.member)


_OF_PHASE: Final[
    Mapping[Phase, Callable[[MemberRow, ReportedMember | None, NodeReport], list[Action]]]
] = {
    Phase.STARTING: _starting,
    Phase.RUNNING: _running,
    Phase.STOPPING: _stopping,
    Phase.OVER: _over,
}
