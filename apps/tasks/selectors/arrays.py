"""Arrays and their elements, counted by state."""

from collections.abc import Iterable
from uuid import UUID

from django.db.models import Count

from apps.tasks.models import Task

# Elements that are not stored yet, next to those of each state.
LEFT = "left"


def elements_by_state(
    arrays: Iterable[UUID], *, states: Iterable[str] | None = None
) -> dict[UUID, dict[str, int]]:
    """How many stored elements of each array are in each state; one query, from an index."""
    rows = Task.objects.filter(array__in=list(arrays))
    if states is not None:
        rows = rows.filter(state__in=list(states))
    found: dict[UUID, dict[str, int]] = {}
    counted = rows.order_by().values_list("array_id", "state").annotate(count=Count("pk"))
    for array, state, count in counted:
        if array is not None:
            found.setdefault(array, {})[state] = count
    return found


def array_counts(tasks: Iterable[Task]) -> dict[UUID, dict[str, int]]:
    """The elements of the arrays among these tasks by state; no query where there is none."""
    arrays = [task for task in tasks if task.array_count is not None]
    stored = elements_by_state([one.pk for one in arrays]) if arrays else {}
    return {one.pk: {LEFT: _left(one), **stored.get(one.pk, {})} for one in arrays}


def _left(array: Task) -> int:
    return (array.array_count or 0) - array.array_next
