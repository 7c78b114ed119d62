"""The position of a task in its queue, and why it waits."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from apps.tasks.lifecycle.states import HOLDS, Ineligibility, TaskState
from apps.tasks.models import ReasonChange, Task, TaskDependency, TaskGroup
from apps.tasks.models.dependencies import DependencyOutcome

# Positions further back are not counted exactly.
FAR = 10_000


@dataclass(frozen=True, slots=True)
class QueueExplanation:
    """Why a task waits.

    `code` and `reasons` are those that the last pass gave the first waiting task of the group; they
    hold for the tasks behind it too (`is_first` False). `position` is the position in the queue,
    from 1 to `FAR`. `at` is since when this reason holds, even if its numbers changed.
    """

    code: str
    reasons: list[dict[str, Any]]
    position: int | None = None
    at: datetime | None = None
    is_first: bool = True


def tasks_in_order(queue_id: int) -> QuerySet[Task]:
    """The waiting tasks of a queue in the order in which they start.

    Priority, then those that cannot be preempted, then age.
    """
    return Task.objects.filter(queue=queue_id, state=TaskState.QUEUED).order_by(
        "-priority", "is_preemptible", "submitted_at", "pk"
    )


def queue_position(task: Task) -> int:
    """The position of a waiting task in its queue, from 1 to `FAR`.

    Ineligible tasks before it are not counted: they do not start before it.
    """
    same = Q(priority=task.priority, is_preemptible=task.is_preemptible)
    ahead = Q(priority__gt=task.priority) | same & Q(submitted_at__lt=task.submitted_at)
    if task.is_preemptible:
        ahead |= Q(priority=task.priority, is_preemptible=False)
    ahead |= same & Q(submitted_at=task.submitted_at, pk__lt=task.pk)
    waiting = Task.objects.filter(queue=task.queue_id, state=TaskState.QUEUED, ineligible_code="")
    tasks_ahead = waiting.filter(ahead)
    return tasks_ahead.order_by()[: FAR - 1].count() + 1


def queue_explanation(task: Task) -> QueueExplanation | None:
    """Why a waiting task waits; None for a task that does not wait."""
    if task.state != TaskState.QUEUED or task.task_group_id is None:
        return None
    position = queue_position(task)
    if task.ineligible_code:
        reasons, at = _ineligible_reasons_in_full(task), _ineligible_since(task)
        return QueueExplanation(task.ineligible_code, reasons, position, at)
    task_group = TaskGroup.objects.get(pk=task.task_group_id)
    reasons = list(task_group.reason.get("reasons") or [])
    if not reasons or not _is_current(task_group, task):
        # New: the next pass decides within moments.
        return QueueExplanation("", [], position)
    is_first = task_group.head_id == task.pk
    # A reason from before the task began to wait did not hold for it.
    at = max(task_group.reason_at, task.changed_at) if task_group.reason_at is not None else None
    return QueueExplanation(str(task_group.reason_code), reasons, position, at, is_first=is_first)


def ineligible_reasons(task: Task) -> list[dict[str, Any]]:
    """Why passes leave the task out, in the form in which passes store reasons."""
    return [{"code": task.ineligible_code, "details": []}] if task.ineligible_code else []


def _ineligible_reasons_in_full(task: Task) -> list[dict[str, Any]]:
    """With the tasks that it waits for, on hold or not."""
    ahead = TaskDependency.objects.filter(task=task, outcome=DependencyOutcome.WAITING)
    tasks = [str(pk) for pk in ahead.order_by("pk").values_list("after", flat=True)]
    reasons = [one for one in ineligible_reasons(task) if one["code"] in HOLDS]
    if tasks:
        reasons.append({"code": Ineligibility.DEPENDENCY.value, "details": [{"tasks": tasks}]})
    # A pass is about to release it.
    return reasons or ineligible_reasons(task)


def _ineligible_since(task: Task) -> datetime | None:
    changes = ReasonChange.objects.filter(task=task, code=task.ineligible_code)
    last = changes.order_by("-id").values_list("at", flat=True).first()
    return last or task.waits_since


def _is_current(task_group: TaskGroup, task: Task) -> bool:
    """Whether the reason of the group is not about a task that is long gone."""
    if task_group.head_id == task.pk:
        return True
    head = Task.objects.filter(
        pk=str(task_group.head_id), task_group=task_group.pk, state=TaskState.QUEUED
    )
    return task_group.head_id is not None and head.exists()
