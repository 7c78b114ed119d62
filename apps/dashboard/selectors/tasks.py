"""The list of tasks, filtered as its form says, and one task with what its cards show."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Self
from urllib.parse import parse_qs, urlencode
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.access.selectors import pools_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import time_zone_of
from apps.core.ids import first_uuid7
from apps.dashboard.selectors.current_tasks import running_by_quota
from apps.dashboard.selectors.pools import first_pools
from apps.nodes.selectors import nodes_visible_to
from apps.policies.selectors import policy_family
from apps.tasks.lifecycle.states import (
    ADMITTED_STATES,
    ENDED_STATES,
    LIVE_ATTEMPT_STATES,
    TaskState,
)
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.selectors.visibility import (
    in_states,
    tasks_seen_with_queue,
    tasks_tagged,
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
# What stands above what in a view; each part is newest first.
PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "active": (
        tuple(ADMITTED_STATES),
        (TaskState.QUEUED,),
        (TaskState.PAUSED, TaskState.REJECTED),
    ),
}
SORTS = ("newest", "oldest")
MOST_CHARS = 200
# So many tasks are selected at once.
MOST_SELECTED = 200
# Tabs count up to here.
MOST_COUNTED = 1000
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
    owner: str = ""
    tag: str = ""
    node: int | None = None
    # Days in the reader's time zone: of the end where ended tasks are listed, else of creation.
    since: date | None = None
    until: date | None = None
    sort: str = "newest"
    # The elements of this array, which the list leaves out otherwise.
    array: UUID | None = None
    before: UUID | None = None
    # With `before`, where ended tasks are listed: when that one ended.
    before_at: datetime | None = None
    # With `before`: in which of the parts of the view that one is.
    part: int = 0

    @classmethod
    def parse(cls, query: str) -> Self:
        """From a query string such as `view=running&queue=3`."""
        given = {key: values[-1] for key, values in parse_qs(query).items()}
        view, quota = given.get("view", "active"), given.get("quota", "")
        before, part = _uuid(given.get("before")), _number(given.get("part")) or 0
        return cls(
            view=view if view in VIEWS else "active",
            mine=given.get("mine") == "1",
            queue=_number(given.get("queue")),
            policy=_number(given.get("policy")),
            profile=_number(given.get("profile")),
            pool=_number(given.get("pool")),
            quota=quota if quota in QUOTAS else "",
            name=_text(given.get("name")),
            owner=_text(given.get("owner")),
            tag=_text(given.get("tag")),
            node=_number(given.get("node")),
            since=_day(given.get("since")),
            until=_day(given.get("until")),
            sort="oldest" if given.get("sort") == "oldest" else "newest",
            array=_uuid(given.get("array")),
            before=before,
            before_at=_moment(given.get("before_at")),
            part=part if before and part < len(PARTS.get(view, ((),))) else 0,
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
            "owner": self.owner,
            "tag": self.tag,
            "node": str(self.node or ""),
            "since": self.since.isoformat() if self.since else "",
            "until": self.until.isoformat() if self.until else "",
            "sort": "" if self.sort == "newest" else self.sort,
            "array": str(self.array or ""),
            "before": str(self.before or ""),
            "before_at": self.before_at.isoformat() if self.before_at else "",
            "part": str(self.part or ""),
        }
        values.update(changes)
        return urlencode({key: value for key, value in values.items() if value})

    def older(self, last: Task, part: int) -> str:
        """The query string of what comes after `last` of this part."""
        ended = last.ended_at if self.view == "ended" else None
        at = ended.isoformat() if ended else ""
        return self.query(before=str(last.pk), before_at=at, part=str(part or ""))

    def first_page(self, **changes: str) -> str:
        """The query string of the beginning of the list, with `changes`."""
        return self.query(**{"before": "", "before_at": "", "part": "", **changes})

    @property
    def has_more(self) -> bool:
        """Whether one of the rarer filters is set."""
        return bool(self.owner or self.tag or self.node or self.since or self.until)


def tasks_page(user: User, wanted: TaskFilter, most: int) -> tuple[list[Task], str]:
    """The first `most` tasks that match, and the query string of the others, if there are any.

    Running tasks stand above waiting ones, where a view has both: each part is read on its own.
    """
    tasks = tasks_matching(user, wanted).filter(_in_days(user, wanted, wanted.view))
    tasks = tasks.select_related("owner", "queue__policy", "queue__profile", "task_group")
    parts = PARTS.get(wanted.view, (VIEWS[wanted.view],))
    found: list[tuple[int, Task]] = []
    for part in range(wanted.part, len(parts)):
        rows = _ordered(
            tasks.filter(_of_part(wanted.view, parts[part])), wanted, is_first=part == wanted.part
        )
        found += [(part, task) for task in rows[: most + 1 - len(found)]]
        if len(found) > most:
            break
    older = ""
    if len(found) > most:
        part, last = found[most - 1]
        older = wanted.older(last, part)
    return without_hidden_queues(task for _, task in found[:most]), older


def task_counts(user: User, wanted: TaskFilter) -> dict[str, int]:
    """How many tasks of each view match; `MOST_COUNTED + 1` stands for any more."""
    tasks = tasks_matching(user, wanted).order_by()
    return {
        view: tasks.filter(_in_days(user, wanted, view), _of_part(view, states))[
            : MOST_COUNTED + 1
        ].count()
        for view, states in VIEWS.items()
    }


def _of_part(view: str, states: Collection[str]) -> Q:
    """An array runs with its elements; where waiting tasks stand below, it waits there."""
    return in_states(states) if view == "running" else Q(state__in=states)


def tasks_matching(user: User, wanted: TaskFilter) -> QuerySet[Task]:
    """The visible tasks that match all but the view and the days."""
    # A filter by the place of tasks would say where those are that a rule shows alone.
    places = (wanted.queue, wanted.policy, wanted.profile, wanted.pool, wanted.quota, wanted.node)
    tasks = tasks_seen_with_queue(user) if any(places) else tasks_visible_to(user)
    given = {
        "owner": user.pk if wanted.mine else None,
        "owner__username": wanted.owner,
        "queue": wanted.queue,
        "queue__profile": wanted.profile,
        # With everything below it, as in its figures.
        "queue__policy__in": policy_family(wanted.policy) if wanted.policy is not None else None,
        "name__icontains": wanted.name,
    }
    tasks = tasks.filter(_at_place(user, wanted), **_present(given))
    # Only elements of an array are somewhere; any other list has a row for the whole array.
    if wanted.array is not None or not (wanted.pool or wanted.quota or wanted.node):
        tasks = tasks.filter(array=wanted.array)
    return tasks_tagged(tasks, wanted.tag) if wanted.tag else tasks


def _present(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None and value != ""}


def _at_place(user: User, wanted: TaskFilter) -> Q:
    place = Q() if wanted.pool is None else _in_pool(user, wanted.pool)
    if wanted.node is not None:
        place &= _on_node(user, wanted.node)
    if wanted.quota:
        running = running_by_quota(user, wanted.policy)
        place &= Q(pk__in=running.over_quota if wanted.quota == "over" else running.reserved)
    return place


def _on_node(user: User, node: int) -> Q:
    """Where a member of a task is or was on the node; for those who see nodes."""
    if not nodes_visible_to(user).filter(pk=node).exists():
        return Q(pk__in=())
    return Q(pk__in=Member.objects.filter(node=node).values("attempt__task"))


def _in_days(user: User, wanted: TaskFilter, view: str) -> Q:
    zone = time_zone_of(user)
    within = Q()
    if wanted.since is not None:
        within &= _from_moment(datetime.combine(wanted.since, time(), zone), view)
    if wanted.until is not None:
        end = datetime.combine(wanted.until + timedelta(days=1), time(), zone)
        within &= ~_from_moment(end, view)
    return within


def _from_moment(at: datetime, view: str) -> Q:
    if view == "ended":
        return Q(ended_at__gte=at)
    # Ids are in the order of creation, and so is their index.
    return Q(pk__gte=first_uuid7(int(at.timestamp() * 1000)))


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


def _ordered(tasks: QuerySet[Task], wanted: TaskFilter, *, is_first: bool) -> QuerySet[Task]:
    """In the order of the list, from where the page begins in the first part that is read."""
    before, at = (wanted.before, wanted.before_at) if is_first else (None, None)
    is_oldest = wanted.sort == "oldest"
    sign, than = ("", "gt") if is_oldest else ("-", "lt")
    if wanted.view != "ended":
        if before is not None:
            tasks = tasks.filter(**{f"pk__{than}": before})
        return tasks.order_by(f"{sign}pk")
    # Said twice so that the index of ended tasks serves it.
    tasks = tasks.filter(ended_at__isnull=False)
    if before is not None and at is not None:
        tasks = tasks.filter(
            Q(**{f"ended_at__{than}": at}) | Q(**{"ended_at": at, f"pk__{than}": before}),
            **{f"ended_at__{than}e": at},
        )
    return tasks.order_by(f"{sign}ended_at", f"{sign}pk")


def visible_task(user: User, key: str) -> Task | None:
    """The task with this id and what its cards show; None where the person may not see it."""
    pk = _uuid(key)
    if pk is None:
        return None
    tasks = tasks_visible_to(user).select_related(
        "owner", "task_group", "queue__policy__group", "queue__profile"
    )
    return next(iter(without_hidden_queues(tasks.filter(pk=pk))), None)


def visible_tasks(user: User, keys: Iterable[str]) -> list[Task]:
    """The tasks with these ids that the person may see, in their order; others are left out."""
    wanted = [pk for key in keys if (pk := _uuid(key)) is not None][:MOST_SELECTED]
    rows = {task.pk: task for task in tasks_visible_to(user).filter(pk__in=wanted)}
    return [rows[pk] for pk in dict.fromkeys(wanted) if pk in rows]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 12 else None


def _text(text: str | None) -> str:
    return (text or "").replace("\0", "").strip()[:MOST_CHARS]


def _day(text: str | None) -> date | None:
    try:
        day = date.fromisoformat(text) if text else None
    except ValueError:
        return None
    # Others are in no time zone's calendar, or before the first id.
    return day if day is not None and 1970 < day.year < 9999 else None


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
