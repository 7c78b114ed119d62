"""Queues: the list, and one queue with its waiting tasks, their positions and reasons."""

from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic

from django.db.models import Q

from apps.access.selectors import (
    queues_managed_by,
    queues_open_to,
    queues_settable_by,
    queues_visible_to,
)
from apps.accounts.models import User
from apps.allocation.explanation import (
    ExpectedStart,
    ReaderNames,
    expected_start,
    kept_starts,
)
from apps.dashboard.cards.reasons import ReasonView, explain, stored_reasons
from apps.dashboard.live import Sharing, card, key_id, topics_of
from apps.nodes.selectors import is_suspended
from apps.policies.models import Policy, Queue
from apps.tasks.models import Task
from apps.tasks.selectors.queue_order import tasks_in_order
from apps.usage.selectors.current_usage import live_attempts, usage_by
from apps.usage.selectors.waiting_tasks import WaitingTasks, waiting_by_queue

MOST_WAITING = 100
MOST_CHARS = 200
# As many tasks have an expected start; each estimate takes some tenths of a second.
MOST_STARTS = 8
# Once so much time is used, no further estimate begins.
MOST_S = 3.0
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
class PolicyQueues:
    """The queues of one policy, those with waiting tasks first."""

    policy: Policy
    rows: tuple[QueueRow, ...]


@dataclass(frozen=True, slots=True)
class QueueList:
    """Queues whose name, or that of their policy, contains `word`; where tasks wait first."""

    policies: tuple[PolicyQueues, ...]
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
    expected: ExpectedStart | None
    moves: tuple[MoveButton, ...]


@dataclass(frozen=True, slots=True)
class QueueWaiting:
    """The first waiting tasks of a queue, and how many wait in all.

    `common` is the reason of several of them, `alike` of how many.
    """

    row: QueueRow
    tasks: tuple[WaitingRow, ...]
    common: ReasonView | None
    alike: int
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
    rows = [QueueRow(q, running[q.pk].tasks, waiting[q.pk], q.pk in open_ids) for q in queues]
    return QueueList(
        policies=_by_policy(rows),
        word=word,
        topics=("overview", *topics_of("queue", ids)),
    )


def _by_policy(rows: Iterable[QueueRow]) -> tuple[PolicyQueues, ...]:
    found: dict[Policy, list[QueueRow]] = {}
    for row in sorted(rows, key=lambda one: (not one.waiting.count, one.queue.name)):
        found.setdefault(row.queue.policy, []).append(row)
    policies = sorted(
        found, key=lambda one: (not found[one][0].waiting.count, one.name.lower(), one.pk)
    )
    return tuple(PolicyQueues(one, tuple(found[one])) for one in policies)


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
    views = [explain(one, names, suspended=suspended) for one in reasons]
    common, alike = _common(views)
    starts = kept_starts(tasks[:MOST_STARTS])
    return QueueWaiting(
        row=QueueRow(queue, running, waiting, queues_open_to(user).filter(pk=queue.pk).exists()),
        tasks=tuple(
            WaitingRow(
                task=task,
                position=position,
                reason=view,
                expected=starts.get(task.pk),
                moves=_moves(tasks, position - 1, has_more=more > 0),
            )
            for position, (task, view) in enumerate(zip(tasks, views, strict=True), start=1)
        ),
        common=common,
        alike=alike,
        more=more,
        may_manage=may_manage,
        may_pause=may_manage or queues_settable_by(user).filter(pk=queue.pk).exists(),
        topics=(f"queue.{queue.pk}",),
        announce=f"{queue.name}: {running} running, {waiting.count} waiting",
    )


def expected_starts(queue: Queue) -> list[tuple[Task, ExpectedStart]]:
    """Of the first waiting tasks; what takes too long comes with the next request."""
    until, found = monotonic() + MOST_S, []
    for task in tasks_in_order(queue.pk).select_related("task_group")[:MOST_STARTS]:
        if monotonic() > until:
            break
        expected = expected_start(task)
        if expected is not None:
            found.append((task, expected))
    return found


def _common(views: Iterable[ReasonView]) -> tuple[ReasonView | None, int]:
    """The reason that most tasks have, where several have it, and how many."""
    by_verdict: dict[str, list[ReasonView]] = {}
    for view in views:
        by_verdict.setdefault(view.verdict, []).append(view)
    most = max(by_verdict.values(), key=len, default=[])
    return (most[0], len(most)) if len(most) > 1 else (None, 0)


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
