"""Queues: the list, and one queue with its waiting tasks, their positions and reasons."""

from dataclasses import dataclass

from django.db.models import Q

from apps.access.selectors import (
    queues_managed_by,
    queues_open_to,
    queues_settable_by,
    queues_visible_to,
)
from apps.accounts.models import User
from apps.allocation.explanation import ReaderNames, is_suspended
from apps.dashboard.cards.reasons import ReasonView, explain, stored_reasons
from apps.dashboard.live import Sharing, card, key_id, topics_of
from apps.policies.models import Queue
from apps.tasks.models import Task
from apps.tasks.selectors.queue_order import tasks_in_order
from apps.usage.selectors.current_usage import live_attempts, usage_by
from apps.usage.selectors.waiting_tasks import WaitingTasks, waiting_by_queue

MOST_WAITING = 100
MOST_CHARS = 200
# The move of a button, its icon, and its label.
_MOVES = (
    ("top", "chevrons-up", "First"),
    ("up", "chevron-up", "Up"),
    ("down", "chevron-down", "Down"),
    ("bottom", "chevrons-down", "Last"),
)


@dataclass(frozen=True, slots=True)
class QueueRow:
    queue: Queue
    running: int
    waiting: WaitingTasks
    may_enqueue: bool


@dataclass(frozen=True, slots=True)
class QueueList:
    """`rows` are the queues whose name, or that of their policy, contains `word`."""

    rows: tuple[QueueRow, ...]
    word: str
    topics: tuple[str, ...]
    announce: str = ""


@dataclass(frozen=True, slots=True)
class MoveButton:
    """`is_possible` is False for a task that is there already, among those it can swap with."""

    move: str
    icon: str
    label: str
    is_possible: bool


@dataclass(frozen=True, slots=True)
class WaitingRow:
    task: Task
    position: int
    reason: ReasonView
    moves: tuple[MoveButton, ...]


@dataclass(frozen=True, slots=True)
class QueueWaiting:
    """The first waiting tasks of a queue, and how many wait in all."""

    row: QueueRow
    tasks: tuple[WaitingRow, ...]
    more: int
    may_manage: bool
    may_pause: bool
    topics: tuple[str, ...]
    announce: str


def queue_word(text: str) -> str:
    """What the list is filtered by, as an address may give it."""
    return text.replace("\0", "").strip()[:MOST_CHARS]


@card("queue_rows", Sharing.ADMINS)
def load_queue_list(user: User, key: str) -> QueueList:
    """The queues that the person sees, as far as their names contain `key`."""
    visible = queues_visible_to(user).select_related("policy", "profile")
    word = queue_word(key)
    named = Q(name__icontains=word) | Q(policy__name__icontains=word)
    queues = list(visible.filter(named) if word else visible)
    ids = [queue.pk for queue in queues]
    open_ids = set(queues_open_to(user).values_list("pk", flat=True))
    running = usage_by(live_attempts(Q(queue__in=ids)), frozenset(), of="queue_id")
    waiting = waiting_by_queue(ids)
    return QueueList(
        rows=tuple(
            QueueRow(q, running[q.pk].tasks, waiting[q.pk], q.pk in open_ids) for q in queues
        ),
        word=word,
        topics=("overview", *topics_of("queue", ids)),
    )


@card("queue_waiting", Sharing.NOBODY)
def load_queue_waiting(user: User, key: str) -> QueueWaiting | None:
    """The waiting tasks of the queue, with position and reason."""
    visible = queues_visible_to(user).select_related("policy", "profile")
    queue = visible.filter(pk=key_id(key)).first()
    if queue is None:
        return None
    waiting = waiting_by_queue([queue.pk])[queue.pk]
    tasks = list(tasks_in_order(queue.pk).select_related("owner", "task_group")[:MOST_WAITING])
    reasons = [
        stored_reasons(task, position=None if _is_head(task) else position)
        for position, task in enumerate(tasks, start=1)
    ]
    names = ReaderNames.of(
        user, tasks[0] if tasks else None, [one for each in reasons for one in each]
    )
    running = usage_by(live_attempts(Q(queue=queue.pk)), frozenset(), of="queue_id")[queue.pk].tasks
    may_manage = queues_managed_by(user).filter(pk=queue.pk).exists()
    suspended = is_suspended()
    more = max(waiting.count - len(tasks), 0)
    return QueueWaiting(
        row=QueueRow(queue, running, waiting, queues_open_to(user).filter(pk=queue.pk).exists()),
        tasks=tuple(
            WaitingRow(
                task=task,
                position=position,
                reason=explain(task_reasons, names, suspended=suspended),
                moves=_moves(tasks, position - 1, has_more=more > 0),
            )
            for position, (task, task_reasons) in enumerate(
                zip(tasks, reasons, strict=True), start=1
            )
        ),
        more=more,
        may_manage=may_manage,
        may_pause=may_manage or queues_settable_by(user).filter(pk=queue.pk).exists(),
        topics=(f"queue.{queue.pk}",),
        announce=f"{queue.name}: {running} running, {waiting.count} waiting",
    )


def _is_head(task: Task) -> bool:
    """What a pass says about a task group, it says about the first task of the group."""
    return task.task_group is not None and task.task_group.head_id == task.pk


def _moves(tasks: list[Task], index: int, *, has_more: bool) -> tuple[MoveButton, ...]:
    """Higher priority comes first, and at equal priority what cannot be preempted."""

    def rank_of(at: int) -> tuple[int, bool]:
        return tasks[at].priority, tasks[at].is_preemptible

    is_first = index == 0 or rank_of(index - 1) != rank_of(index)
    is_end = index == len(tasks) - 1
    is_last = not has_more if is_end else rank_of(index + 1) != rank_of(index)
    disabled = {"top", "up"} if is_first else set()
    disabled |= {"down", "bottom"} if is_last else set()
    return tuple(
        MoveButton(move, icon, label, is_possible=move not in disabled)
        for move, icon, label in _MOVES
    )
