"""Who waits, where, since when, and why."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Min
from django.db.models.functions import Coalesce

from apps.accounts.models import User
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task, TaskGroup


@dataclass(frozen=True, slots=True)
class WaitingTasks:
    """Tasks waiting in a queue, when the first of them was submitted, and what holds it.

    `codes` says for how many tasks the first of their kind waits for which reason, most first.
    """

    count: int = 0
    oldest: datetime | None = None
    reason: str = ""
    codes: tuple[tuple[str, int], ...] = ()


NO_WAITING_TASKS = WaitingTasks()


def waiting_by_queue(queue_ids: Iterable[int] | None = None) -> defaultdict[int, WaitingTasks]:
    """Per queue, in two queries.

    Tasks are counted per run: one index holds exactly what that needs, so a million waiting tasks
    are read without touching their rows.
    """
    task_groups = TaskGroup.objects.all()
    if queue_ids is not None:
        task_groups = task_groups.filter(queue__in=list(queue_ids))
    fields = ("queue_id", "priority", "is_preemptible", "reason_code", "head_id")
    known = {task_group.pk: task_group for task_group in task_groups.only(*fields)}
    tasks = Task.objects.filter(state=TaskState.QUEUED)
    if queue_ids is not None:
        tasks = tasks.filter(task_group__in=list(known))
    # Position of a task in its queue, and since when it waits: different once it was moved.
    since = Coalesce("waiting_since", "submitted_at")
    rows: Any = tasks.order_by().values_list("task_group_id")
    rows = rows.annotate(Count("pk"), Min("submitted_at"), oldest=Min(since))
    parts: defaultdict[int, list[tuple[TaskGroup, int, datetime, datetime]]] = defaultdict(list)
    for pk, count, position, oldest in rows:
        task_group = known.get(pk or 0)
        if task_group is not None:
            parts[task_group.queue_id].append((task_group, count, position, oldest))
    found: defaultdict[int, WaitingTasks] = defaultdict(WaitingTasks)
    for queue, groups_there in parts.items():
        # The queue waits for what its first task waits for.
        first = min(groups_there, key=_queue_order)[0]
        found[queue] = WaitingTasks(
            count=sum(count for _, count, _, _ in groups_there),
            oldest=min(oldest for _, _, _, oldest in groups_there),
            reason=first.reason_code,
            codes=_count_codes(
                (task_group.reason_code, count) for task_group, count, _, _ in groups_there
            ),
        )
    return found


def _queue_order(
    part: tuple[TaskGroup, int, datetime, datetime],
) -> tuple[int, bool, datetime, int]:
    task_group, _, position, _ = part
    return -task_group.priority, task_group.is_preemptible, position, task_group.pk


def own_waiting_by_queue(user: User, queue_ids: Iterable[int]) -> dict[int, int]:
    """How many of the person's own tasks wait in each of these queues."""
    tasks = Task.objects.filter(owner=user, state=TaskState.QUEUED, queue__in=list(queue_ids))
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
