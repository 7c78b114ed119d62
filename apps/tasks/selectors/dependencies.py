"""What a task waits for, as far as its reader sees it."""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Exists, OuterRef

from apps.accounts.models import User
from apps.tasks.lifecycle.states import LIVE_STATES
from apps.tasks.models import Task, TaskDependency
from apps.tasks.models.dependencies import DependencyOutcome
from apps.tasks.selectors.visibility import tasks_visible_to

# What waits for an array that was aborted waits for the elements that still stop.
HAS_LIVE_ELEMENTS = Exists(
    Task.objects.filter(array=OuterRef("after"), state__in=LIVE_STATES).order_by()
)


@dataclass(frozen=True, slots=True)
class DependencyRow:
    """Another task; `task`, `name` and `state` are None where the reader does not see it."""

    task: UUID | None
    name: str | None
    state: str | None
    when: str
    outcome: str


def dependencies_of(user: User, task: Task) -> list[DependencyRow]:
    """In the order in which they were given; two queries."""
    edges = list(TaskDependency.objects.filter(task=task.pk).order_by("pk"))
    seen = tasks_visible_to(user).filter(pk__in=[one.after_id for one in edges])
    known = {pk: (name, state) for pk, name, state in seen.values_list("pk", "name", "state")}
    rows = []
    for one in edges:
        name, state = known.get(one.after_id, (None, None))
        shown = one.after_id if one.after_id in known else None
        # An array that was aborted may have elements that are still being stopped.
        outcome = DependencyOutcome.WAITING.value if one.is_due else one.outcome
        rows.append(DependencyRow(shown, name, state, one.when, outcome))
    return rows
