"""Preemption of attempts: they stop so that other tasks get their capacity.

The pass has locked their rows and those of their tasks.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.policies.models.policies import OnPreemption
from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.lifecycle.transitions import ASK_TO_STOP, PREEMPT
from apps.tasks.lifecycle.writers import TaskSubject, attempt_transition, task_transition
from apps.tasks.models import Attempt

_TARGETS = {
    OnPreemption.REQUEUE: (TaskState.QUEUED, "Preempted by a task with a better tier or priority."),
    OnPreemption.PAUSE: (TaskState.PAUSED, "Preempted, and paused as its queue says."),
    OnPreemption.END: (TaskState.ABORTED, "Preempted, and ended as its queue says."),
}
_NOT_AGAIN = (TaskState.ABORTED, "Preempted, and ended because it may not be started again.")
_MOVED = (TaskState.QUEUED, "Moved inside its pool, to free capacity for others.")


@dataclass(frozen=True, slots=True)
class PreemptedAttempt:
    """An attempt, locked with its task, whose capacity the attempt `beneficiary` gets.

    `placement`, [node, [[index, thousandths], ...]] per member, is kept for it when it is moved.
    """

    attempt: Attempt
    beneficiary: UUID
    placement: list[Any] | None = None


def attempts_preempt(victims: Sequence[PreemptedAttempt], *, now: datetime) -> None:
    """Ask attempts to stop; one that stops already only gets its beneficiary.

    The end of the attempt moves its task on: back to its old position in the queue, to *paused*, or
    to its end.
    """
    if not victims:
        return
    groups: dict[tuple[TaskState, str], list[PreemptedAttempt]] = defaultdict(list)
    for victim in victims:
        victim.attempt.stops_for_id = victim.beneficiary
        if victim.attempt.state != AttemptState.STOPPING:
            groups[_target(victim)].append(victim)
    for (target, words), group in groups.items():
        _stop(group, target, words, now)
    Attempt.objects.bulk_update([victim.attempt for victim in victims], ["stops_for", "moves_to"])


def _target(victim: PreemptedAttempt) -> tuple[TaskState, str]:
    if not victim.attempt.task.is_restartable:
        return _NOT_AGAIN
    if victim.placement is not None:
        return _MOVED
    return _TARGETS[OnPreemption(victim.attempt.queue.on_preemption)]


def _stop(group: Sequence[PreemptedAttempt], target: TaskState, words: str, now: datetime) -> None:
    for victim in group:
        victim.attempt.moves_to = victim.placement if target == TaskState.QUEUED else None
    attempt_transition(
        ASK_TO_STOP,
        *(victim.attempt for victim in group),
        at=now,
        is_preempted=True,
        stop_target=target,
        stop_detail=words,
    )
    subjects = [
        TaskSubject.of(victim.attempt, then=target, is_moved=victim.attempt.moves_to is not None)
        for victim in group
    ]
    task_transition(PREEMPT, subjects, at=now, columns={"state_detail": words})
