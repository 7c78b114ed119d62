"""Who waits, where, since when, and why."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Count, Min
from django.db.models.functions import Coalesce

from apps.accounts.models import User
from apps.tasks.models import Task, TaskGroup
from apps.tasks.selectors.eligibility import WAITING


@dataclass(frozen=True, slots=True)
class WaitingTasks:
    """Tasks waiting in a queue, when the first of them was submitted, and what holds it.

    `codes` says for how many tasks the first of their kind waits for which reason, most first.
    """

    count: int = 0
    oldest: datetime | None = None
    reason: str = ""
    codes: tuple[tuple[str, int], ...] = ()


class _WaitingGroup(NamedTuple):
    """The waiting tasks of a task group with one reason.

    `order` is that of the queue, with tasks that passes leave out last.
    """

    order: tuple[bool, int, bool, datetime, int]
    tasks: int
    oldest: datetime
    reason: str


NO_WAITING_TASKS = WaitingTasks()


def waiting_by_queue(queue_ids: Iterable[int] | None = None) -> defaultdict[int, WaitingTasks]:
    """Per queue, in two queries.

    Tasks are counted per run: one index holds exactly what that needs, so a million waiting tasks
    are read without touching their rows.
    """
    task_groups = TaskGroup.objects.all()
    if queue_ids is not None:
        task_groups = task_groups.filter(queue__in=list(queue_ids))
    columns = ("pk", "queue_id", "priority", "is_preemptible", "reason_code")
    known = {pk: values for pk, *values in task_groups.order_by().values_list(*columns)}
    tasks = Task.objects.filter(WAITING)
    if queue_ids is not None:
        tasks = tasks.filter(task_group__in=list(known))
    # Position of a task in its queue, and since when it waits: different once it was moved.
    since = Coalesce("waiting_since", "submitted_at")
    rows: Any = tasks.order_by().values_list("task_group_id", "ineligible_code")
    rows = rows.annotate(Count("pk"), Min("submitted_at"), oldest=Min(since))
    parts: defaultdict[int, list[_WaitingGroup]] = defaultdict(list)
    for pk, code, count, position, oldest in rows:
        if pk in known:
            queue, priority, is_preemptible, reason = known[pk]
            order = (bool(code), -priority, is_preemptible, position, pk)
            parts[queue].append(_WaitingGroup(order, count, oldest, code or reason))
    return defaultdict(
        WaitingTasks,
        {
            queue: WaitingTasks(
                count=sum(one.tasks for one in groups_there),
                oldest=min(one.oldest for one in groups_there),
                # The queue waits for what its first task waits for.
                reason=min(groups_there).reason,
                codes=_count_codes((one.reason, one.tasks) for one in groups_there),
            )
            for queue, groups_there in parts.items()
        },
    )


def own_waiting_by_queue(user: User, queue_ids: Iterable[int]) -> dict[int, int]:
    """How many of the person's own tasks wait in each of these queues."""
    tasks = Task.objects.filter(WAITING, owner=user, queue__in=list(queue_ids))
    rows = tasks.order_by().values_list("queue_id").annotate(Count("pk"))
    return {queue: count for queue, count in rows if queue is not None}


def waiting_sum(parts: Iterable[WaitingTasks]) -> WaitingTasks:
    """Several queues as one: all tasks, the oldest, the reason that holds most of them."""
    waiting = [part for part in parts if part.count]
    codes = _count_codes(one for part in waiting for one in part.codes)
    ages = [part.oldest for part in waiting if part.oldest is not None]
    return WaitingTasks(
        count=sum(part.count for part in waiting),
        oldest=min(ages, default=None),
        reason=next((code for code, _ in codes if code), ""),
        codes=codes,
    )


def _count_codes(parts: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    codes: Counter[str] = Counter()
    for code, count in parts:
        codes[code] += count
    return tuple(sorted(codes.items(), key=lambda one: (-one[1], one[0])))


def names_of_tasks(ids: Iterable[UUID]) -> dict[UUID, tuple[str, str]]:
    """Name and owner per task, in one query."""
    rows = Task.objects.filter(pk__in=list(ids)).select_related("owner")
    return {task.pk: (task.name, str(task.owner)) for task in rows}
