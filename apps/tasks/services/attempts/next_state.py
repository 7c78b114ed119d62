"""The next state of a task when its attempt ends."""

from dataclasses import dataclass
from datetime import datetime

from apps.policies.models.policies import OnNodeLoss
from apps.tasks.lifecycle.states import AttemptState
from apps.tasks.lifecycle.transitions import (
    AFTER_ATTEMPT,
    COMPLETE,
    FAIL,
    REQUEUE,
    TaskTransition,
)
from apps.tasks.models import Attempt, Task
from apps.tasks.models.attempts import WAS_STOPPED


@dataclass(frozen=True, slots=True)
class MemberResult:
    """How a member ended.

    `exit_code` is None when it never ran or its result is lost; `detail` is in the node's words.
    With `is_lost` its node was lost: no fault of the task, which may run again. With `is_unfit` its
    node could not start it, without any fault of the task: it waits again. `is_stop_asked` False:
    it ended before its node was asked to stop it.
    """

    exit_code: int | None
    detail: str = ""
    at: datetime | None = None
    is_lost: bool = False
    is_stop_asked: bool = True
    is_unfit: bool = False


@dataclass(frozen=True, slots=True)
class NextState:
    """The transition of a task after its attempt; `is_failure` counts against its retries."""

    transition: TaskTransition
    detail: str
    is_failure: bool = False


def next_state(task: Task, attempt: Attempt, ended: MemberResult) -> NextState:
    """The next state of a task whose attempt ends with this result; the attempt is still live."""
    is_stopped = attempt.state == AttemptState.STOPPING and attempt.stop_target
    if is_stopped and not _ended_by_itself(attempt):
        return NextState(AFTER_ATTEMPT[attempt.stop_target], attempt.stop_detail)
    if ended.is_lost:
        return state_after_loss(task, attempt, ended.detail)
    if ended.is_unfit:
        return NextState(REQUEUE, ended.detail)
    if ended.exit_code == 0:
        return NextState(COMPLETE, "")
    # In a gang, the results of members that were stopped are not the cause.
    words = attempt.stop_detail or ended.detail or f"Ended with code {ended.exit_code}."
    if task.failures < task.retries:
        tried = f"Try {task.failures + 1} of {task.retries + 1} failed: {words}"
        return NextState(REQUEUE, tried, is_failure=True)
    return NextState(FAIL, words)


def _ended_by_itself(attempt: Attempt) -> bool:
    """Whether a preempted attempt ended before any of its nodes was asked to stop it.

    Its result counts then: finished work is not run again.
    """
    if not attempt.is_preempted:
        return False
    return not attempt.members.filter(WAS_STOPPED).exists()


def state_after_loss(task: Task, attempt: Attempt, words: str) -> NextState:
    """The next state after the loss of a node: queued, unless the queue or the task forbid it."""
    if not task.is_restartable or attempt.queue.on_node_loss == OnNodeLoss.FAIL:
        return NextState(FAIL, words)
    return NextState(REQUEUE, words)
