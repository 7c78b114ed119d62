"""Proves the promise on a history, or says where it was broken. Pure; knows no code under test.

The words of the promise: no accepted task lost, never two living copies of one task, one accepted
result, work run again only after its node was lost, nothing left behind.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tests.chaos.history import AttemptRow, History, KilledAttempt, ProcessLife, TaskRow

ENDED: Final = frozenset({"completed", "failed", "aborted"})
OVER: Final = frozenset({"finished", "lost"})
# A node that goes down right after a task's end takes the end along before it is written down.
WRITTEN_WITHIN_S: Final = 3.0
# So long after a fault its node may not have been heard again, and its lease may end.
HEARD_WITHIN_S: Final = 60.0
UNAVAILABLE: Final = 503
KILLED, TERMINATED = 137, 143


@dataclass(frozen=True, slots=True)
class Breach:
    """One place where the promise was broken."""

    kind: str
    words: str


KINDS: Final = (
    "lost",
    "killed",
    "doubled",
    "overlapping",
    "re-run without node loss",
    "wrong result",
    "ledger",
    "usage",
    "orphans",
    "HTTP 5xx",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was broken, and what is allowed: re-runs by their reason, results nobody could keep."""

    breaches: tuple[Breach, ...]
    reruns: tuple[tuple[str, str], ...]
    unknown_results: int = 0

    def count(self, kind: str) -> int:
        """How often this was broken."""
        return sum(breach.kind == kind for breach in self.breaches)

    def reruns_for(self, reason: str) -> int:
        """How often work was run again for this reason."""
        return sum(reason == known for known, _ in self.reruns)


def check(history: History) -> Verdict:
    """Look at everything; each kind of breach is found by a function of its own."""
    breaches = [breach for look in CHECKS for breach in look(history)]
    reruns = [one for one in _reruns(history) if one[0] != "none"]
    return Verdict(tuple(breaches), tuple(reruns), _unknown_results(history))


def _lost(history: History) -> Iterator[Breach]:
    rows = {row.task: row for row in history.tasks}
    for accepted in history.accepted:
        row = rows.get(accepted.task)
        if row is None:
            yield Breach("lost", f"{accepted.task} was accepted and is not in the database")
        elif row.state not in ENDED:
            yield Breach("lost", f"{row.task} never ended: {row.state}, {row.detail}")


def _doubled(history: History) -> Iterator[Breach]:
    """One key of a client, one task; and no task that nobody asked for."""
    tasks: dict[str, set[str]] = defaultdict(set)
    for accepted in history.accepted:
        tasks[accepted.key].add(accepted.task)
    for key, same in sorted(tasks.items()):
        if len(same) > 1:
            yield Breach("doubled", f"key {key} became {', '.join(sorted(same))}")
    known = {accepted.task for accepted in history.accepted}
    for row in history.tasks:
        if row.task not in known:
            yield Breach("doubled", f"{row.task} is in the database; no client got an answer")


def _overlapping(history: History) -> Iterator[Breach]:
    for lives in _by_member(history).values():
        seen: ProcessLife | None = None
        for life in lives:
            if not life.is_alone:
                yield Breach("overlapping", f"{_name(life)} found another living copy at its start")
            elif seen is not None and life.started_s < seen.last_s and not _is_own(life, seen):
                yield Breach("overlapping", f"{_name(life)} began while {_name(seen)} lived")
            if seen is None or life.last_s > seen.last_s:
                seen = life


def _is_own(life: ProcessLife, other: ProcessLife) -> bool:
    """A process and the child that it left behind are one copy."""
    return life.member == other.member and life.node == other.node and life.is_child


def _rerun_breaches(history: History) -> Iterator[Breach]:
    for reason, words in _reruns(history):
        if reason == "none":
            yield Breach("re-run without node loss", words)


def _reruns(history: History) -> Iterator[tuple[str, str]]:
    """Each start after the first of a member's place, with its reason; "none" is a breach."""
    attempts = {(row.task, row.generation): row for row in history.attempts}
    tasks = {row.task: row for row in history.tasks}
    for (task, _), lives in _by_member(history).items():
        starts = [life for life in lives if not life.is_child]
        for earlier, later in pairwise(starts):
            words = f"{_name(later)} after {_name(earlier)}"
            if later.generation <= earlier.generation:
                yield "none", f"{words}: the same attempt was started again"
                continue
            row = attempts.get((task, earlier.generation))
            yield _reason(history, earlier, later, row, tasks.get(task)), words


def _reason(
    history: History,
    earlier: ProcessLife,
    later: ProcessLife,
    row: AttemptRow | None,
    task: TaskRow | None,
) -> str:
    if row is not None and row.stop_target == "queued":
        return "preempted"
    if row is not None and row.exit_code not in {0, None} and task is not None and task.retries:
        return "retry"
    if row is not None and task is not None and task.retries:
        # A result that nobody could keep counts as a try that failed.
        is_unknown = row.exit_code is None and _is_in(history.unwatched, earlier)
        if is_unknown or _was_killed(history, earlier):
            return "retry"
    if _went_down(history, earlier, until_s=later.started_s):
        return "node loss"
    if _ran_out(history, earlier, row, task):
        return "node loss"
    return "none"


def _ran_out(
    history: History, life: ProcessLife, row: AttemptRow | None, task: TaskRow | None
) -> bool:
    """Whether its lease may have ended: its queue gives leases, its node was out of reach then."""
    if row is None or task is None or row.state != "lost" or task.on_node_loss == "wait":
        return False
    return any(
        silence.node in {"", life.node}
        and silence.from_s <= life.last_s
        and life.last_s <= silence.until_s + HEARD_WITHIN_S
        for silence in history.silences
    )


def _killed_for_nothing(history: History) -> Iterator[Breach]:
    """Work that was cut short although nobody asked for it and nothing happened to its node."""
    attempts = {(row.task, row.generation): row for row in history.attempts}
    tasks = {row.task: row for row in history.tasks}
    for life in history.lives:
        row = attempts.get(life.member[:2])
        if row is None or row.state not in OVER or row.stop_target or life.is_child:
            continue
        # By SIGTERM it has the time to say so itself.
        is_cut = life.ended_s is None and row.exit_code in {None, KILLED, TERMINATED}
        if not is_cut and life.code != TERMINATED:
            continue
        is_ours = _was_killed(history, life) or _is_in(history.unwatched, life)
        if is_ours or _went_down(history, life, until_s=life.last_s + WRITTEN_WITHIN_S):
            continue
        if not _ran_out(history, life, row, tasks.get(row.task)):
            words = f"{_name(life)} ended at {life.last_s:.1f} s and nobody had asked for that"
            yield Breach("killed", f"{words} ({row.state}, {row.exit_code}: {row.detail})")


def _wrong_results(history: History) -> Iterator[Breach]:
    """What the work said at its end is what the database has, and nothing is made up."""
    said = {life.member[:2]: life for life in history.lives if life.ended_s is not None}
    for row in history.attempts:
        life = said.get((row.task, row.generation))
        name = f"{row.task} {row.generation}"
        if row.state not in OVER:
            continue
        if life is None and row.exit_code == 0:
            yield Breach("wrong result", f"{name} is said to have ended well and never did")
        elif life is not None and row.exit_code != life.code and not _excused(history, life, row):
            words = f"{name} ended with {life.code}, the database says {row.exit_code}"
            yield Breach("wrong result", f"{words} ({row.state}: {row.detail})")


def _excused(history: History, life: ProcessLife, row: AttemptRow) -> bool:
    """Whether the end may differ: killed by the run, or its node went down before it was noted."""
    ended_s = life.ended_s or 0.0
    is_lost = row.exit_code is None and _went_down(
        history, life, until_s=ended_s + WRITTEN_WITHIN_S
    )
    tasks = {task.task: task for task in history.tasks}
    is_lost = is_lost or _ran_out(history, life, row, tasks.get(row.task))
    # Who waits for a process has its result; killed, nobody has it, and the task fails and says so.
    is_unwatched = row.exit_code is None and _is_in(history.unwatched, life)
    # Between its last line and its exit a process can still be killed, by a stop or by the run.
    is_late_kill = row.exit_code in {137, 143} and (row.stop_target or _was_killed(history, life))
    return is_lost or is_unwatched or bool(is_late_kill)


def _ledger(history: History) -> Iterator[Breach]:
    live: dict[str, int] = defaultdict(int)
    for row in history.attempts:
        if row.state in OVER and row.held:
            words = f"{row.task} {row.generation} is {row.state} and holds {row.held} still"
            yield Breach("ledger", words)
        live[row.task] += row.state not in OVER
    for task, count in sorted(live.items()):
        if count > 1:
            yield Breach("ledger", f"{task} has {count} live attempts")


def _usage(history: History) -> Iterator[Breach]:
    """Sums of usage are booked exactly once, however often their booking was cut off."""
    for row in history.usage:
        if row.ledger != row.sums:
            words = f"{row.policy} held, began and ended {row.ledger}, {row.table} has {row.sums}"
            yield Breach("usage", words)


def _devices_given_twice(history: History) -> Iterator[Breach]:
    """Whole devices: who finds another one's work on its own was given what was not free."""
    users: dict[tuple[str, str], list[ProcessLife]] = defaultdict(list)
    for life in sorted(history.lives, key=lambda life: (life.started_s, life.pid)):
        for device in life.devices:
            users[life.node, device].append(life)
    for (_, device), lives in sorted(users.items()):
        longest = lives[0]
        for later in lives[1:]:
            if later.started_s < longest.last_s and later.task != longest.task:
                words = f"{_name(later)} began on {device} while {_name(longest)} used it"
                yield Breach("ledger", words)
            longest = max(longest, later, key=lambda life: life.last_s)


def _orphans(history: History) -> Iterator[Breach]:
    for left in history.leftovers:
        yield Breach("orphans", f"{left.kind} on {left.node}: {left.words}")


def _bad_answers(history: History) -> Iterator[Breach]:
    for answer in history.responses:
        is_asking_again = answer.status == UNAVAILABLE and answer.has_retry_after
        if answer.status >= 500 and not is_asking_again:
            words = f"{answer.status} for {answer.path} at {answer.at_s:.1f} s: {answer.words}"
            yield Breach("HTTP 5xx", words)


def _by_member(history: History) -> dict[tuple[str, int], list[ProcessLife]]:
    """The lives of each member's place, in the order of their starts."""
    queue_targets: dict[tuple[str, int], list[ProcessLife]] = defaultdict(list)
    for life in sorted(history.lives, key=lambda life: (life.started_s, life.pid)):
        queue_targets[life.task, life.rank].append(life)
    return dict(sorted(queue_targets.items()))


def _went_down(history: History, life: ProcessLife, *, until_s: float) -> bool:
    return any(
        down.node == life.node and life.started_s <= down.at_s <= until_s for down in history.downs
    )


def _was_killed(history: History, life: ProcessLife) -> bool:
    return _is_in(history.killed, life)


def _is_in(kills: Iterable[KilledAttempt], life: ProcessLife) -> bool:
    return any(
        (kill.task, kill.generation) == life.member[:2] and kill.at_s >= life.started_s
        for kill in kills
    )


def _unknown_results(history: History) -> int:
    """Attempts that ended by themselves and whose code nobody could keep."""
    rows = {(row.task, row.generation): row for row in history.attempts}
    count = 0
    for life in history.lives:
        row = rows.get(life.member[:2])
        is_unknown = row is not None and row.state in OVER and row.exit_code is None
        count += life.ended_s is not None and is_unknown and _is_in(history.unwatched, life)
    return count


def _name(life: ProcessLife) -> str:
    return f"{life.task} {life.generation} on {life.node} (process {life.pid})"


CHECKS: Final[tuple[Callable[[History], Iterator[Breach]], ...]] = (
    _lost,
    _killed_for_nothing,
    _doubled,
    _overlapping,
    _rerun_breaches,
    _wrong_results,
    _ledger,
    _devices_given_twice,
    _usage,
    _orphans,
    _bad_answers,
)
