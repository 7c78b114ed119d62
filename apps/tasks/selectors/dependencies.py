"""What a task waits for, as far as its reader sees it."""

from dataclasses import dataclass
from uuid import UUID

from apps.accounts.models import User
from apps.tasks.models import Task, TaskDependency
from apps.tasks.selectors.visibility import tasks_visible_to


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
        rows.append(DependencyRow(shown, name, state, one.when, one.outcome))
    return rows
