"""The tasks that a user may see, and how much of each."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Count, Q, QuerySet, TextField
from django.db.models.functions import Cast

from apps.access.permissions import rows_with_permission, verbs_held
from apps.access.selectors import policies_visible_to, queues_visible_to
from apps.accounts.models import User
from apps.core.errors import BadInput, NotFound
from apps.tasks.lifecycle.states import ADMITTED_STATES, TaskState
from apps.tasks.models import Task
from apps.tasks.permissions import LOG, MANAGE, QUEUE, VIEW


@dataclass(frozen=True, slots=True)
class TaskPermissions:
    """A user's permissions on one task.

    `content` is its command, environment and the details that nodes reported; `log` its output.
    """

    content: bool
    log: bool
    manage: bool


def tasks_visible_to(user: User) -> QuerySet[Task]:
    """The user's own tasks, those of queues that the user sees, and those that a rule shows.

    `sees_queue` is false where a rule shows the task alone (`without_hidden_queues`).
    """
    return rows_with_permission(Task, user, VIEW, sees_queue=QUEUE)


def tasks_seen_with_queue(user: User) -> QuerySet[Task]:
    """The visible tasks without those that a rule shows alone."""
    return rows_with_permission(Task, user, QUEUE)


def without_hidden_queues(tasks: Iterable[Task]) -> list[Task]:
    """Tasks of `tasks_visible_to`, without queue and group where a rule shows the task alone.

    So nothing that is shown of them leads to their queue, its policy or its figures. Never save
    them.
    """
    found = list(tasks)
    for task in found:
        if is_shown_alone(task):
            task.queue = task.task_group = None
    return found


def is_shown_alone(task: Task) -> bool:
    """Whether a rule lets the reader who loaded the task see it without its queue."""
    return not getattr(task, "sees_queue", True)


def tasks_matching_filters(user: User, wanted: Mapping[str, str]) -> QuerySet[Task]:
    """The visible tasks that match, without their content.

    Args:
        wanted: `state` (several by commas), `queue` and `policy` (name or id), `owner` (a user
            name), `tag`, `q` (part of the name); what is missing or empty does not filter.
            `array` (an id) wants its elements, which are left out otherwise. `id` (the first
            characters of one) finds elements, too.

    Raises:
        BadInput: there is no such queue or policy, or the user may not see it.
    """
    wanted_queue = wanted.get("queue") or wanted.get("policy")
    tasks = tasks_seen_with_queue(user) if wanted_queue else tasks_visible_to(user)
    given = {name: value for name, value in wanted.items() if value}
    if "id" in given:
        tasks = tasks.filter(_begins(given["id"]))
    else:
        tasks = tasks.filter(array=UUID(given["array"]) if "array" in given else None)
    if "state" in given:
        tasks = tasks.filter(in_states(given["state"].split(",")))
    if "owner" in given:
        tasks = tasks.filter(owner__username=given["owner"])
    if "q" in given:
        tasks = tasks.filter(name__icontains=given["q"])
    for kind in ("queue", "policy"):
        if kind in given:
            tasks = _of_named(user, tasks, kind, given[kind])
    if "tag" in given:
        tasks = tasks_tagged(tasks, given["tag"])
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
    tasks = tasks_visible_to(user).select_related("owner", "queue__policy").filter(pk=pk)
    found = without_hidden_queues(tasks)
    if not found:
        raise NotFound(f"There is no task {key}, or you may not see it.")
    return found[0]


def task_permissions(user: User, task: Task) -> TaskPermissions:
    """The permissions of a user who sees the task."""
    held = verbs_held(user, task, (LOG, MANAGE))
    return TaskPermissions(content=MANAGE in held, log=LOG in held, manage=MANAGE in held)


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


def _of_named(user: User, tasks: QuerySet[Task], kind: str, given: str) -> QuerySet[Task]:
    """The tasks of the queue or policy of this name or id."""
    is_queue = kind == "queue"
    seen: QuerySet[Any] = queues_visible_to(user) if is_queue else policies_visible_to(user)
    named = tasks.filter(_named("queue" if is_queue else "queue__policy", given))
    # One that was removed is known by its tasks.
    if not seen.filter(_own_name(given)).exists() and not named.exists():
        problem = f"names {given[:100]!r}: there is no such {kind} that you see"
        raise BadInput(f"{kind} {problem}.", fields={kind: problem})
    return named


def in_states(states: Collection[str]) -> Q:
    """Tasks in these states; of an array, those of its elements that hold hardware count as well.

    One query more where one of these states is named.
    """
    held = [one for one in ADMITTED_STATES if one in states]
    found = Q(state__in=states)
    if held:
        elements = Task.objects.filter(array__isnull=False, state__in=held).order_by()
        # Read first: so each part of the filter has its index.
        arrays = list(elements.values_list("array", flat=True).distinct())
        found |= Q(pk__in=arrays) if arrays else Q()
    return found


def _begins(text: str) -> Q:
    """The ids that begin so; they are in the order of their digits."""
    digits = text.lower().replace("-", "")[:32]
    return Q(pk__gte=UUID(digits.ljust(32, "0")), pk__lte=UUID(digits.ljust(32, "f")))


def _named(path: str, given: str) -> Q:
    by_name = Q(**{f"{path}__name": given})
    return by_name | Q(**{path: int(given)}) if _is_id(given) else by_name


def _own_name(given: str) -> Q:
    return Q(name=given) | Q(pk=int(given)) if _is_id(given) else Q(name=given)


def _is_id(given: str) -> bool:
    return given.isascii() and given.isdigit() and len(given) < 19


def tasks_tagged(tasks: QuerySet[Task], tag: str) -> QuerySet[Task]:
    """Those with the tag: the quoted tag is in the list's own text: both databases can do that."""
    # SQLite keeps what json.dumps wrote, PostgreSQL its own form with letters as they are.
    quoted = json.dumps(tag, ensure_ascii=connection.vendor != "postgresql")
    return tasks.annotate(tags_text=Cast("tags", TextField())).filter(tags_text__contains=quoted)
