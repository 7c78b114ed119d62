"""Tasks that wait, and those of them that the next pass may start: written here alone.

An array itself never starts: its elements wait once they are stored. Bounds, orders and locks of
queues are about every row that is queued, arrays among them, and read `state` themselves.
"""

from typing import Final

from django.db.models import Q

from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task

WAITING: Final = Q(state=TaskState.QUEUED, array_count__isnull=True)
ELIGIBLE: Final = WAITING & Q(ineligible_code="")
# The same in SQL; the index `task_heads` has these columns.
ELIGIBLE_SQL: Final = "state = 'queued' AND ineligible_code = '' AND array_count IS NULL"


def is_eligible(task: Task) -> bool:
    """Whether the next pass may start this task."""
    is_waiting = task.state == TaskState.QUEUED and task.array_count is None
    return is_waiting and not task.ineligible_code
