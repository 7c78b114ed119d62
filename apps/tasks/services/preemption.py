"""Preemption of attempts: they stop so that other tasks get their capacity.

Called by a pass, which holds the rows of attempts and tasks until it commits.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F

from apps.core.notifications import after_commit
from apps.events.services import Entry, events_record
from apps.policies.models.policies import OnPreemption
from apps.tasks.models import Attempt, Task
from apps.tasks.states import AttemptState, TaskState
from apps.tasks.topics import task_topics

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
    Attempt.objects.bulk_update(
        [victim.attempt for victim in victims],
        [
            "state",
            "stops_for",
            "is_preempted",
            "moves_to",
            "stop_asked_at",
            "stop_target",
            "stop_detail",
        ],
    )
    _record([victim for group in groups.values() for victim in group])
    after_commit(notify=["execution.poll"])


def _target(victim: PreemptedAttempt) -> tuple[TaskState, str]:
    if not victim.attempt.task.is_restartable:
        return _NOT_AGAIN
    if victim.placement is not None:
        return _MOVED
    return _TARGETS[OnPreemption(victim.attempt.queue.on_preemption)]


def _stop(group: Sequence[PreemptedAttempt], target: TaskState, words: str, now: datetime) -> None:
    for victim in group:
        attempt = victim.attempt
        attempt.state = AttemptState.STOPPING
        attempt.is_preempted = True
        attempt.moves_to = victim.placement if target == TaskState.QUEUED else None
        attempt.stop_asked_at = now
        attempt.stop_target = target
        attempt.stop_detail = words
    Task.objects.filter(
        pk__in=[victim.attempt.task_id for victim in group],
        state__in=[TaskState.ALLOCATED, TaskState.RUNNING],
    ).update(
        state=TaskState.STOPPING,
        state_detail=words,
        preemptions=F("preemptions") + 1,
        changed_at=now,
    )


def _record(victims: Sequence[PreemptedAttempt]) -> None:
    entries: list[Entry] = []
    topics: dict[str, None] = {}
    for victim in victims:
        attempt = victim.attempt
        entries.append(
            Entry(
                kind="task.preempted",
                object_type="task",
                object_id=attempt.task_id,
                queue_id=attempt.queue_id,
                policy_id=attempt.policy_id,
                data={
                    "generation": attempt.generation,
                    "pool": attempt.pool_id,
                    "then": attempt.stop_target,
                    "is_moved": attempt.moves_to is not None,
                },
            )
        )
        names = task_topics(
            attempt.task_id,
            queue_id=attempt.queue_id,
            policy_id=attempt.policy_id,
            pool_id=attempt.pool_id,
        )
        topics.update(dict.fromkeys(names))
    events_record(entries, topics=topics)
