"""Return of waiting tasks to drafts: their queue closes, or their owner lost the permission."""

from collections.abc import Collection

from django.utils import timezone

from apps.core.notifications import after_commit
from apps.tasks.details import shorten
from apps.tasks.models import Task
from apps.tasks.states import TaskState


def tasks_return_to_draft(
    *, queue_ids: Collection[int], reason: str, except_owners: Collection[int] | None = None
) -> int:
    """Turn waiting tasks into drafts in one conditional update; tasks that started stay.

    The event of the queue counts them, because a queue may hold a million.

    Args:
        reason: shown to the owner, a sentence.
        except_owners: ids of users whose tasks keep waiting; None: all become drafts.

    Returns:
        How many became drafts.
    """
    waiting = Task.objects.filter(queue__in=queue_ids, state=TaskState.QUEUED)
    if except_owners is not None:
        waiting = waiting.exclude(owner__in=except_owners)
    returned = waiting.update(
        state=TaskState.DRAFT,
        queue=None,
        task_group=None,
        submitted_at=None,
        waiting_since=None,
        state_detail=shorten(reason),
        changed_at=timezone.now(),
    )
    if returned:
        after_commit(topics=["tasks", *(f"queue.{pk}" for pk in queue_ids)])
    return returned
