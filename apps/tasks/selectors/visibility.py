"""The tasks that a user may see, and how much of each."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db import connection
from django.db.models import Count, Q, QuerySet, TextField
from django.db.models.functions import Cast

from apps.access.selectors import queues_managed_by, queues_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core.errors import NotFound
from apps.policies.selectors import is_of_policy
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task


@dataclass(frozen=True, slots=True)
class TaskRights:
    """A user's permissions on one task.

    `content` is its command, environment and the details that nodes reported; `log` its output.
    """

    content: bool
    log: bool
    manage: bool


def tasks_visible_to(user: User) -> QuerySet[Task]:
    """The user's own tasks, and those of queues that the user sees; drafts are in no queue."""
    if is_admin(user):
        return Task.objects.all()
    queues = queues_visible_to(user).values("pk")
    return Task.objects.filter(Q(owner=user) | Q(queue__in=queues))


def tasks_matching_filters(user: User, wanted: Mapping[str, str]) -> QuerySet[Task]:
    """The visible tasks that match, without their content.

    Args:
        wanted: `state` (several by commas), `queue` and `policy` (name or id), `owner` (a user
            name), `tag`, `q` (part of the name); what is missing or empty does not filter.
    """
    tasks = tasks_visible_to(user)
    given = {name: value for name, value in wanted.items() if value}
    if "state" in given:
        tasks = tasks.filter(state__in=given["state"].split(","))
    if "owner" in given:
        tasks = tasks.filter(owner__username=given["owner"])
    if "q" in given:
        tasks = tasks.filter(name__icontains=given["q"])
    for kind in ("queue", "policy"):
        if kind in given:
            tasks = tasks.filter(
                _named("queue" if kind == "queue" else "queue__policy", given[kind])
            )
    if "tag" in given:
        tasks = _tagged(tasks, given["tag"])
    return tasks.select_related("owner", "queue").defer("content")


def visible_task(user: User, key: str | UUID) -> Task:
    """The task with this id.

    Raises:
        NotFound: there is none, or the user may not know of it.
    """
    try:
        pk = key if isinstance(key, UUID) else UUID(key)
    except ValueError:
        raise NotFound(f"There is no task {key!r}.") from None
    task = tasks_visible_to(user).select_related("owner", "queue__policy").filter(pk=pk).first()
    if task is None:
        raise NotFound(f"There is no task {key}, or you may not see it.")
    return task


def task_rights(user: User, task: Task) -> TaskRights:
    """The permissions of a user who sees the task."""
    if task.owner_id == user.pk or is_admin(user):
        return TaskRights(content=True, log=True, manage=True)
    queue = task.queue
    if queue is None:
        return TaskRights(content=False, log=False, manage=False)
    if queues_managed_by(user).filter(pk=queue.pk).exists():
        return TaskRights(content=True, log=True, manage=True)
    is_open = queue.policy.logs_open_to_group and is_of_policy(user, queue.policy)
    return TaskRights(content=False, log=is_open, manage=False)


def counts_by_queue(queue_ids: list[int] | None = None) -> dict[int, dict[str, int]]:
    """Tasks per queue and state, of those that wait or hold hardware, in one query."""
    states = [TaskState.QUEUED, TaskState.ALLOCATED, TaskState.RUNNING, TaskState.STOPPING]
    tasks = Task.objects.filter(state__in=states)
    if queue_ids is not None:
        tasks = tasks.filter(queue__in=queue_ids)
    found: dict[int, dict[str, int]] = {}
    for queue, state, count in (
        tasks.order_by().values_list("queue_id", "state").annotate(count=Count("pk"))
    ):
        found.setdefault(queue, {})[state] = count
    return found


def _named(path: str, given: str) -> Q:
    by_name = Q(**{f"{path}__name": given})
    if given.isascii() and given.isdigit() and len(given) < 19:
        return by_name | Q(**{path: int(given)})
    return by_name


def _tagged(tasks: QuerySet[Task], tag: str) -> QuerySet[Task]:
    """The quoted tag in the list's own text: both databases can do that."""
    # SQLite keeps what json.dumps wrote, PostgreSQL its own form with letters as they are.
    quoted = json.dumps(tag, ensure_ascii=connection.vendor != "postgresql")
    return tasks.annotate(tags_text=Cast("tags", TextField())).filter(tags_text__contains=quoted)
