"""The list of tasks, and its tabs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from apps.accounts.models import User
from apps.dashboard.cards.words import elements_in_words
from apps.dashboard.live import Sharing, card
from apps.dashboard.selectors.tasks import MOST_COUNTED, VIEWS, TaskFilter, tasks_page
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import IdleWarning, Task
from apps.tasks.selectors.arrays import array_counts
from apps.tasks.selectors.idle_attempts import idle_warnings_of

PAGE = 50


@dataclass(frozen=True, slots=True)
class TaskRow:
    task: Task
    reason_code: str
    is_own: bool
    idle: IdleWarning | None
    elements: str


@dataclass(frozen=True, slots=True)
class Tab:
    """`count` is empty where it is not known."""

    view: str
    label: str
    query: str
    is_here: bool
    count: str


@dataclass(frozen=True, slots=True)
class TaskList:
    wanted: TaskFilter
    rows: tuple[TaskRow, ...]
    older: str
    topics: tuple[str, ...]
    announce: str = ""


def tabs(wanted: TaskFilter, counts: Mapping[str, int] | None = None) -> list[Tab]:
    """The views of the list, with the rest of the filter kept."""
    return [
        Tab(
            view,
            view.capitalize(),
            wanted.first_page(view="" if view == "active" else view),
            view == wanted.view,
            "" if counts is None else _count(counts[view]),
        )
        for view in VIEWS
    ]


def _count(count: int) -> str:
    return f"{MOST_COUNTED}+" if count > MOST_COUNTED else str(count)


@card("task_rows", Sharing.NOBODY)
def load_task_list(user: User, key: str) -> TaskList:
    """The tasks that match the query string `key`; running ones above those that wait."""
    wanted = TaskFilter.parse(key)
    shown, older = tasks_page(user, wanted, PAGE)
    idle = idle_warnings_of(running_of(shown))
    counts = array_counts(shown)
    return TaskList(
        wanted=wanted,
        rows=tuple(
            TaskRow(
                task,
                _code(task),
                task.owner_id == user.pk,
                idle.get(task.pk),
                elements_in_words(counts.get(task.pk, {})),
            )
            for task in shown
        ),
        older=older,
        topics=("tasks",),
    )


def running_of(tasks: Iterable[Task]) -> list[UUID]:
    """Those that run, of those that the reader sees with their queue."""
    return [one.pk for one in tasks if one.state == TaskState.RUNNING and one.queue is not None]


def _code(task: Task) -> str:
    if task.state != TaskState.QUEUED or task.task_group is None:
        return ""
    return task.ineligible_code or task.task_group.reason_code
