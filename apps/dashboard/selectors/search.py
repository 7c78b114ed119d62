"""What the search of the navigation finds: objects, pages, actions, and answers to questions."""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlencode

from django.db.models import Model, Q, QuerySet
from django.urls import reverse

from apps.access.selectors import policies_visible_to, pools_visible_to, queues_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import is_admin, people_named, people_visible_to
from apps.configuration.access_explanation import (
    ObjectKind,
    objects_visible_to,
    people_explainable_to,
)
from apps.dashboard.cards.words import TASK_STATES
from apps.dashboard.selectors.search_words import (
    MOST_CHARS,
    Question,
    fit,
    is_match,
    parts_of,
    question_of,
    uuid_range,
)
from apps.nodes.selectors import nodes_visible_to
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task
from apps.tasks.selectors.visibility import tasks_visible_to

# A search reads so many of the newest tasks of everybody, and of the user's own; the list of tasks,
# to which the last entry leads, reads all.
RECENT_TASKS = 2000
# So many rows of another kind are compared with the words.
MOST_ROWS = 200
# What a group shows.
MOST_HITS = 6
# Without what tasks run, which can be long.
_OWNER = ("owner__username", "owner__first_name", "owner__last_name")
_TASK_COLUMNS = ("name", "state", "ended_at", *_OWNER)


@dataclass(frozen=True, slots=True)
class Hit:
    """One entry; `fit` is smaller where its name fits the words better."""

    label: str
    href: str
    icon: str
    detail: str = ""
    fit: int = 0


@dataclass(frozen=True, slots=True)
class HitGroup:
    """The entries of one kind, best first."""

    title: str
    hits: tuple[Hit, ...]


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The groups, that of the best entry first; `all_tasks` is the list with this name."""

    words: str
    groups: tuple[HitGroup, ...]
    all_tasks: str

    @property
    def count(self) -> int:
        return sum(len(group.hits) for group in self.groups)


def search_results(user: User, text: str, pages: Iterable[Hit]) -> SearchResults:
    """What the user may see and do that fits the text, in a fixed number of queries.

    Args:
        pages: the pages and actions that the user has.
    """
    words = text.replace("\0", "").strip()[:MOST_CHARS]
    question = question_of(words)
    parts = parts_of(question.subject if question else words)
    groups = [_answers(user, question, parts)] if question else _found(user, parts, pages)
    filled = [group for group in groups if group.hits]
    filled.sort(key=lambda group: group.hits[0].fit)
    listed = urlencode({"view": "all", "name": words})
    all_tasks = f"{reverse('task_list')}?{listed}" if parts and not question else ""
    return SearchResults(words, tuple(filled), all_tasks)


def _found(user: User, parts: tuple[str, ...], pages: Iterable[Hit]) -> list[HitGroup]:
    known = [_with_fit(page, parts) for page in pages if is_match(page.label, parts)]
    if not parts:
        return [_group("Pages and actions", known, most=len(known))]
    return [
        _group("Tasks", _tasks(user, parts)),
        _group("Queues", _named(queues_visible_to(user), parts, "queue_detail", "list-ordered")),
        _group("Policies", _named(policies_visible_to(user), parts, "policy_detail", "users")),
        _group("Pools", _pools(user, parts)),
        _group("Nodes", _named(nodes_visible_to(user), parts, "node_detail", "server")),
        _group("People", [_person_page(one, parts) for one in _people(user, parts)]),
        _group("Pages and actions", known),
    ]


def _group(title: str, hits: Iterable[Hit], *, most: int = MOST_HITS) -> HitGroup:
    """The order in which the hits were found decides between equal ones."""
    return HitGroup(title, tuple(sorted(hits, key=lambda hit: hit.fit)[:most]))


def _with_fit(hit: Hit, parts: tuple[str, ...]) -> Hit:
    return Hit(hit.label, hit.href, hit.icon, hit.detail, fit(hit.label, parts))


def _matching_tasks(user: User, parts: tuple[str, ...]) -> list[Task]:
    """Tasks by the beginning of their id, and recent ones by name; the newest first.

    Each query reads one range of an index: a condition that joins them reads all tasks.
    """
    newest = Task.objects.order_by("-pk")
    wanted = [_named_since(newest, parts), _named_since(newest.filter(owner=user), parts)]
    if len(parts) == 1 and (by_id := uuid_range(parts[0])) is not None:
        wanted.append(newest.filter(pk__range=by_id))
    ids = {pk for rows in wanted for pk in rows.values_list("pk", flat=True)[:RECENT_TASKS]}
    visible = tasks_visible_to(user).filter(pk__in=ids).select_related("owner")
    return list(visible.only(*_TASK_COLUMNS).order_by("-pk"))


def _named_since(rows: QuerySet[Task], parts: tuple[str, ...]) -> QuerySet[Task]:
    """Those of the newest rows whose names contain all parts."""
    oldest = rows.values_list("pk", flat=True)[RECENT_TASKS - 1 : RECENT_TASKS].first()
    recent = rows if oldest is None else rows.filter(pk__gte=oldest)
    return recent.filter(_contains("name", parts))


def _tasks(user: User, parts: tuple[str, ...]) -> list[Hit]:
    found = _matching_tasks(user, parts)
    # Of equal fits those that have not ended, then the user's own, then the newest.
    found.sort(key=lambda task: (task.ended_at is not None, task.owner_id != user.pk))
    hits = sorted(((_task_fit(task, parts), task) for task in found), key=lambda one: one[0])
    return [_task_page(task, rank) for rank, task in hits[:MOST_HITS]]


def _task_fit(task: Task, parts: tuple[str, ...]) -> int:
    return fit(task.name, parts) if is_match(task.name, parts) else 0


def _task_page(task: Task, rank: int, *, label: str = "") -> Hit:
    word, page = TASK_STATES[task.state], reverse("task_detail", args=[task.pk])
    icon = "circle-help" if label else word.icon
    return Hit(label or task.name, page, icon, f"{word.text}, {task.owner}", rank)


def _named(
    rows: QuerySet[Model], parts: tuple[str, ...], page: str, icon: str, *, has_page: bool = True
) -> list[Hit]:
    found = rows.filter(_contains("name", parts)).order_by("name", "pk")
    return [
        Hit(name, reverse(page, args=[pk] if has_page else []), icon, "", fit(name, parts))
        for pk, name in found.values_list("pk", "name")[:MOST_ROWS]
    ]


def _pools(user: User, parts: tuple[str, ...]) -> list[Hit]:
    """Pools have pages of their own for administrators; others see them on the board."""
    rows, has_page = pools_visible_to(user), is_admin(user)
    page = "pool_usage" if has_page else "resources"
    return _named(rows, parts, page, "server", has_page=has_page)


def _people(user: User, parts: tuple[str, ...]) -> list[User]:
    rows = people_named(people_visible_to(user), " ".join(parts))
    return list(rows.order_by("username")[:MOST_ROWS])


def _person_page(person: User, parts: tuple[str, ...]) -> Hit:
    detail = "" if str(person) == person.username else person.username
    rank = min(fit(person.username, parts), fit(str(person), parts))
    return Hit(str(person), reverse("person_detail", args=[person.pk]), "user", detail, rank)


def _answers(user: User, question: Question, parts: tuple[str, ...]) -> HitGroup:
    """Where RPM answers the question: the reason of a task, or the explanation of a permission."""
    if question.is_about_task:
        return _group("Answers", _why_tasks_wait(user, parts))
    return _group("Answers", _explanations(user, question, parts))


def _why_tasks_wait(user: User, parts: tuple[str, ...]) -> list[Hit]:
    found = _matching_tasks(user, parts) if parts else []
    return [
        _task_page(task, _task_fit(task, parts), label=f"Why {task.name} waits")
        for task in found
        if task.state == TaskState.QUEUED
    ]


def _explanations(user: User, question: Question, parts: tuple[str, ...]) -> list[Hit]:
    people = people_explainable_to(user).order_by("username")
    if question.is_about_reader:
        people = people.filter(pk=user.pk)
    else:
        people = people_named(people, " ".join(parts))
    kind = _kind_of(user, question.thing)
    page = reverse("access_explain")
    on = {"kind": kind, "object": question.thing} if kind else {}
    what = f" on {question.thing}" if kind else ""
    return [
        Hit(
            f"What {person.username} can see and do{what}",
            f"{page}?{urlencode({'user': person.username, **on})}",
            "circle-help",
            "Explain permissions",
            fit(person.username, parts),
        )
        for person in people[:MOST_HITS]
    ]


# Kinds whose objects people call by name, the likeliest first.
_ASKED_BY_NAME = (
    ObjectKind.QUEUE,
    ObjectKind.POLICY,
    ObjectKind.POOL,
    ObjectKind.PROFILE,
    ObjectKind.TASK,
)


def _kind_of(user: User, thing: str) -> str:
    """The kind of the first visible object with this name; empty where there is none."""
    if not thing:
        return ""
    for kind in _ASKED_BY_NAME:
        if objects_visible_to(user, kind).filter(name=thing).exists():
            return kind.value
    return ""


def _contains(column: str, parts: tuple[str, ...]) -> Q:
    wanted = Q()
    for part in parts:
        wanted &= Q(**{f"{column}__icontains": part})
    return wanted
