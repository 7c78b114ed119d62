"""Who waits, where, since when, and why."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count, Min

from apps.tasks.models import Run, Task
from apps.tasks.states import TaskState


@dataclass(frozen=True, slots=True)
class Waiting:
    """Tasks waiting in a queue, when the first of them was submitted, and what holds it."""

    count: int = 0
    oldest: datetime | None = None
    reason: str = ""


NOBODY = Waiting()


def waiting_by_queue(queue_ids: Iterable[int] | None = None) -> defaultdict[int, Waiting]:
    """Per queue, in two queries.

    Tasks are counted per run: one index holds exactly what that needs, so a million waiting tasks
    are read without touching their rows.
    """
    runs = Run.objects.all()
    if queue_ids is not None:
        runs = runs.filter(queue__in=list(queue_ids))
    known = {run.pk: run for run in runs.only("queue_id", "priority", "reason_code", "head_id")}
    tasks = Task.objects.filter(state=TaskState.QUEUED)
    if queue_ids is not None:
        tasks = tasks.filter(run__in=list(known))
    rows = tasks.order_by().values_list("run_id").annotate(Count("pk"), Min("submitted_at"))
    parts: defaultdict[int, list[tuple[Run, int, datetime]]] = defaultdict(list)
    for pk, count, oldest in rows:
        run = known.get(pk or 0)
        if run is not None:
            parts[run.queue_id].append((run, count, oldest))
    found: defaultdict[int, Waiting] = defaultdict(Waiting)
    for queue, runs_there in parts.items():
        # What holds the first task in line is what the queue waits for.
        first = min(runs_there, key=lambda part: (-part[0].priority, part[2], part[0].pk))[0]
        found[queue] = Waiting(
            count=sum(count for _, count, _ in runs_there),
            oldest=min(oldest for _, _, oldest in runs_there),
            reason=first.reason_code,
        )
    return found


def summed(parts: Iterable[Waiting]) -> Waiting:
    """Several queues as one: all tasks, the oldest, the reason that holds most of them."""
    waiting = [part for part in parts if part.count]
    codes: Counter[str] = Counter()
    for part in waiting:
        if part.reason:
            codes[part.reason] += part.count
    ages = [part.oldest for part in waiting if part.oldest is not None]
    return Waiting(
        count=sum(part.count for part in waiting),
        oldest=min(ages, default=None),
        reason=codes.most_common(1)[0][0] if codes else "",
    )


def names_of_tasks(ids: Iterable[UUID]) -> dict[UUID, tuple[str, str]]:
    """Name and owner per task, in one query."""
    rows = Task.objects.filter(pk__in=list(ids)).select_related("owner")
    return {task.pk: (task.name, str(task.owner)) for task in rows}
