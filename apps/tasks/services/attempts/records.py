"""The lock, event and record that every edge of an attempt needs."""

from typing import Any
from uuid import UUID

from apps.events.services import NewEvent, events_record
from apps.tasks.models import Attempt
from apps.tasks.topics import task_topics


def attempt_lock(attempt_id: UUID) -> Attempt:
    """The attempt, locked against every other writer until the transaction ends.

    Rows are locked in this order: attempts, queues, tasks; several of a kind by id.
    Rows may still refer to it, so that attempts that end at the same moment do not block.
    """
    return Attempt.objects.select_for_update(no_key=True).get(pk=attempt_id)


def attempt_entry(attempt: Attempt, kind: str, **data: Any) -> NewEvent:
    """An event about the task of this attempt."""
    return NewEvent(
        kind=kind,
        object_type="task",
        object_id=attempt.task_id,
        queue_id=attempt.queue_id,
        policy_id=attempt.policy_id,
        data={"generation": attempt.generation, "pool": attempt.pool_id, **data},
    )


def attempt_record(attempt: Attempt, entries: list[NewEvent]) -> None:
    """Write the events, and announce the topics of the task, its queue, policy and pool."""
    events_record(
        entries,
        topics=task_topics(
            attempt.task_id,
            queue_id=attempt.queue_id,
            policy_id=attempt.policy_id,
            pool_id=attempt.pool_id,
        ),
    )
