"""One task with its state, timeline, reason, attempts and log."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from apps.access.selectors import queues_open_to
from apps.accounts.models import User
from apps.allocation.explanation import ReaderNames, explain_task, queue_of
from apps.core.terminal import Line
from apps.dashboard.cards.bars import TimelineBar
from apps.dashboard.cards.logs import last_lines
from apps.dashboard.cards.reasons import ReasonView, reason_view
from apps.dashboard.cards.risk import Risk
from apps.dashboard.cards.task_list import running_of
from apps.dashboard.cards.task_phases import (
    RUNNING,
    WAITING,
    counted_from,
    phase_sum,
    task_phases,
)
from apps.dashboard.cards.timeline import TimelineEntry, timeline_entries
from apps.dashboard.cards.words import (
    ATTEMPT_STATES,
    FAILED,
    PREEMPTED,
    STOPPED,
    TASK_STATES,
    Word,
    elements_in_words,
)
from apps.dashboard.live import Sharing, card
from apps.dashboard.selectors.pools import simulated_pools
from apps.dashboard.selectors.task_history import TaskHistory, task_history
from apps.dashboard.selectors.tasks import visible_task
from apps.policies.models import Queue
from apps.tasks.lifecycle.states import (
    ADMITTED_STATES,
    ENDED_STATES,
    LIVE_ATTEMPT_STATES,
    AttemptState,
    TaskState,
)
from apps.tasks.models import Attempt, IdleWarning, Task
from apps.tasks.selectors.arrays import array_counts
from apps.tasks.selectors.dependencies import DependencyRow, dependencies_of
from apps.tasks.selectors.idle_attempts import idle_warnings_of
from apps.tasks.selectors.visibility import (
    TaskPermissions,
    is_shown_alone,
    task_permissions,
)
from apps.tasks.services.holds import may_release
from apps.usage.selectors.current_usage import (
    amounts_of,
    family_in,
    live_attempts,
    over_quota_tasks,
)


@dataclass(frozen=True, slots=True)
class TaskHead:
    """Title, facts that every reader of the task may see, and the actions that it allows.

    `queues` are where its owner may put a draft.
    """

    task: Task
    permissions: TaskPermissions
    is_own: bool
    queues: tuple[Queue, ...]
    topics: tuple[str, ...]
    announce: str
    may_release: bool
    elements: str = ""

    @property
    def has_ended(self) -> bool:
        return self.task.state in ENDED_STATES

    @property
    def may_resume(self) -> bool:
        """Paused or rejected: it is not queued until a user resumes it."""
        return self.task.state in {TaskState.PAUSED, TaskState.REJECTED}


@dataclass(frozen=True, slots=True)
class TaskTimeline:
    """The timeline and its entries; durations are sums over all attempts.

    `running_from` and `waiting_from` count the sum from one moment, so that the browser keeps it
    true; None where it does not grow. `draft_since` is set where a task was taken out of its queue.
    """

    bar: TimelineBar | None
    entries: tuple[TimelineEntry, ...]
    running: timedelta
    running_from: datetime | None
    waiting: timedelta
    waiting_from: datetime | None
    preemptions: int
    is_array: bool
    has_ended: bool
    draft_since: datetime | None
    topics: tuple[str, ...]
    announce: str = ""


@dataclass(frozen=True, slots=True)
class PlacementView:
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
    placements: tuple[PlacementView, ...]
    ran: timedelta | None
    is_running: bool


@dataclass(frozen=True, slots=True)
class TaskSummaryCard:
    """Why it waits, where it runs, or how it ended; its attempts; what it runs."""

    task: Task
    permissions: TaskPermissions
    reason: ReasonView | None
    reason_at: datetime | None
    is_over_quota: bool
    risk: Risk | None
    idle: IdleWarning | None
    attempts: tuple[AttemptRow, ...]
    after: tuple[DependencyRow, ...]
    last_lines: tuple[Line, ...]
    topics: tuple[str, ...]
    announce: str = ""

    @property
    def detail(self) -> str:
        """What a node or RPM said about its state, for those who may read its content."""
        return self.task.state_detail if self.permissions.content else ""

    @property
    def state_label(self) -> str:
        return TASK_STATES[self.task.state].text

    @property
    def current(self) -> AttemptRow | None:
        """The attempt that runs, or ran last."""
        return self.attempts[0] if self.attempts else None


@card("task_head", Sharing.NOBODY)
def load_task_head(user: User, key: str) -> TaskHead | None:
    """Name and state of a task, with the buttons that fit the state."""
    task = visible_task(user, key)
    if task is None:
        return None
    is_own = task.owner_id == user.pk
    is_own_draft = is_own and task.state == TaskState.DRAFT
    return TaskHead(
        task=task,
        permissions=task_permissions(user, task),
        is_own=is_own,
        queues=tuple(queues_open_to(user).order_by("name")) if is_own_draft else (),
        topics=(f"task.{task.pk}",),
        announce=f"{task.name}: {TASK_STATES[task.state].text}",
        may_release=may_release(user, task),
        elements=elements_in_words(array_counts([task]).get(task.pk, {})),
    )


@card("task_timeline", Sharing.NOBODY)
def load_task_timeline(user: User, key: str) -> TaskTimeline | None:
    """What happened to a task, and how long it waited and ran."""
    task = visible_task(user, key)
    if task is None:
        return None
    history = task_history(task)
    now = timezone.now()
    phases = task_phases(task, history, now, is_over_quota=_is_over_quota(task))
    is_growing = bool(phases) and phases[-1].ended == now
    return TaskTimeline(
        bar=TimelineBar.of(phases, flags=_preempted_at(history), is_growing=is_growing),
        entries=timeline_entries(
            history, _names(user, task, history), has_content=task_permissions(user, task).content
        ),
        running=phase_sum(phases, RUNNING),
        running_from=counted_from(phases, RUNNING) if is_growing else None,
        waiting=phase_sum(phases, WAITING),
        waiting_from=counted_from(phases, WAITING) if is_growing else None,
        preemptions=task.preemptions,
        is_array=task.array_count is not None,
        has_ended=task.state in ENDED_STATES,
        draft_since=history.dequeued_at if phases and task.submitted_at is None else None,
        topics=(f"task.{task.pk}",),
    )


@card("task_summary", Sharing.NOBODY)
def load_task_summary(user: User, key: str) -> TaskSummaryCard | None:
    """The state of a task with its reason, its placement and its attempts."""
    task = visible_task(user, key)
    if task is None:
        return None
    permissions = task_permissions(user, task)
    found = explain_task(user, task)
    attempts = [
        _attempt_row(attempt, found.names, sees_placements=permissions.content)
        for attempt in reversed(task_history(task).attempts)
    ]
    waits = task.state == TaskState.QUEUED
    # An array of which nothing is queued has no reason to wait: its elements run.
    has_reason = found.reasons or (waits and task.array_count is None)
    return TaskSummaryCard(
        task=task,
        permissions=permissions,
        reason=reason_view(found.reasons, found.names, simulated=simulated_pools())
        if has_reason
        else None,
        reason_at=found.at,
        is_over_quota=_is_over_quota(task),
        risk=_risk(task),
        idle=idle_warnings_of(running_of([task])).get(task.pk),
        attempts=tuple(attempts),
        after=tuple(dependencies_of(user, task)) if waits else (),
        last_lines=last_lines(attempts[0].attempt)
        if task.state == TaskState.FAILED and permissions.log and attempts
        else (),
        topics=(f"task.{task.pk}", f"queue.{task.queue_id}"),
    )


def _names(user: User, task: Task, history: TaskHistory) -> ReaderNames:
    """Names for the entries of the timeline: each shows the dominant reason of its time."""
    reasons = [one for past in history.reasons for one in past.data.get("reasons", ())[:1]]
    queues = [*map(queue_of, history.reasons), *(event.queue_id for event in history.events)]
    return ReaderNames.of(user, task, reasons, queues=queues)


def _is_over_quota(task: Task) -> bool:
    if task.state not in ADMITTED_STATES or task.queue is None:
        return False
    # Teams may also use what is free in the reservation of their department.
    amounts = amounts_of()
    family = family_in(task.queue.policy_id, amounts)
    return task.pk in over_quota_tasks(live_attempts(Q(policy__in=family)), amounts)


def _risk(task: Task) -> Risk | None:
    if task.state not in ADMITTED_STATES or is_shown_alone(task):
        return None
    live = task.attempts.filter(state__in=LIVE_ATTEMPT_STATES).select_related("queue").first()
    return None if live is None else Risk.of(task, live, now=timezone.now())


def _preempted_at(history: TaskHistory) -> list[datetime]:
    return [
        attempt.ended_at
        for attempt in history.attempts
        if attempt.ended_at is not None and _was_preempted(attempt)
    ]


def _attempt_row(attempt: Attempt, names: ReaderNames, *, sees_placements: bool) -> AttemptRow:
    begun, end = attempt.started_at, attempt.ended_at
    has_ended = attempt.state in {AttemptState.FINISHED, AttemptState.LOST}
    ran = end - begun if end is not None and begun is not None else None
    # A node's name says which pool it is, as REST has it.
    sees_pool = attempt.pool_id in names.pools
    placements = tuple(
        PlacementView(
            node=member.node.name if sees_pool and member.node is not None else "",
            devices=_devices(member.devices),
            detail=member.detail,
            is_simulated=member.node is not None and member.node.is_simulated,
        )
        for member in (attempt.members.all() if sees_placements else ())
    )
    return AttemptRow(
        attempt,
        attempt_word(attempt),
        names.in_queue(attempt.queue_id).pool(attempt.pool_id),
        placements,
        ran,
        is_running=begun is not None and end is None and not has_ended,
    )


def attempt_word(attempt: Attempt) -> Word:
    """The state of the attempt; for a finished one, how it ended."""
    if attempt.state != AttemptState.FINISHED:
        return ATTEMPT_STATES[attempt.state]
    if _was_preempted(attempt):
        return PREEMPTED
    if attempt.stop_target and not attempt.is_preempted:
        return FAILED if attempt.stop_target == TaskState.FAILED else STOPPED
    return ATTEMPT_STATES[attempt.state] if attempt.exit_code == 0 else FAILED


def _was_preempted(attempt: Attempt) -> bool:
    """Preempted, and not finished by itself before a node was asked to stop it."""
    members = attempt.members.all()
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
