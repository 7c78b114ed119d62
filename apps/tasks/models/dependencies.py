"""What tasks wait for: other tasks, until they have ended as needed."""

from typing import Final

from django.db import models

from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models.tasks import Task


class DependencyKind(models.TextChoices):
    """How the other task has to end."""

    OK = "ok", "completed"
    FAILED = "failed", "failed, aborted or rejected"
    ANY = "any", "ended"


class DependencyOutcome(models.TextChoices):
    WAITING = "waiting", "waiting"
    MET = "met", "met"
    UNMET = "unmet", "unmet"


# The states of another task that decide about what waits for it.
DECIDING_STATES = (TaskState.COMPLETED, TaskState.FAILED, TaskState.ABORTED, TaskState.REJECTED)

# Not decided yet, or no pass has acted on it.
UNSETTLED: Final = models.Q(outcome=DependencyOutcome.WAITING) | models.Q(is_due=True)


class TaskDependency(models.Model):
    """`task` starts after `after` has ended as `when` says.

    The end of the other task writes the outcome, and `is_due` until a pass has acted on it, which
    it does once the last element of an array has ended; what becomes of that task later changes
    nothing.
    """

    task = models.ForeignKey(
        Task, on_delete=models.CASCADE, related_name="dependencies", db_index=False
    )
    after = models.ForeignKey(
        Task, on_delete=models.CASCADE, related_name="dependents", db_index=False
    )
    when = models.CharField(max_length=8, choices=DependencyKind.choices)
    outcome = models.CharField(
        max_length=8, choices=DependencyOutcome.choices, default=DependencyOutcome.WAITING
    )
    is_due = models.BooleanField(default=False)

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["after", "outcome"], name="task_dependents"),
            models.Index(
                fields=["id"], condition=models.Q(is_due=True), name="task_dependencies_due"
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["task", "after"], name="task_dependency_once"),
        ]

    def __str__(self) -> str:
        return f"{self.task_id} after {self.after_id}"


def outcome_of(when: str, state: str) -> DependencyOutcome:
    """What the state of the other task means for what waits for it."""
    if state not in DECIDING_STATES:
        return DependencyOutcome.WAITING
    is_ok = state == TaskState.COMPLETED
    is_met = when == DependencyKind.ANY or (when == DependencyKind.OK) == is_ok
    return DependencyOutcome.MET if is_met else DependencyOutcome.UNMET
