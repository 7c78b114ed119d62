"""Where a task stands in its queue, and why it waits."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from apps.tasks.models import Run, Task
from apps.tasks.states import TaskState

# A place further back is not worth counting exactly.
FAR = 10_000


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task waits.

    `code` and `reasons` are what the last pass said about the first waiting task of its kind; they
    hold for its equals behind it too, which only stand further back (`is_first` False). `place` is
    the place in the queue; it counts from 1 and stops at `FAR`. `at` is since when this reason
    holds, whatever became of its numbers.
    """

    code: str
    reasons: list[dict[str, Any]]
    place: int | None = None
    at: datetime | None = None
    is_first: bool = True


def in_line(queue_id: int) -> QuerySet[Task]:
    """The waiting tasks of a queue in the order in which they start.

    Priority, then those that cannot be preempted, then age.
    """
    return Task.objects.filter(queue=queue_id, state=TaskState.QUEUED).order_by(
        "-priority", "is_preemptible", "submitted_at", "pk"
    )


def place_in_line(task: Task) -> int:
    """The place of a waiting task in its queue, from 1, at most `FAR`."""
    same = Q(priority=task.priority, is_preemptible=task.is_preemptible)
    ahead = Q(priority__gt=task.priority) | same & Q(submitted_at__lt=task.submitted_at)
    if task.is_preemptible:
        ahead |= Q(priority=task.priority, is_preemptible=False)
    ahead |= same & Q(submitted_at=task.submitted_at, pk__lt=task.pk)
    line = Task.objects.filter(queue=task.queue_id, state=TaskState.QUEUED).filter(ahead)
    return line.order_by()[: FAR - 1].count() + 1


def task_explained(task: Task) -> Explanation | None:
    """Why a waiting task waits; None for a task that does not wait."""
    if task.state != TaskState.QUEUED or task.run_id is None:
        return None
    run = Run.objects.get(pk=task.run_id)
    place = place_in_line(task)
    reasons = list(run.reason.get("reasons") or [])
    if not reasons or not _still_waits(run, task):
        # New: the next pass looks at it within moments.
        return Explanation("", [], place)
    is_first = run.head_id == task.pk
    # What held before the task came to wait did not hold for it.
    at = max(run.reason_at, task.changed_at) if run.reason_at is not None else None
    return Explanation(str(run.reason_code), reasons, place, at, is_first=is_first)


def _still_waits(run: Run, task: Task) -> bool:
    """Whether what was said about the first task of the run is not about one long gone."""
    if run.head_id == task.pk:
        return True
    head = Task.objects.filter(pk=str(run.head_id), run=run.pk, state=TaskState.QUEUED)
    return run.head_id is not None and head.exists()
