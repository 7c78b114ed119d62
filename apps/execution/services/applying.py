"""Writes down what the actions of the reconciler mean, and gathers what the node is to be told.

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
from apps.execution.launching import LAUNCH_WINDOW_S
from apps.execution.protocol.answers import Report, ReportedMember
from apps.execution.protocol.requests import Member
from apps.execution.reconcile import (
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
from apps.execution.services.guarding import as_server
from apps.tasks.models import Holding
from apps.tasks.services.attempts import Ended, member_exited, member_release_start, member_started
from apps.tasks.services.checkpoints import attempt_checkpointed
from apps.tasks.services.logs import MOST_BYTES
from apps.tasks.states import MemberState

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
class Reported:
    """What the next exchange has to say: results that are stored, members that must go.

    `unknown` are ours by their names, and the database has never heard of them; those that must
    go are among them until they are gone.
    """

    acknowledged: tuple[Member, ...] = ()
    to_stop: tuple[Member, ...] = ()
    unknown: tuple[Member, ...] = ()
    # Of the first member whose report could not be taken; the others are not touched by it.
    problem: str = ""


class Applier:
    """Carries out actions for one report.

    Args:
        rows: every member that an action may name and the database knows.
        before: their states before the node was asked, by the id of the row. What the node was
            told to start since then may be missing in its report without being gone.
        token: the process that serves the node.
        boot_id: the node's boot.
        launching: rows whose launch is under way in this process.
    """

    def __init__(
        self,
        rows: Mapping[Member, Holding],
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
        self._acknowledged: list[Member] = []
        self._to_stop: list[Member] = []
        self._unknown: list[Member] = []
        self._problems: dict[Member, str] = {}

    def apply(
        self, actions: Iterable[Action], report: Report, *, checkpoints_of: Collection[Member]
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

    def reported(self) -> Reported:
        """What the next exchange has to say, of everything that was written so far."""
        problem = next((f"Task {one.task_id}: {it}" for one, it in self._problems.items()), "")
        return Reported(
            tuple(self._acknowledged), tuple(self._to_stop), tuple(self._unknown), problem
        )

    def is_usable(self, member: Member, write: Callable[[], None]) -> bool:
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

    def _lost(self, member: Member) -> None:
        """It has ended, and nobody can tell how: its task fails with these words."""
        holding = self._rows.get(member)
        if holding is None:
            self._unknown.append(member)
            return
        ended = Ended(None, self._problems[member])

        def write() -> None:
            with self._serving(holding):
                member_exited(holding_id=holding.pk, ended=ended)
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
                if self._gone(member, Ended(None, words, is_lost=True)):
                    self._to_stop.append(member)
            case NoteVanished(member):
                self._gone(member, Ended(None, "container_lost: it is gone without a result."))
            case NoteLost(member):
                words = "node_loss: the node has started anew."
                self._gone(member, Ended(None, words, is_lost=True))
            case NoteStopped(member):
                self._stopped(member)

    def _started(self, seen: ReportedMember) -> None:
        holding = self._rows[seen.member]
        at = clock.now() if seen.started_wall_s is None else _moment(seen.started_wall_s)
        with self._serving(holding):
            member_started(holding_id=holding.pk, at=at)
            self._checkpointed(holding, seen)

    def _note_checkpoint(self, seen: ReportedMember) -> None:
        """The task has said on its node that its state is saved."""
        holding = self._rows.get(seen.member)
        at = seen.checkpointed_wall_s
        if holding is None or at is None:
            return
        before = holding.attempt.checkpointed_at
        if before is None or _moment(at) > before:
            with self._serving(holding):
                self._checkpointed(holding, seen)

    def _checkpointed(self, holding: Holding, seen: ReportedMember) -> None:
        if seen.checkpointed_wall_s is not None:
            at = _moment(seen.checkpointed_wall_s)
            attempt_checkpointed(attempt_id=holding.attempt_id, at=at)

    def _ended(self, seen: ReportedMember) -> None:
        holding = self._rows[seen.member]
        never_ran = seen.exit_code is None and seen.started_wall_s is None
        if never_ran and holding.pk in self._launching:
            # The launch's own answer says why it failed.
            return
        # The result is taken with the last byte, so that nobody reads a log without its end.
        has_log = holding.log_offset >= min(seen.log_bytes, MOST_BYTES + 1)
        with self._serving(holding):
            if seen.started_wall_s is not None and holding.state != MemberState.RUNNING:
                member_started(holding_id=holding.pk, at=_moment(seen.started_wall_s))
                holding.state = MemberState.RUNNING
            self._checkpointed(holding, seen)
            if has_log:
                member_exited(holding_id=holding.pk, ended=_result_of(seen))
        if has_log:
            self._acknowledged.append(seen.member)

    def _gone(self, member: Member, ended: Ended) -> bool:
        holding = self._rows[member]
        if self._before.get(holding.pk) != MemberState.RUNNING:
            return False
        with self._serving(holding):
            return member_exited(holding_id=holding.pk, ended=ended)

    def _stopped(self, member: Member) -> None:
        """A launch may be under way: then the node's answer to the stop tells that it is not."""
        holding = self._rows[member]
        was_running = self._before.get(holding.pk) == MemberState.RUNNING
        if was_running or (holding.state == MemberState.ALLOCATED and not holding.launched_at):
            with self._serving(holding):
                member_exited(holding_id=holding.pk, ended=Ended(None, "It has stopped."))

    def _launch(self, member: Member) -> None:
        """Free the claim; whoever looks next launches, and the node starts at most one."""
        holding = self._rows[member]
        claimed = holding.attempt.not_before or holding.attempt.allocated_at
        is_late = clock.now() - claimed > LAUNCH_IN_FLIGHT
        is_refused = holding.boot_id not in {"", self._boot_id}
        if holding.state == MemberState.STARTING and (is_late or is_refused):
            with self._serving(holding):
                member_release_start(
                    holding_id=holding.pk,
                    token=holding.lock_token,
                    delay_s=0,
                    detail="The launch got lost.",
                )

    def _serving(self, holding: Holding) -> AbstractContextManager[None]:
        return as_server(holding.node_id or 0, self._token)


def _result_of(seen: ReportedMember) -> Ended:
    at = _moment(seen.ended_wall_s) if seen.ended_wall_s is not None else clock.now()
    if seen.is_lease_over:
        return Ended(seen.exit_code, LEASE_OVER, at, is_lost=True)
    return Ended(
        exit_code=seen.exit_code, detail=seen.error, at=at, is_stop_asked=seen.is_stop_asked
    )


def _moment(wall_s: float) -> datetime:
    """The node's wall clock; times in the future would make nonsense of every duration."""
    now = clock.now()
    return min(datetime.fromtimestamp(min(max(wall_s, 0.0), now.timestamp()), tz=UTC), now)
