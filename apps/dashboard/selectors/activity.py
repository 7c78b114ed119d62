"""What happened last, and who holds the most now, as far as a user sees it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Max, Q

from apps.access.selectors import queues_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.events.models import Event
from apps.tasks.lifecycle.states import ADMITTED_STATES
from apps.tasks.models import Task
from apps.tasks.selectors.visibility import tasks_seen_with_queue
from apps.usage.selectors.current_usage import live_attempts

# As many of the latest events are looked through: those of one user may be rare.
LOOKED_THROUGH = 5_000
# What every task goes through is in its timeline.
TASK_KINDS = (
    "task.running",
    "task.completed",
    "task.failed",
    "task.aborted",
    "task.preempted",
    "task.rejected",
    "task.lost",
)
# Noise of administrators' pages.
_LEFT_OUT = ("draft.", "vault.", "credential.", "notice_")


@dataclass(frozen=True, slots=True)
class ActivityEvent:
    """An event with what it is about; `task` is None where that is no task."""

    event: Event
    task: Task | None


@dataclass(frozen=True, slots=True)
class UserUsage:
    """Thousandths of GPU that a user's tasks hold now, and how many tasks these are."""

    owner: User
    gpu: int
    tasks: int


def latest_events(user: User, most: int) -> list[ActivityEvent]:
    """The newest first, in four queries: of tasks that the user sees; administrators see all."""
    last = Event.objects.aggregate(last=Max("pk"))["last"] or 0
    recent = Event.objects.filter(pk__gt=last - LOOKED_THROUGH).select_related("actor")
    of_tasks = Q(object_type="task", kind__in=TASK_KINDS)
    if not is_admin(user):
        queues = queues_visible_to(user).order_by().values_list("pk", flat=True)
        recent = recent.filter(of_tasks, queue_id__in=list(queues))
    else:
        others = ~Q(object_type="task")
        for beginning in _LEFT_OUT:
            others &= ~Q(kind__startswith=beginning)
        recent = recent.filter(of_tasks | others)
    # Some may be of tasks that this user does not see, or that are removed.
    events = list(recent.order_by("-pk")[: most * 4])
    tasks_by_id = _tasks(user, events)
    found = []
    for event in events:
        task = tasks_by_id.get(event.object_id)
        if task is not None or event.object_type != "task":
            found.append(ActivityEvent(event, task))
    return found[:most]


def _tasks(user: User, events: Iterable[Event]) -> dict[str, Task]:
    ids = {UUID(one.object_id) for one in events if one.object_type == "task"}
    rows = tasks_seen_with_queue(user).filter(pk__in=ids).select_related("queue__policy")
    return {str(task.pk): task for task in rows.only("name", "exit_code", "queue__policy__name")}


def top_users(user: User, most: int) -> list[UserUsage]:
    """Whose tasks, of those that the user sees, hold the most GPUs now; three queries."""
    where = None
    if not is_admin(user):
        seen = tasks_seen_with_queue(user).filter(state__in=ADMITTED_STATES)
        where = Q(task__in=seen.order_by().values("pk"))
    gpu: Counter[int] = Counter()
    tasks: Counter[int] = Counter()
    for one in live_attempts(where):
        gpu[one.owner_id] += one.gpu
        tasks[one.owner_id] += 1
    ranked = sorted(gpu, key=lambda owner: (-gpu[owner], -tasks[owner], owner))[:most]
    people = User.objects.in_bulk(ranked)
    return [UserUsage(people[pk], gpu[pk], tasks[pk]) for pk in ranked if pk in people]
