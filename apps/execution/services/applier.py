"""Stores what the reconciler's actions mean, and collects the requests for the node.

Each action is one transaction of the process that serves the node.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog
from django.db import DatabaseError, DataError, InterfaceError, OperationalError

from apps.core import clock
from apps.core.errors import RpmError
from apps.execution.container_specs import LAUNCH_WINDOW_S
from apps.execution.protocol.answers import ReportedMember, SyncReport
from apps.execution.protocol.requests import MemberKey
from apps.execution.reconciler import (
    Acknowledge,
    Action,
    Kill,
    KillAndRequeue,
    Launch,
    NoteLost,
    NoteResult,
    NoteRunning,
    NoteStopped,
    NoteVanished,
    Quarantine,
)
from apps.execution.services.node_ownership import as_server
from apps.tasks.lifecycle.states import MemberState
from apps.tasks.models import Member
from apps.tasks.services.attempts.checkpoints import attempt_note_checkpoint
from apps.tasks.services.attempts.next_state import MemberResult
from apps.tasks.services.members.exits import member_note_exit
from apps.tasks.services.members.launch import member_note_start, member_release_start
from apps.tasks.services.members.logs import MOST_BYTES

log = structlog.get_logger(__name__)

# After a claim, how long its launch may still arrive: the window on the node's clock, and on top
# what an exchange takes.
LAUNCH_IN_FLIGHT = timedelta(seconds=LAUNCH_WINDOW_S + 10)
UNREADABLE = "The node's report of it cannot be used:"
# What it is of values that no column takes.
UNUSABLE = (ArithmeticError, TypeError, ValueError, DataError)
_WITH_REPORT = (NoteResult, NoteRunning)
LEASE_OVER = "node_loss: the node heard nothing for so long that it ended the task by itself."


@dataclass(frozen=True, slots=True)
class ReportOutcome:
    """What the next exchange has to say: results that are stored, members that must go.

    `unknown` are ours by their names, and the database has never heard of them; those that must
    go are among them until they are gone.
    """

    acknowledged: tuple[MemberKey, ...] = ()
    to_stop: tuple[MemberKey, ...] = ()
    unknown: tuple[MemberKey, ...] = ()
    # Of the first member whose report could not be taken; the others are not touched by it.
    problem: str = ""


class Applier:
    """Carries out actions for one report.

    Args:
        rows: every member that an action may name and the database knows.
        before: their states before the node was asked, by the id of the row. A member whose launch
            was sent since then may be missing in its report without being gone.
        token: the process that serves the node.
        boot_id: the node's boot.
        launching: rows that this process is launching.
    """

    def __init__(
        self,
        rows: Mapping[MemberKey, Member],
        before: Mapping[int, str],
        *,
        token: str,
        boot_id: str,
        launching: Collection[int] = (),
    ) -> None:
        self._rows = rows
        self._before = before
        self._token = token
        self._boot_id = boot_id
        self._launching = launching
        self._acknowledged: list[MemberKey] = []
        self._to_stop: list[MemberKey] = []
        self._unknown: list[MemberKey] = []
        self._problems: dict[MemberKey, str] = {}

    def apply(
        self,
        actions: Iterable[Action],
        report: SyncReport,
        *,
        checkpoints_of: Collection[MemberKey],
    ) -> None:
        """Write all of them down, and the checkpoints; what fails for one member is its own.

        Raises:
            NotServing: another process has taken the node; the rest is left to it.
        """
        for action in actions:
            member = action.report.member if isinstance(action, _WITH_REPORT) else action.member
            is_usable = self.is_usable(member, partial(self._apply, action))
            if not is_usable and isinstance(action, NoteResult):
                self._lost(member)
        for one in report.unreadable:
            self._problems[one.member] = f"{UNREADABLE} {one.problem}"
            if one.has_ended:
                self._lost(one.member)
        for seen in report.members:
            if seen.member not in checkpoints_of:
                continue
            self.is_usable(seen.member, partial(self._note_checkpoint, seen))

    def outcome(self) -> ReportOutcome:
        """What the next exchange has to say, of everything that was written so far."""
        problem = next((f"Task {one.task_id}: {it}" for one, it in self._problems.items()), "")
        return ReportOutcome(
            tuple(self._acknowledged), tuple(self._to_stop), tuple(self._unknown), problem
        )

    def is_usable(self, member: MemberKey, write: Callable[[], None]) -> bool:
        """Write what was reported of this member; False if that can never be written.

        Whatever goes wrong is this member's alone: what may work the next time is left to it.

        Raises:
            DatabaseError: the database is away, which is no fault of the report.
        """
        try:
            write()
        except (OperationalError, InterfaceError):
            raise
        except (*UNUSABLE, DatabaseError, LookupError, RpmError) as error:
            log.exception("member.report_failed", task=member.task_id, rank=member.rank)
            self._problems[member] = f"{UNREADABLE} {type(error).__name__}"
            return not isinstance(error, UNUSABLE)
        return True

    def _lost(self, member: MemberKey) -> None:
        """It has ended without a known result: its task fails with these words."""
        row = self._rows.get(member)
        if row is None:
            self._unknown.append(member)
            return
        ended = MemberResult(None, self._problems[member])

        def write() -> None:
            with self._serving(row):
                member_note_exit(member_id=row.pk, ended=ended)
            self._acknowledged.append(member)

        self.is_usable(member, write)

    def _apply(self, action: Action) -> None:
        match action:
            case Kill(member):
                self._to_stop.append(member)
                if member not in self._rows:
                    self._unknown.append(member)
            case Acknowledge(member):
                self._acknowledged.append(member)
            case Quarantine(member):
                self._unknown.append(member)
            case Launch(member):
                self._launch(member)
            case NoteRunning(report):
                self._started(report)
            case NoteResult(report):
                self._ended(report)
            case _:
                self._missed(action)

    def _missed(self, action: Action) -> None:
        """Leases come with the next request; stops are sent, and sent again, by the server."""
        match action:
            case KillAndRequeue(member):
                words = "The node had never started it."
                if self._gone(member, MemberResult(None, words, is_lost=True)):
                    self._to_stop.append(member)
            case NoteVanished(member):
                self._gone(
                    member, MemberResult(None, "container_lost: it is gone without a result.")
                )
            case NoteLost(member):
                words = "node_loss: the node has booted again."
                self._gone(member, MemberResult(None, words, is_lost=True))
            case NoteStopped(member):
                self._stopped(member)

    def _started(self, seen: ReportedMember) -> None:
        row = self._rows[seen.member]
        at = clock.now() if seen.started_wall_s is None else _moment(seen.started_wall_s)
        with self._serving(row):
            member_note_start(member_id=row.pk, at=at)
            self._checkpointed(row, seen)

    def _note_checkpoint(self, seen: ReportedMember) -> None:
        """The task has said on its node that its state is saved."""
        row = self._rows.get(seen.member)
        at = seen.checkpointed_wall_s
        if row is None or at is None:
            return
        before = row.attempt.checkpointed_at
        if before is None or _moment(at) > before:
            with self._serving(row):
                self._checkpointed(row, seen)

    def _checkpointed(self, row: Member, seen: ReportedMember) -> None:
        if seen.checkpointed_wall_s is not None:
            at = _moment(seen.checkpointed_wall_s)
            attempt_note_checkpoint(attempt_id=row.attempt_id, at=at)

    def _ended(self, seen: ReportedMember) -> None:
        row = self._rows[seen.member]
        never_ran = seen.exit_code is None and seen.started_wall_s is None
        if never_ran and row.pk in self._launching:
            # The launch's own answer says why it failed.
            return
        # The result is taken with the last byte, so that no user reads a log without its end.
        has_log = row.log_offset >= min(seen.log_bytes, MOST_BYTES + 1)
        with self._serving(row):
            if seen.started_wall_s is not None and row.state != MemberState.RUNNING:
                member_note_start(member_id=row.pk, at=_moment(seen.started_wall_s))
                row.state = MemberState.RUNNING
            self._checkpointed(row, seen)
            if has_log:
                member_note_exit(member_id=row.pk, ended=_result_of(seen))
        if has_log:
            self._acknowledged.append(seen.member)

    def _gone(self, member: MemberKey, ended: MemberResult) -> bool:
        row = self._rows[member]
        if self._before.get(row.pk) != MemberState.RUNNING:
            return False
        with self._serving(row):
            return member_note_exit(member_id=row.pk, ended=ended)

    def _stopped(self, member: MemberKey) -> None:
        """A launch may be under way: then the node's answer to the stop tells that it is not."""
        row = self._rows[member]
        was_running = self._before.get(row.pk) == MemberState.RUNNING
        if was_running or (row.state == MemberState.ALLOCATED and not row.launched_at):
            with self._serving(row):
                member_note_exit(member_id=row.pk, ended=MemberResult(None, "It has stopped."))

    def _launch(self, member: MemberKey) -> None:
        """Free the claim; the next pass launches, and the node starts at most one."""
        row = self._rows[member]
        if row.pk in self._launching:
            # Its image is being fetched, or the answer is on its way.
            return
        claimed = row.attempt.not_before or row.attempt.allocated_at
        is_late = clock.now() - claimed > LAUNCH_IN_FLIGHT
        is_refused = row.boot_id not in {"", self._boot_id}
        if row.state == MemberState.STARTING and (is_late or is_refused):
            with self._serving(row):
                member_release_start(
                    member_id=row.pk,
                    token=row.lock_token,
                    delay_s=0,
                    detail="The launch got lost.",
                )

    def _serving(self, row: Member) -> AbstractContextManager[None]:
        return as_server(row.node_id or 0, self._token)


def _result_of(seen: ReportedMember) -> MemberResult:
    at = _moment(seen.ended_wall_s) if seen.ended_wall_s is not None else clock.now()
    if seen.is_lease_over:
        return MemberResult(seen.exit_code, LEASE_OVER, at, is_lost=True)
    return MemberResult(
        exit_code=seen.exit_code, detail=seen.error, at=at, is_stop_asked=seen.is_stop_asked
    )


def _moment(wall_s: float) -> datetime:
    """The node's wall clock; times in the future would make nonsense of every duration."""
    now = clock.now()
    return min(datetime.fromtimestamp(min(max(wall_s, 0.0), now.timestamp()), tz=UTC), now)
