"""The question before one action on many tasks."""

from collections.abc import Sequence
from typing import Any

from django import forms

from apps.access.selectors import queues_open_to
from apps.accounts.models import User
from apps.dashboard.cards.words import plural
from apps.dashboard.forms_base import PageForm
from apps.dashboard.forms_priority import priority_field
from apps.tasks.models import Task
from apps.tasks.services.bulk_actions import BulkAction, BulkVerb

# What the list offers: the button, and the question with the number of tasks.
VERBS: dict[BulkVerb, tuple[str, str]] = {
    "abort": ("Abort", "Abort {tasks}?"),
    "change-queue": ("Move", "Move {tasks} to which queue?"),
    "priority": ("Priority", "Give {tasks} which priority?"),
    "run-again": ("Run again", "Run {tasks} again?"),
}


class BulkForm(PageForm):
    """What the action needs to know, for all of the tasks."""

    def __init__(
        self, data: Any = None, *, user: User, verb: BulkVerb, tasks: Sequence[Task]
    ) -> None:
        super().__init__(data)
        self.verb, self.tasks = verb, tasks
        self.button, question = VERBS[verb]
        self.question = question.format(tasks=plural(len(tasks), "task"))
        if verb == "priority":
            self.fields["priority"] = priority_field()
        if verb == "change-queue":
            queues = queues_open_to(user).select_related("policy", "profile").order_by("name")
            self.fields["queue"] = forms.ChoiceField(
                label="Queue",
                choices=[(q.pk, f"{q.name}: {q.profile.name}, {q.policy.name}") for q in queues],
            )

    def action(self) -> BulkAction:
        """What the services do with each of the tasks."""
        given = self.cleaned_data
        queue = int(given["queue"]) if "queue" in given else None
        return BulkAction(self.verb, queue=queue, priority=given.get("priority"))
