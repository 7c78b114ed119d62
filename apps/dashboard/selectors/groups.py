"""The list of groups, and the members of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib.auth.models import Group
from django.db.models import Count, Q

from apps.accounts.models import User
from apps.accounts.selectors import accounts_visible_to, groups_visible_to, people_named
from apps.configuration.group_usage import GroupCounts, group_counts
from apps.policies.models import Policy, Queue
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task

PAGE = 100
# As many people as a search offers at once.
MOST_FOUND = 50


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group; `people` counts who is in it, service accounts included."""

    group: Group
    description: str
    is_built_in: bool
    people: int
    counts: GroupCounts


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Rows of a list, and the query of the next page."""

    rows: tuple[GroupRow, ...]
    older: str


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """People of a group; `count` on all pages."""

    rows: tuple[User, ...]
    count: int
    older: str


def groups_page(user: User, *, word: str, after: str) -> GroupPage:
    """Groups by name, in a fixed number of queries."""
    rows = groups_visible_to(user).select_related("info").annotate(people=Count("user"))
    rows = rows.filter(name__icontains=word) if word else rows
    found = list(rows.filter(name__gt=after).order_by("name")[: PAGE + 1])
    counts = group_counts((group.pk for group in found[:PAGE]), reader=user)
    older = _next(search=word, after=found[PAGE - 1].name) if len(found) > PAGE else ""
    return GroupPage(tuple(group_row(group, counts) for group in found[:PAGE]), older)


def group_row(group: Group, counts: Mapping[int, GroupCounts]) -> GroupRow:
    """A group that was read with its `info` and how many `people` it has."""
    info = getattr(group, "info", None)
    return GroupRow(
        group,
        info.description if info is not None else "",
        info is not None and info.is_built_in,
        getattr(group, "people", 0),
        counts[group.pk],
    )


def group_members_page(group: Group, *, word: str, after: str) -> GroupMembers:
    """People of the group by user name."""
    rows = people_named(User.objects.filter(groups=group), word)
    found = list(rows.filter(username__gt=after).order_by("username")[: PAGE + 1])
    older = _next(search=word, after=found[PAGE - 1].username) if len(found) > PAGE else ""
    return GroupMembers(tuple(found[:PAGE]), rows.count(), older)


def people_to_add(user: User, group: Group, word: str) -> list[User]:
    """Matching people outside the group that `user` sees, one more than are offered."""
    if not word:
        return []
    visible = accounts_visible_to(user).filter(is_active=True)
    rows = people_named(visible, word).exclude(groups=group)
    return list(rows.order_by("username")[: MOST_FOUND + 1])


@dataclass(frozen=True, slots=True)
class LeavePreview:
    """Waiting tasks of people in the queues of the policies of a group that they leave."""

    tasks: int
    people: int
    policies: tuple[str, ...]


def leave_preview(group: Group, user_ids: list[int]) -> LeavePreview:
    """What these people have waiting where they come by this group."""
    policies = Policy.objects.filter(group=group, removed_at__isnull=True)
    queues = Queue.objects.filter(policy__in=policies, removed_at__isnull=True)
    waiting = Task.objects.filter(Q(queue__in=queues), owner__in=user_ids, state=TaskState.QUEUED)
    owners = list(waiting.order_by().values_list("owner").annotate(Count("pk")))
    names = policies.order_by("name").values_list("name", flat=True)
    return LeavePreview(sum(count for _, count in owners), len(owners), tuple(names))


def _next(**values: str) -> str:
    return urlencode({key: value for key, value in values.items() if value})
