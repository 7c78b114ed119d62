"""Waiting tasks whose queue closes, or whose owner lost the right, become drafts again."""

from collections.abc import Collection

from django.utils import timezone

from apps.core.doorbell import after_commit
from apps.tasks.details import shortened
from apps.tasks.models import Task
from apps.tasks.states import TaskState


def tasks_return_to_draft(
    *, queue_ids: Collection[int], reason: str, except_owners: Collection[int] | None = None
) -> int:
    """Take waiting tasks out of line in one conditional update; those that started stay.

    The queue's own event counts them: a closing queue may hold a million.

    Args:
        reason: shown to the owner, a sentence.
        except_owners: ids of people whose tasks stay in line; None: nobody's do.

    Returns:
        How many became drafts.
    """
    waiting = Task.objects.filter(queue__in=queue_ids, state=TaskState.QUEUED)
    if except_owners is not None:
        waiting = waiting.exclude(owner__in=except_owners)
    returned = waiting.update(
        state=TaskState.DRAFT,
        queue=None,
        run=None,
        submitted_at=None,
        waiting_since=None,
        state_detail=shortened(reason),
        changed_at=timezone.now(),
    )
    if returned:
        after_commit(topics=["tasks", *(f"queue.{pk}" for pk in queue_ids)])
    return returned
