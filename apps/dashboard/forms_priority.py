"""The priority of a task: its field, and a form for it alone."""

from dataclasses import dataclass
from typing import Any

from django import forms

from apps.dashboard.forms_base import ConflictCheckForm
from apps.policies.models import Queue
from apps.tasks.models import Task
from apps.tasks.task_spec import PRIORITY


@dataclass(frozen=True, slots=True)
class PriorityHint:
    """What the field of the priority says while a queue is chosen."""

    queue: str
    words: str
    is_shown: bool


def priority_field(highest: int = PRIORITY, **given: Any) -> forms.IntegerField:
    """A priority up to the highest one that is allowed."""
    words = f"Enter a whole number from {-PRIORITY} to {highest}."
    return forms.IntegerField(
        label="Priority",
        min_value=-PRIORITY,
        max_value=highest,
        error_messages=dict.fromkeys(("invalid", "min_value", "max_value"), words),
        **given,
    )


class PriorityForm(ConflictCheckForm):
    """Another priority for a task, up to the highest one of its queue."""

    def __init__(self, data: Any = None, *, task: Task) -> None:
        super().__init__(data, initial={"priority": task.priority})
        self.fields["priority"] = priority_field(
            PRIORITY if task.queue is None else task.queue.max_priority,
            widget=forms.NumberInput({"autofocus": True}),
            show_hidden_initial=True,
            help_text=priority_words(task.queue),
        )


def priority_words(queue: Queue | None) -> str:
    """What the field of a priority says about the queue; None: there is none yet."""
    if queue is None:
        return f"From {-PRIORITY} to what the queue allows. Higher priorities start first."
    return (
        f"From {-PRIORITY} to {queue.max_priority} in {queue.name}. Higher priorities start first."
    )
