"""The life of a task as phases: when it waited, started and ran."""

from datetime import datetime, timedelta

from apps.dashboard.cards.bars import TaskPhase
from apps.dashboard.selectors.task_history import TaskHistory
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, TaskState
from apps.tasks.models import Task

RUNNING = frozenset({"run", "over"})
WAITING = frozenset({"wait"})
_WAITING_STATES = frozenset({TaskState.QUEUED, TaskState.PAUSED, TaskState.REJECTED})


def task_phases(
    task: Task, history: TaskHistory, now: datetime, *, is_over_quota: bool = False
) -> list[TaskPhase]:
    """The life of a task as phases without gaps.

    An attempt counts as it did when it was admitted; the one that runs counts as it does now
    (`is_over_quota`), which may have changed with what others hold.
    """
    at = task.waits_since or history.enqueued_at
    if at is None:
        return []
    found: list[TaskPhase] = []
    for attempt in history.attempts:
        if attempt.allocated_at > at:
            found.append(TaskPhase("wait", at, attempt.allocated_at))
        begun = attempt.started_at or attempt.ended_at or now
        end = attempt.ended_at or now
        is_live = attempt.state in LIVE_ATTEMPT_STATES
        over_quota = is_over_quota if is_live else history.tier(attempt.generation) == "over_quota"
        if begun > attempt.allocated_at:
            found.append(TaskPhase("start", attempt.allocated_at, begun))
        if end > begun:
            found.append(TaskPhase("over" if over_quota else "run", begun, end))
        at = max(end, attempt.allocated_at)
    waited_until = _waited_until(task, history, now)
    if waited_until is not None and waited_until > at:
        found.append(TaskPhase("wait", at, waited_until))
    return found


def _waited_until(task: Task, history: TaskHistory, now: datetime) -> datetime | None:
    """The end of the last waiting phase; None where an attempt was the last phase."""
    if task.waits_since is None:
        return history.dequeued_at
    if task.state in _WAITING_STATES:
        return now
    was_aborted = task.state == TaskState.ABORTED
    return task.ended_at if was_aborted and history.state_before_abort in _WAITING_STATES else None


def phase_sum(phases: list[TaskPhase], kinds: frozenset[str]) -> timedelta:
    """How long the phases of these kinds took together."""
    return sum((s.ended - s.began for s in phases if s.kind in kinds), timedelta())


def counted_from(phases: list[TaskPhase], kinds: frozenset[str]) -> datetime | None:
    """When the sum would have begun without gaps; None where the last phase is of another kind."""
    *before, last = phases
    return last.began - phase_sum(before, kinds) if last.kind in kinds else None
