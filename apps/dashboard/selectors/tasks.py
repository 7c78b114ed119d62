"""The list of tasks, filtered as its form says, and one task with what its cards show."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self
from urllib.parse import parse_qs, urlencode
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.access.selectors import pools_visible_to
from apps.accounts.models import User
from apps.dashboard.selectors.current_tasks import running_by_quota
from apps.dashboard.selectors.pools import first_pools
from apps.policies.selectors import policy_family
from apps.tasks.lifecycle.states import (
    ADMITTED_STATES,
    ENDED_STATES,
    LIVE_ATTEMPT_STATES,
    TaskState,
)
from apps.tasks.models import Attempt, Task
from apps.tasks.selectors.visibility import (
    tasks_seen_with_queue,
    tasks_visible_to,
    without_hidden_queues,
)

# What the list's tabs mean.
VIEWS: dict[str, tuple[str, ...]] = {
    "active": (TaskState.QUEUED, *ADMITTED_STATES, TaskState.PAUSED, TaskState.REJECTED),
    "waiting": (TaskState.QUEUED,),
    "running": tuple(ADMITTED_STATES),
    "drafts": (TaskState.DRAFT,),
    "ended": tuple(ENDED_STATES),
    "all": tuple(TaskState.values),
}
# How running tasks count: within reservations, or over quota.
QUOTAS = ("reserved", "over")


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """What the list shows; also the key of its card. Unknown words fall back to the default."""

    view: str = "active"
    mine: bool = False
    queue: int | None = None
    policy: int | None = None
    profile: int | None = None
    pool: int | None = None
    quota: str = ""
    name: str = ""
    before: UUID | None = None
    # With `before`, where ended tasks are listed: when that one ended.
    before_at: datetime | None = None

    @classmethod
    def parse(cls, query: str) -> Self:
        """From a query string such as `view=running&queue=3`."""
        given = {key: values[-1] for key, values in parse_qs(query).items()}
        view, quota = given.get("view", "active"), given.get("quota", "")
        return cls(
            view=view if view in VIEWS else "active",
            mine=given.get("mine") == "1",
            queue=_number(given.get("queue")),
            policy=_number(given.get("policy")),
            profile=_number(given.get("profile")),
            pool=_number(given.get("pool")),
            quota=quota if quota in QUOTAS else "",
            name=given.get("name", "").strip()[:200],
            before=_uuid(given.get("before")),
            before_at=_moment(given.get("before_at")),
        )

    def query(self, **changes: str) -> str:
        """As a query string, with `changes`; what has its default is left out."""
        values = {
            "view": "" if self.view == "active" else self.view,
            "mine": "1" if self.mine else "",
            "queue": str(self.queue or ""),
            "policy": str(self.policy or ""),
            "profile": str(self.profile or ""),
            "pool": str(self.pool or ""),
            "quota": self.quota,
            "name": self.name,
            "before": str(self.before or ""),
            "before_at": self.before_at.isoformat() if self.before_at else "",
        }
        values.update(changes)
        return urlencode({key: value for key, value in values.items() if value})

    def older(self, last: Task) -> str:
        """The query string of what comes after `last`."""
        ended = last.ended_at if self.view == "ended" else None
        return self.query(before=str(last.pk), before_at=ended.isoformat() if ended else "")


def tasks_matching(user: User, wanted: TaskFilter) -> QuerySet[Task]:
    """The visible tasks that match, newest first; ended ones by when they ended."""
    # A filter by the place of tasks would say where those are that a rule shows alone.
    is_by_place = any((wanted.queue, wanted.policy, wanted.profile, wanted.pool, wanted.quota))
    seen = tasks_seen_with_queue(user) if is_by_place else tasks_visible_to(user)
    tasks = seen.filter(state__in=VIEWS[wanted.view])
    if wanted.mine:
        tasks = tasks.filter(owner=user)
    if wanted.queue is not None:
        tasks = tasks.filter(queue=wanted.queue)
    if wanted.policy is not None:
        # With everything below it, as in its figures.
        tasks = tasks.filter(queue__policy__in=policy_family(wanted.policy))
    if wanted.profile is not None:
        tasks = tasks.filter(queue__profile=wanted.profile)
    if wanted.pool is not None:
        tasks = tasks.filter(_in_pool(user, wanted.pool))
    if wanted.quota:
        running = running_by_quota(user, wanted.policy)
        tasks = tasks.filter(
            pk__in=running.over_quota if wanted.quota == "over" else running.reserved
        )
    if wanted.name:
        tasks = tasks.filter(name__icontains=wanted.name)
    tasks = tasks.select_related("owner", "queue__policy", "queue__profile", "task_group")
    return _ended(tasks, wanted) if wanted.view == "ended" else _created(tasks, wanted)


def _in_pool(user: User, pool: int) -> Q:
    """Where a task runs or ran; a waiting one counts in the first pool of its routing order."""
    if not pools_visible_to(user).filter(pk=pool).exists():
        return Q(pk__in=())
    attempts = Attempt.objects.filter(pool=pool)
    live = attempts.filter(state__in=LIVE_ATTEMPT_STATES)
    profiles = [profile for profile, first in first_pools().items() if first == pool]
    return (
        Q(state=TaskState.QUEUED, queue__profile__in=profiles)
        | Q(state__in=ADMITTED_STATES, pk__in=live.values("task"))
        | Q(state__in=ENDED_STATES, pk__in=attempts.values("task"))
    )


def _created(tasks: QuerySet[Task], wanted: TaskFilter) -> QuerySet[Task]:
    if wanted.before is not None:
        tasks = tasks.filter(pk__lt=wanted.before)
    return tasks.order_by("-pk")


def _ended(tasks: QuerySet[Task], wanted: TaskFilter) -> QuerySet[Task]:
    # Said twice so that the index of ended tasks serves it.
    tasks = tasks.filter(ended_at__isnull=False)
    if wanted.before is not None and wanted.before_at is not None:
        at = wanted.before_at
        tasks = tasks.filter(
            Q(ended_at__lt=at) | Q(ended_at=at, pk__lt=wanted.before), ended_at__lte=at
        )
    return tasks.order_by("-ended_at", "-pk")


def visible_task(user: User, key: str) -> Task | None:
    """The task with this id and what its cards show; None where the person may not see it."""
    pk = _uuid(key)
    if pk is None:
        return None
    tasks = tasks_visible_to(user).select_related(
        "owner", "task_group", "queue__policy__group", "queue__profile"
    )
    return next(iter(without_hidden_queues(tasks.filter(pk=pk))), None)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 12 else None


def _moment(text: str | None) -> datetime | None:
    try:
        at = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
