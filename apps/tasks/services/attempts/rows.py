"""What every edge of an attempt needs: its row, and how to tell of it."""

from typing import Any
from uuid import UUID

from apps.events.services import Entry, events_record
from apps.tasks.models import Attempt
from apps.tasks.topics import task_topics


def locked(attempt_id: UUID) -> Attempt:
    """The attempt, held against every other writer until the transaction ends.

    Others may still refer to it: attempts that end at the same moment wait for one another's room.
    """
    return Attempt.objects.select_for_update(no_key=True).get(pk=attempt_id)


def entry(attempt: Attempt, kind: str, **data: Any) -> Entry:
    """An event about the task of this attempt."""
    return Entry(
        kind=kind,
        object_type="task",
        object_id=attempt.task_id,
        queue_id=attempt.queue_id,
        policy_id=attempt.policy_id,
        data={"generation": attempt.generation, "pool": attempt.pool_id, **data},
    )


def tell(attempt: Attempt, entries: list[Entry]) -> None:
    """Write the events, and tell whoever watches the task, its queue, policy or pool."""
    events_record(
        entries,
        topics=task_topics(
            attempt.task_id,
            queue_id=attempt.queue_id,
            policy_id=attempt.policy_id,
            pool_id=attempt.pool_id,
        ),
    )
