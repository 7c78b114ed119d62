"""What answers and reports mean for the books, as `apps.execution.services` takes them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from apps.execution import leases
from apps.execution.leases import NodeClock
from apps.execution.protocol.answers import ReportedMember
from apps.execution.protocol.requests import MemberKey
from apps.execution.reconciler import (
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
    UnknownMembers,
    reconcile,
)
from tests.execution.machine.database import Attempt, Database, NodeRow
from tests.execution.machine.node import Node

LEASE_S = 30.0
WINDOW_S = 60.0
IN_FLIGHT_S = 70.0
# How fast the nodes' clocks go compared with ours.
DRIFTS = {"a": 1.004, "b": 0.996}

Reconcile = Callable[..., tuple[Action, ...]]


@dataclass(frozen=True)
class Message:
    """A launch or a stop on its way."""

    node: str
    member: MemberKey
    token: int
    boot_id: str = ""
    not_after_s: float = 0.0
    lease_until_s: float | None = None
    is_stop: bool = False
    is_kill: bool = False


@dataclass(frozen=True)
class Answer:
    """A report on its way back, with what the books said when it was asked for."""

    node: str
    token: int
    before: Mapping[MemberKey, str]
    boot_id: str
    uptime_s: float
    members: tuple[ReportedMember, ...]
    epoch: int


class ControlPlane:
    """Two nodes and their books. `decide` and `is_over` can be replaced by broken ones."""

    def __init__(
        self,
        decide: Reconcile = reconcile,
        is_over: Callable[..., bool] = leases.is_over,
    ) -> None:
        self.decide, self.is_over = decide, is_over
        self.now = 1000.0
        self.nodes = {name: Node(name) for name in DRIFTS}
        self.database = Database(
            nodes={name: NodeRow(node.boot_id, node.uptime_s) for name, node in self.nodes.items()}
        )
        self.token = 1
        self.epoch = 0
        self.clocks: dict[str, NodeClock] = {}
        self.answered: set[str] = set()
        self.cut: set[str] = set()
        self.messages: list[Message] = []
        self.answers: dict[str, Answer] = {}
        self.acks: dict[str, list[MemberKey]] = {name: [] for name in self.nodes}
        self.unknown: dict[str, dict[MemberKey, float]] = {name: {} for name in self.nodes}
        self.kept: Database | None = None
        self.was_restored = False
        self._take_over()

    def _take_over(self) -> None:
        self.token += 1
        self.answered.clear()
        self.answers.clear()
        self.acks = {name: [] for name in self.nodes}
        self.unknown = {name: {} for name in self.nodes}
        self.clocks = {
            name: NodeClock(row.boot_id, row.uptime_s, self.now)
            for name, row in self.database.nodes.items()
        }

    def _of(self, name: str) -> list[Attempt]:
        return [one for one in self.database.attempts.values() if one.node == name]

    def _maybe_alive(self, name: str) -> Iterable[Attempt]:
        return [
            one
            for one in self._of(name)
            if one.phase != "over" and one.member_state in {"starting", "running"}
        ]

    def _renew(self, name: str) -> None:
        """In the books first; counted from what the node last showed."""
        clock = self.clocks[name]
        for attempt in self._maybe_alive(name):
            if attempt.lease_until_s is None or attempt.boot_id != clock.boot_id:
                continue
            until = leases.renewed_lease(attempt.lease_until_s, clock, lease_s=LEASE_S)
            attempt.lease_until_s = until or attempt.lease_until_s
            self.nodes[name].renew(attempt.member, attempt.lease_until_s)

    def _receive(self, attempt: Attempt, message: Message, reply: str) -> None:
        """The answer to a launch or a stop."""
        if attempt.phase == "over":
            return
        if message.is_stop:
            if reply == "absent":
                self._end(attempt, None)
        elif reply == "running":
            self._started(attempt)
        elif reply in {"ended", "fenced"}:
            self._end(attempt, None, is_lost=True, is_reported=True)
        elif reply in {"late", "older_alive", "other_boot"}:
            attempt.token = 0

    def _started(self, attempt: Attempt) -> None:
        if attempt.member_state in {"allocated", "starting"}:
            attempt.member_state = "running"
        if attempt.phase in {"allocated", "starting"}:
            attempt.phase = "running"

    def _apply(self, answer: Answer) -> None:
        name, row = answer.node, self.database.nodes[answer.node]
        self.clocks[name] = NodeClock(answer.boot_id, answer.uptime_s, self.now)
        self.answered.add(name)
        reported = {one.member for one in answer.members}
        rows = {
            one.member: one
            for one in self._of(name)
            if not one.is_acknowledged or one.member in reported
        }
        is_sure = self.database.is_confirmed or not self.database.is_doubted
        since = (
            dict.fromkeys(self.unknown[name], float("-inf")) if self.database.is_confirmed else {}
        )
        unknown = UnknownMembers({**self.unknown[name], **since}, may_be_killed=is_sure)
        actions = self.decide(
            [self._row(one, answer) for one in rows.values()],
            NodeReport(answer.boot_id, answer.uptime_s, answer.members),
            unknown,
            now=self.now,
        )
        self.acks[name] = []
        self._unknown_members(name, actions, rows, is_sure=is_sure)
        for action in actions:
            if not (isinstance(action, NoteVanished) and self.database.is_doubted):
                self._note(action, rows, answer)
        for one in rows.values():
            if one.member not in reported and one.phase == "over":
                one.is_acknowledged = True
        row.boot_id, row.uptime_s = answer.boot_id, answer.uptime_s
        row.reported_since_confirmed = self.database.is_confirmed
        row.is_off = False
        if not any(isinstance(action, Kill) for action in actions):
            row.state = "healthy"

    def _unknown_members(
        self,
        name: str,
        actions: Iterable[Action],
        rows: dict[MemberKey, Attempt],
        *,
        is_sure: bool,
    ) -> None:
        """What the books have never heard of stays in view until it is gone."""
        known = self.unknown[name]
        found: dict[MemberKey, float] = {}
        for action in actions:
            if isinstance(action, Kill | Quarantine) and action.member not in rows:
                found[action.member] = known.get(action.member, self.now)
                is_bad = isinstance(action, Kill) and not is_sure and not self._is_old(action)
                assert not is_bad, f"{action.member} is killed although the books are in doubt"
        self.unknown[name], self.database.nodes[name].unknown = found, len(found)

    def _is_old(self, action: Kill) -> bool:
        task = self.database.tasks.get(action.member.task_id)
        return task is not None and action.member.generation < task.generation

    def _row(self, attempt: Attempt, answer: Answer) -> MemberRow:
        phase = {
            "over": Phase.OVER,
            "stopping": Phase.STOPPING,
            "running": Phase.RUNNING,
        }.get(attempt.phase, Phase.STARTING)
        boot = attempt.boot_id or self.database.nodes[attempt.node].boot_id
        is_late = self.now - attempt.claimed_at > IN_FLIGHT_S
        return MemberRow(attempt.member, phase, boot, answer.uptime_s + (-1 if is_late else 1))

    def _kill(self, name: str, member: MemberKey) -> None:
        self.messages.append(Message(name, member, self.token, is_stop=True, is_kill=True))

    def _note(self, action: Action, rows: dict[MemberKey, Attempt], answer: Answer) -> None:
        match action:
            case Kill(member):
                self._kill(answer.node, member)
            case Acknowledge(member):
                self.acks[answer.node].append(member)
            case Launch(member):
                self._launch_again(rows[member], answer)
            case NoteRunning(seen):
                self._started(rows[seen.member])
            case NoteResult(seen):
                is_over = seen.is_lease_over
                self._end(rows[seen.member], seen.exit_code, is_lost=is_over, is_reported=is_over)
                self.acks[answer.node].append(seen.member)
            case KillAndRequeue(member) | NoteLost(member) | NoteVanished(member):
                self._gone(rows[member], answer, is_lost=not isinstance(action, NoteVanished))
            case NoteStopped(member):
                self._gone(rows[member], answer, is_lost=False)

    def _launch_again(self, attempt: Attempt, answer: Answer) -> None:
        is_late = self.now - attempt.claimed_at > IN_FLIGHT_S
        if attempt.member_state == "starting" and (is_late or attempt.boot_id != answer.boot_id):
            attempt.token = 0

    def _gone(self, attempt: Attempt, answer: Answer, *, is_lost: bool) -> None:
        if answer.before.get(attempt.member) == "running":
            self._end(attempt, None, is_lost=is_lost)

    def _end(
        self,
        attempt: Attempt,
        code: int | None,
        *,
        is_lost: bool = False,
        is_reported: bool = False,
    ) -> None:
        if attempt.phase == "over":
            return
        if is_lost and not is_reported and not self.was_restored:
            self._assert_lost(attempt)
        if attempt.phase == "running" and not is_lost and code is None and not self.was_restored:
            raise AssertionError(f"{attempt.member} is taken for vanished, and nothing vanishes")
        target, attempt.phase = attempt.target, "over"
        attempt.member_state = "exited"
        task = self.database.tasks[attempt.member.task_id]
        assert not task.result, f"{task.name} gets a second result"
        if target == "queued" or (not target and is_lost and task.policy != "fail"):
            task.state = "queued"
            return
        task.state = "done"
        task.result = target or ("completed" if code == 0 else "failed")

    def _assert_lost(self, attempt: Attempt) -> None:
        """A run is taken for lost only when its node lost it."""
        node = self.nodes[attempt.node]
        is_gone = not node.is_on or node.boot_id != attempt.boot_id
        until = attempt.lease_until_s
        is_over = until is not None and node.uptime_s >= until
        assert is_gone or is_over, f"{attempt.member} is run again although its node has it"
