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
from apps.tasks.models import Run, Task
from apps.tasks.states import TaskState


@dataclass(frozen=True, slots=True)
class Waiting:
    """Tasks waiting in a queue, when the first of them was submitted, and what holds it.

    `codes` says for how many tasks the first of their kind waits for which reason, most first.
    """

    count: int = 0
    oldest: datetime | None = None
    reason: str = ""
    codes: tuple[tuple[str, int], ...] = ()


NOBODY = Waiting()


def waiting_by_queue(queue_ids: Iterable[int] | None = None) -> defaultdict[int, Waiting]:
    """Per queue, in two queries.

    Tasks are counted per run: one index holds exactly what that needs, so a million waiting tasks
    are read without touching their rows.
    """
    runs = Run.objects.all()
    if queue_ids is not None:
        runs = runs.filter(queue__in=list(queue_ids))
    fields = ("queue_id", "priority", "is_preemptible", "reason_code", "head_id")
    known = {run.pk: run for run in runs.only(*fields)}
    tasks = Task.objects.filter(state=TaskState.QUEUED)
    if queue_ids is not None:
        tasks = tasks.filter(run__in=list(known))
    # Where a task stands in line, and since when it waits: not the same once it was moved.
    since = Coalesce("waiting_since", "submitted_at")
    rows: Any = tasks.order_by().values_list("run_id")
    rows = rows.annotate(Count("pk"), Min("submitted_at"), oldest=Min(since))
    parts: defaultdict[int, list[tuple[Run, int, datetime, datetime]]] = defaultdict(list)
    for pk, count, place, oldest in rows:
        run = known.get(pk or 0)
        if run is not None:
            parts[run.queue_id].append((run, count, place, oldest))
    found: defaultdict[int, Waiting] = defaultdict(Waiting)
    for queue, runs_there in parts.items():
        # What holds the first task in line is what the queue waits for.
        first = min(runs_there, key=_line_order)[0]
        found[queue] = Waiting(
            count=sum(count for _, count, _, _ in runs_there),
            oldest=min(oldest for _, _, _, oldest in runs_there),
            reason=first.reason_code,
            codes=_counted((run.reason_code, count) for run, count, _, _ in runs_there),
        )
    return found


def _line_order(part: tuple[Run, int, datetime, datetime]) -> tuple[int, bool, datetime, int]:
    run, _, place, _ = part
    return -run.priority, run.is_preemptible, place, run.pk


def own_waiting_by_queue(user: User, queue_ids: Iterable[int]) -> dict[int, int]:
    """How many of the person's own tasks wait in each of these queues."""
    tasks = Task.objects.filter(owner=user, state=TaskState.QUEUED, queue__in=list(queue_ids))
    rows = tasks.order_by().values_list("queue_id").annotate(Count("pk"))
    return {queue: count for queue, count in rows if queue is not None}


def summed(parts: Iterable[Waiting]) -> Waiting:
    """Several queues as one: all tasks, the oldest, the reason that holds most of them."""
    waiting = [part for part in parts if part.count]
    codes = _counted(one for part in waiting for one in part.codes)
    ages = [part.oldest for part in waiting if part.oldest is not None]
    return Waiting(
        count=sum(part.count for part in waiting),
        oldest=min(ages, default=None),
        reason=next((code for code, _ in codes if code), ""),
        codes=codes,
    )


def _counted(parts: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    codes: Counter[str] = Counter()
    for code, count in parts:
        codes[code] += count
    return tuple(sorted(codes.items(), key=lambda one: (-one[1], one[0])))


def names_of_tasks(ids: Iterable[UUID]) -> dict[UUID, tuple[str, str]]:
    """Name and owner per task, in one query."""
    rows = Task.objects.filter(pk__in=list(ids)).select_related("owner")
    return {task.pk: (task.name, str(task.owner)) for task in rows}
