"""The list of people, and one person with permissions and current tasks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self
from urllib.parse import urlencode

from django.contrib.auth.models import Group
from django.db.models import Count, Exists, OuterRef, Prefetch, Q, QuerySet

from apps.access.selectors import queues_managed_by, queues_open_to, queues_visible_to
from apps.accounts.models import Credential, PersonStatus, User
from apps.accounts.selectors import (
    NEVER,
    STATUSES,
    groups_visible_to,
    is_admin,
    is_queue_admin,
    manages_people,
    people_managed_by,
    people_named,
    people_visible_to,
)
from apps.policies.models import Queue
from apps.tasks.lifecycle.states import ADMITTED_STATES, TaskState
from apps.tasks.models import Task
from apps.tasks.selectors.visibility import tasks_visible_to, without_hidden_queues

PAGE = 50
MOST_CHARS = 200
# Sort columns of the list, and the direction each begins with.
SORTS = {"name": "username", "email": "email", "added": "-date_joined", "active": "-last_active"}
MOST_SHOWN = 20
MOST_QUEUES = 100


@dataclass(frozen=True, slots=True)
class PersonFilter:
    """What the list shows. Unknown words fall back to the default."""

    word: str = ""
    status: str = ""
    group: int | None = None
    sort: str = "name"
    is_reversed: bool = False
    after: int | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """From the query of the page, such as `search=ada&sort=-added`."""
        status, sort = given.get("status", ""), given.get("sort", "")
        name = sort.removeprefix("-")
        return cls(
            word=given.get("search", "").replace("\0", "").strip()[:MOST_CHARS],
            status=status if status in PersonStatus.values else "",
            group=_number(given.get("group", "")),
            sort=name if name in SORTS else "name",
            is_reversed=sort.startswith("-") and name in SORTS,
            after=_number(given.get("after", "")),
        )

    def query(self) -> str:
        """The same as a query; what has its default is left out."""
        sort = ("-" if self.is_reversed else "") + self.sort
        values = {
            "search": self.word,
            "status": self.status,
            "group": str(self.group or ""),
            "sort": "" if sort == "name" else sort,
            "after": str(self.after or ""),
        }
        return urlencode({key: value for key, value in values.items() if value})

    @property
    def has_filter(self) -> bool:
        return bool(self.word or self.status or self.group)

    @property
    def column(self) -> str:
        """What Django sorts by."""
        column = SORTS[self.sort]
        if not self.is_reversed:
            return column
        return column[1:] if column.startswith("-") else f"-{column}"


@dataclass(frozen=True, slots=True)
class Heading:
    """The head of a column that sorts; `aria` is empty where it does not now."""

    query: str
    aria: str


@dataclass(frozen=True, slots=True)
class PersonRow:
    """A person; `last_active` is None for one who never signed in."""

    person: User
    groups: tuple[str, ...]
    last_active: datetime | None

    @property
    def first_groups(self) -> tuple[str, ...]:
        """As many as fit in a line, without `Users`, which has everybody."""
        return tuple(name for name in self.groups if name != "Users")[:2]

    @property
    def more_groups(self) -> int:
        return len([name for name in self.groups if name != "Users"]) - len(self.first_groups)


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """A page of the list; `count` is how many match on all pages, `older` the query of the next."""

    rows: tuple[PersonRow, ...]
    count: int
    older: str


def people_page(user: User, wanted: PersonFilter) -> PeoplePage:
    """One page, in a fixed number of queries."""
    rows = people_named(people_visible_to(user), wanted.word)
    if wanted.status:
        rows = rows.filter(STATUSES[PersonStatus(wanted.status)])
    if wanted.group is not None:
        rows = rows.filter(groups__in=groups_visible_to(user).filter(pk=wanted.group))
    count = rows.count()
    sign = "-" if wanted.column.startswith("-") else ""
    found = list(
        _after(rows, wanted)
        .order_by(wanted.column, f"{sign}pk")
        .prefetch_related(Prefetch("groups", queryset=groups_visible_to(user)))[: PAGE + 1]
    )
    older = replace(wanted, after=found[PAGE - 1].pk).query() if len(found) > PAGE else ""
    return PeoplePage(
        tuple(_row(person, person.groups.all()) for person in found[:PAGE]), count, older
    )


def headings(wanted: PersonFilter) -> dict[str, Heading]:
    """The heads of the list's columns."""
    found = {}
    for name, column in SORTS.items():
        is_on = wanted.sort == name
        turned = replace(
            wanted, sort=name, is_reversed=is_on and not wanted.is_reversed, after=None
        )
        falls = column.startswith("-") != (is_on and wanted.is_reversed)
        found[name] = Heading(
            turned.query(), "" if not is_on else "descending" if falls else "ascending"
        )
    return found


def inactive_with_waiting_tasks(user: User) -> list[tuple[User, int]]:
    """Deactivated people with waiting tasks that still need a decision, with their number."""
    if not manages_people(user):
        return []
    waiting = Task.objects.filter(owner=OuterRef("pk"), state=TaskState.QUEUED)
    people = people_managed_by(user).filter(
        Exists(waiting), is_active=False, keeps_waiting_tasks=False
    )
    counts = waiting_of([person.pk for person in people.order_by("username")[:MOST_SHOWN]])
    return [
        (person, counts[person.pk]) for person in people.filter(pk__in=counts).order_by("username")
    ]


def waiting_of(user_ids: list[int]) -> dict[int, int]:
    """How many tasks of each of these people wait."""
    rows = Task.objects.filter(owner__in=user_ids, state=TaskState.QUEUED)
    return dict(rows.order_by().values_list("owner").annotate(Count("pk")))


@dataclass(frozen=True, slots=True)
class QueuePermission:
    """What the person may do with a queue, in the words of the page."""

    queue: Queue
    words: str


@dataclass(frozen=True, slots=True)
class PersonFacts:
    """Everything of a person's page that is not a column of theirs."""

    row: PersonRow
    groups: tuple[Group, ...]
    credentials: tuple[Credential, ...]
    waiting: tuple[Task, ...]
    waiting_count: int
    running: tuple[Task, ...]
    running_count: int
    permissions: tuple[QueuePermission, ...]
    is_admin: bool
    is_queue_admin: bool


def person_facts(person: User, *, reader: User) -> PersonFacts:
    """What the page of a person shows to its reader, in a fixed number of queries."""
    seen = tasks_visible_to(reader).filter(owner=person)
    tasks = seen.select_related("queue").order_by("-pk")
    groups = tuple(groups_visible_to(reader).filter(user=person).order_by("name"))
    waiting = tasks.filter(state=TaskState.QUEUED)
    running = tasks.filter(state__in=ADMITTED_STATES)
    # Administrators of a tenant see no keys of people with permissions beyond the tenant.
    managed = people_managed_by(reader).filter(pk=person.pk)
    keys = Credential.objects.filter(user__in=managed.values("pk"), revoked_at__isnull=True)
    return PersonFacts(
        row=_row(person, groups),
        groups=groups,
        credentials=tuple(keys[:MOST_SHOWN]),
        waiting=tuple(without_hidden_queues(waiting[:MOST_SHOWN])),
        waiting_count=waiting.count(),
        running=tuple(without_hidden_queues(running[:MOST_SHOWN])),
        running_count=running.count(),
        permissions=tuple(_permissions(person, reader)),
        is_admin=is_admin(person),
        is_queue_admin=is_queue_admin(person),
    )


def _permissions(person: User, reader: User) -> list[QueuePermission]:
    if is_admin(person):
        return []
    words: dict[int, list[str]] = {}
    for word, queues in (
        ("see", queues_visible_to(person)),
        ("enqueue", queues_open_to(person)),
        ("manage", queues_managed_by(person)),
    ):
        for pk in queues.values_list("pk", flat=True):
            words.setdefault(pk, []).append(word)
    queues = queues_visible_to(reader).filter(pk__in=words).select_related("policy", "profile")
    return [
        QueuePermission(queue, ", ".join(words[queue.pk]))
        for queue in queues.order_by("name")[:MOST_QUEUES]
    ]


def _row(person: User, groups: Iterable[Group]) -> PersonRow:
    at = getattr(person, "last_active", NEVER)
    names = sorted(group.name for group in groups)
    return PersonRow(person, tuple(names), None if at == NEVER else at)


def _after(rows: QuerySet[User], wanted: PersonFilter) -> QuerySet[User]:
    """The rows after the last one of the page before; all rows where that one is gone."""
    column = wanted.column.removeprefix("-")
    last = rows.filter(pk=wanted.after).values_list(column, "pk").first() if wanted.after else None
    if last is None:
        return rows
    value, pk = last
    lookup = "lt" if wanted.column.startswith("-") else "gt"
    return rows.filter(
        Q(**{f"{column}__{lookup}": value}) | Q(**{column: value, f"pk__{lookup}": pk})
    )


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
