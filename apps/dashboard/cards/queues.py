"""Queues: the list, and one queue with its waiting tasks, their places and reasons."""

from dataclasses import dataclass

from django.db.models import Q

from apps.accounts.models import User
from apps.allocation.explaining import Names
from apps.dashboard.cards.reasons import ReasonView, explain, stored_reasons
from apps.dashboard.live import Sharing, card, key_id, topics_of
from apps.dashboard.selectors.use import held_now, use_by
from apps.dashboard.selectors.waiting import Waiting, waiting_by_queue
from apps.policies.models import Queue
from apps.policies.selectors import queues_open_to, queues_visible_to
from apps.tasks.models import Task
from apps.tasks.selectors.waiting import in_line

MOST_WAITING = 100


@dataclass(frozen=True, slots=True)
class QueueRow:
    queue: Queue
    running: int
    waiting: Waiting
    may_enqueue: bool


@dataclass(frozen=True, slots=True)
class QueueList:
    rows: tuple[QueueRow, ...]
    topics: tuple[str, ...]
    announce: str = ""


@dataclass(frozen=True, slots=True)
class WaitingRow:
    task: Task
    place: int
    reason: ReasonView


@dataclass(frozen=True, slots=True)
class QueueWaiting:
    """The first waiting tasks of a queue, and how many wait in all."""

    row: QueueRow
    tasks: tuple[WaitingRow, ...]
    more: int
    topics: tuple[str, ...]
    announce: str


@card("queue_rows", Sharing.ADMINS)
def load_queue_list(user: User, _key: str) -> QueueList:
    """Every queue that the person sees."""
    queues = list(queues_visible_to(user).select_related("policy", "profile"))
    ids = [queue.pk for queue in queues]
    open_ids = set(queues_open_to(user).values_list("pk", flat=True))
    running = use_by(held_now(Q(queue__in=ids)), frozenset(), of="queue_id")
    waiting = waiting_by_queue(ids)
    return QueueList(
        rows=tuple(
            QueueRow(q, running[q.pk].tasks, waiting[q.pk], q.pk in open_ids) for q in queues
        ),
        topics=("overview", *topics_of("queue", ids)),
    )


@card("queue_waiting", Sharing.NOBODY)
def load_queue_waiting(user: User, key: str) -> QueueWaiting | None:
    """Who waits in the queue, in which place, and why."""
    visible = queues_visible_to(user).select_related("policy", "profile")
    queue = visible.filter(pk=key_id(key)).first()
    if queue is None:
        return None
    waiting = waiting_by_queue([queue.pk])[queue.pk]
    tasks = list(in_line(queue.pk).select_related("owner", "run")[:MOST_WAITING])
    reasons = [
        stored_reasons(task, place=None if _is_head(task) else place)
        for place, task in enumerate(tasks, start=1)
    ]
    names = Names.of(user, tasks[0] if tasks else None, [one for each in reasons for one in each])
    running = use_by(held_now(Q(queue=queue.pk)), frozenset(), of="queue_id")[queue.pk].tasks
    return QueueWaiting(
        row=QueueRow(queue, running, waiting, queues_open_to(user).filter(pk=queue.pk).exists()),
        tasks=tuple(
            WaitingRow(
                task=task,
                place=place,
                reason=explain(why, names),
            )
            for place, (task, why) in enumerate(zip(tasks, reasons, strict=True), start=1)
        ),
        more=max(waiting.count - len(tasks), 0),
        topics=(f"queue.{queue.pk}",),
        announce=f"{queue.name}: {running} running, {waiting.count} waiting",
    )


def _is_head(task: Task) -> bool:
    """What the pass said about a run, it said about the first task of it."""
    return task.run is not None and task.run.head_id == task.pk
