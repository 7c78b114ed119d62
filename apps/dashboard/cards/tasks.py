"""Tasks: the list, and one task with its state, time-line, reason, attempts and log."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.explaining import Names, explained
from apps.dashboard.cards.bars import Stretch, Timeline
from apps.dashboard.cards.happenings import Step, steps_of
from apps.dashboard.cards.reasons import ReasonView, reason_view
from apps.dashboard.cards.risk import Risk
from apps.dashboard.cards.words import ATTEMPT_STATES, FAILED, PREEMPTED, STOPPED, Word
from apps.dashboard.live import Sharing, card
from apps.dashboard.selectors.history import History, task_history
from apps.dashboard.selectors.pools import simulated_pools
from apps.dashboard.selectors.tasks import VIEWS, TaskFilter, task_seen, tasks_matching
from apps.dashboard.selectors.use import amounts_of, family_in, held_now, over_quota_tasks
from apps.policies.models import Queue
from apps.policies.selectors import queues_open_to
from apps.tasks.models import Attempt, Task
from apps.tasks.selectors.seen import Rights, task_rights
from apps.tasks.states import (
    ENDED_STATES,
    HOLDING_STATES,
    LIVE_ATTEMPT_STATES,
    AttemptState,
    TaskState,
)

PAGE = 50
RUNNING = frozenset({"run", "over"})
WAITING = frozenset({"wait"})


@dataclass(frozen=True, slots=True)
class TaskRow:
    task: Task
    reason_code: str
    is_own: bool


@dataclass(frozen=True, slots=True)
class Tab:
    view: str
    label: str
    query: str
    is_here: bool


@dataclass(frozen=True, slots=True)
class TaskList:
    wanted: TaskFilter
    rows: tuple[TaskRow, ...]
    older: str
    topics: tuple[str, ...]
    announce: str = ""


@dataclass(frozen=True, slots=True)
class TaskHead:
    """Title line, facts that everybody who sees the task may know, and what one can do with it.

    `queues` are where its owner may put a draft.
    """

    task: Task
    rights: Rights
    is_own: bool
    queues: tuple[Queue, ...]
    topics: tuple[str, ...]
    announce: str

    @property
    def has_ended(self) -> bool:
        return self.task.state in ENDED_STATES

    @property
    def may_wait_again(self) -> bool:
        """Paused or rejected: it is in no line until somebody says so."""
        return self.task.state in {TaskState.PAUSED, TaskState.REJECTED}


@dataclass(frozen=True, slots=True)
class TaskStory:
    """The time-line and what happened; durations are sums over all attempts.

    `running_from` and `waiting_from` count the sum from one moment, so that the browser keeps it
    true; None where it does not grow.
    """

    timeline: Timeline | None
    steps: tuple[Step, ...]
    running: timedelta
    running_from: datetime | None
    waiting: timedelta
    waiting_from: datetime | None
    preemptions: int
    topics: tuple[str, ...]
    announce: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a member runs: the node's name only for those who may know it."""

    node: str
    devices: str
    detail: str
    is_simulated: bool


@dataclass(frozen=True, slots=True)
class AttemptRow:
    attempt: Attempt
    word: Word
    pool: str
    places: tuple[Place, ...]
    ran: timedelta | None
    is_running: bool


@dataclass(frozen=True, slots=True)
class TaskNow:
    """Why it waits, where it runs, or how it ended; its attempts; what it runs."""

    task: Task
    rights: Rights
    reason: ReasonView | None
    reason_at: datetime | None
    is_over: bool
    risk: Risk | None
    attempts: tuple[AttemptRow, ...]
    topics: tuple[str, ...]
    announce: str = ""

    @property
    def current(self) -> AttemptRow | None:
        """The attempt that runs, or ran last."""
        return self.attempts[0] if self.attempts else None


def tabs(wanted: TaskFilter) -> list[Tab]:
    """The views of the list, with the rest of the filter kept."""
    return [
        Tab(
            view,
            view.capitalize(),
            wanted.query(view=view, before="", before_at=""),
            view == wanted.view,
        )
        for view in VIEWS
    ]


@card("task_rows", Sharing.NOBODY)
def load_task_list(user: User, key: str) -> TaskList:
    """The tasks that match the query string `key`, newest first."""
    wanted = TaskFilter.parse(key)
    tasks = list(tasks_matching(user, wanted)[: PAGE + 1])
    shown = tasks[:PAGE]
    more = len(tasks) > PAGE
    return TaskList(
        wanted=wanted,
        rows=tuple(TaskRow(task, _code(task), task.owner_id == user.pk) for task in shown),
        older=wanted.older(shown[-1]) if more else "",
        topics=("tasks",),
    )


@card("task_head", Sharing.NOBODY)
def load_task_head(user: User, key: str) -> TaskHead | None:
    """Name and state of a task, with the buttons that fit the state."""
    task = task_seen(user, key)
    if task is None:
        return None
    is_own = task.owner_id == user.pk
    is_own_draft = is_own and task.state == TaskState.DRAFT
    return TaskHead(
        task=task,
        rights=task_rights(user, task),
        is_own=is_own,
        queues=tuple(queues_open_to(user).order_by("name")) if is_own_draft else (),
        topics=(f"task.{task.pk}",),
        announce=f"{task.name}: {TaskState(task.state).label}",
    )


@card("task_story", Sharing.NOBODY)
def load_task_story(user: User, key: str) -> TaskStory | None:
    """What happened to a task, and how long it waited and ran."""
    task = task_seen(user, key)
    if task is None:
        return None
    history = task_history(task)
    now = timezone.now()
    stretches = _stretches(task, history, now, is_over=_is_over(task))
    is_growing = bool(stretches) and stretches[-1].ended == now
    return TaskStory(
        timeline=Timeline.of(stretches, flags=_preempted_at(history), is_growing=is_growing),
        steps=steps_of(history, _names(user, task, history)),
        running=_sum(stretches, RUNNING),
        running_from=_counted_from(stretches, RUNNING) if is_growing else None,
        waiting=_sum(stretches, WAITING),
        waiting_from=_counted_from(stretches, WAITING) if is_growing else None,
        preemptions=task.preemptions,
        topics=(f"task.{task.pk}",),
    )


@card("task_now", Sharing.NOBODY)
def load_task_now(user: User, key: str) -> TaskNow | None:
    """The state of a task with its reason, its place and its attempts."""
    task = task_seen(user, key)
    if task is None:
        return None
    rights = task_rights(user, task)
    found = explained(user, task)
    attempts = [
        _attempt_row(attempt, found.names, sees_places=rights.content)
        for attempt in reversed(task_history(task).attempts)
    ]
    is_told = task.state == TaskState.QUEUED or found.reasons
    return TaskNow(
        task=task,
        rights=rights,
        reason=reason_view(found.reasons, found.names, simulated=simulated_pools())
        if is_told
        else None,
        reason_at=found.at,
        is_over=_is_over(task),
        risk=_risk(task),
        attempts=tuple(attempts),
        topics=(f"task.{task.pk}", f"queue.{task.queue_id}"),
    )


def _code(task: Task) -> str:
    if task.state != TaskState.QUEUED or task.run is None:
        return ""
    return task.run.reason_code


def _names(user: User, task: Task, history: History) -> Names:
    """For the lines of what happened: each tells the dominant reason of its time."""
    reasons = [one for past in history.reasons for one in past.data.get("reasons", ())[:1]]
    return Names.of(user, task, reasons)


def _is_over(task: Task) -> bool:
    if task.state not in HOLDING_STATES or task.queue is None:
        return False
    # Room in the reservation of a department is its teams', too.
    amounts = amounts_of()
    family = family_in(task.queue.policy_id, amounts)
    return task.pk in over_quota_tasks(held_now(Q(policy__in=family)), amounts)


def _risk(task: Task) -> Risk | None:
    if task.state not in HOLDING_STATES:
        return None
    live = task.attempts.filter(state__in=LIVE_ATTEMPT_STATES).select_related("queue").first()
    return None if live is None else Risk.of(task, live, now=timezone.now())


def _stretches(
    task: Task, history: History, now: datetime, *, is_over: bool = False
) -> list[Stretch]:
    """The life of a task as a row of stretches without gaps.

    An attempt counts as it did when it was admitted; the one that runs counts as it does now
    (`is_over`), which may have changed with what others hold.
    """
    if task.waits_since is None:
        return []
    at = task.waits_since
    found: list[Stretch] = []
    for attempt in history.attempts:
        if attempt.allocated_at > at:
            found.append(Stretch("wait", at, attempt.allocated_at))
        begun = attempt.started_at or attempt.ended_at or now
        end = attempt.ended_at or now
        is_live = attempt.state in LIVE_ATTEMPT_STATES
        over = is_over if is_live else history.standing(attempt.generation) == "over_quota"
        if begun > attempt.allocated_at:
            found.append(Stretch("start", attempt.allocated_at, begun))
        if end > begun:
            found.append(Stretch("over" if over else "run", begun, end))
        at = max(end, attempt.allocated_at)
    is_waiting = task.state in {TaskState.QUEUED, TaskState.PAUSED, TaskState.REJECTED}
    if is_waiting and now > at:
        found.append(Stretch("wait", at, now))
    return found


def _preempted_at(history: History) -> list[datetime]:
    return [
        attempt.ended_at
        for attempt in history.attempts
        if attempt.ended_at is not None and _lost_its_room(attempt)
    ]


def _sum(stretches: list[Stretch], kinds: frozenset[str]) -> timedelta:
    return sum((s.ended - s.began for s in stretches if s.kind in kinds), timedelta())


def _counted_from(stretches: list[Stretch], kinds: frozenset[str]) -> datetime | None:
    """When it would have begun in one piece; None where the last stretch is another."""
    *before, last = stretches
    return last.began - _sum(before, kinds) if last.kind in kinds else None


def _attempt_row(attempt: Attempt, names: Names, *, sees_places: bool) -> AttemptRow:
    begun, end = attempt.started_at, attempt.ended_at
    is_over = attempt.state in {AttemptState.FINISHED, AttemptState.LOST}
    ran = end - begun if end is not None and begun is not None else None
    # A node's name says which pool it is, as REST has it.
    sees_pool = attempt.pool_id in names.pools
    places = tuple(
        Place(
            node=holding.node.name if sees_pool and holding.node is not None else "",
            devices=_devices(holding.devices),
            detail=holding.detail,
            is_simulated=holding.node is not None and holding.node.is_simulated,
        )
        for holding in (attempt.holdings.all() if sees_places else ())
    )
    return AttemptRow(
        attempt,
        _word(attempt),
        names.pool(attempt.pool_id),
        places,
        ran,
        is_running=begun is not None and end is None and not is_over,
    )


def _word(attempt: Attempt) -> Word:
    """Its state; of one that is over how it ended, which is not well for all of them."""
    if attempt.state != AttemptState.FINISHED:
        return ATTEMPT_STATES[attempt.state]
    if _lost_its_room(attempt):
        return PREEMPTED
    if attempt.stop_target and not attempt.is_preempted:
        return FAILED if attempt.stop_target == TaskState.FAILED else STOPPED
    return ATTEMPT_STATES[attempt.state] if attempt.exit_code == 0 else FAILED


def _lost_its_room(attempt: Attempt) -> bool:
    """Preempted, and not over by itself before any of its nodes was told."""
    members = attempt.holdings.all()
    return attempt.is_preempted and any(
        member.is_stop_asked or member.exit_code is None for member in members
    )


def _devices(pairs: list[list[int]]) -> str:
    """`GPU 0 to 3`, `GPU 0, 2`, `half of GPU 1`."""
    if not pairs:
        return ""
    if len(pairs) == 1 and pairs[0][1] < 1000:
        return f"{pairs[0][1] / 10:g} % of GPU {pairs[0][0]}"
    indexes = sorted(index for index, _ in pairs)
    if len(indexes) > 2 and indexes[-1] - indexes[0] == len(indexes) - 1:
        return f"GPU {indexes[0]} to {indexes[-1]}"
    return "GPU " + ", ".join(str(index) for index in indexes)
