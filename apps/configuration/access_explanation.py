"""What a user can see and do with one object, and why."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import QuerySet

from apps.access.isolation import subjects_hidden_from, users_isolated_from
from apps.access.levels import EXCEED, RuleKind, resource_of
from apps.access.permissions import may, permission_sources
from apps.access.rules.delegation import people_nameable_by
from apps.access.rules.rule import subject_of
from apps.access.selectors import (
    policies_managed_by,
    policies_visible_to,
    pools_visible_to,
    profiles_visible_to,
    queues_managed_by,
    queues_visible_to,
)
from apps.access.source_kind import PermissionSource
from apps.access.vaults import vaults_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import is_admin, tenants_administered_by
from apps.core.errors import NotFound
from apps.nodes.selectors import nodes_visible_to, volumes_visible_to
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task
from apps.tasks.permissions import LOG, QUEUE
from apps.tasks.selectors.delegation import ALIVE, can_act_for
from apps.tasks.selectors.visibility import is_shown_alone, tasks_visible_to


class ObjectKind(models.TextChoices):
    """The kinds of objects that can be explained."""

    POLICY = "policy", "Policy"
    QUEUE = "queue", "Queue"
    TASK = "task", "Task"
    POOL = "pool", "Pool"
    PROFILE = "profile", "Profile"
    VAULT = "vault", "Vault"
    NODE = "node", "Node"
    VOLUME = "volume", "Volume"


class PermissionName(models.TextChoices):
    """What a user may do with an object."""

    SEE = "see", "See it"
    ENQUEUE = "enqueue", "Enqueue tasks"
    MANAGE = "manage", "Manage it"
    EXCEED = "exceed", "Exceed its limit"
    CONTENT = "content", "Read its command and environment"
    LOG = "log", "Read its log"
    ACT = "act", "Act for its owner"
    READ = "read", "Read its text"
    CHANGE = "change", "Change its text"
    MOUNT = "mount", "Mount it"
    WRITE = "write", "Write to it"


@dataclass(frozen=True, slots=True)
class PermissionAnswer:
    """Whether the user holds a permission, from which sources, and what denies it."""

    permission: PermissionName
    is_held: bool
    reasons: tuple[PermissionSource, ...]

    @property
    def sources(self) -> tuple[PermissionSource, ...]:
        return tuple(one for one in self.reasons if not one.is_denial)


@dataclass(frozen=True, slots=True)
class AccessExplanation:
    """The permissions of one person on one object."""

    person: User
    thing: ObjectKind
    object_id: str
    name: str
    answers: tuple[PermissionAnswer, ...]


# Name of a permission, whether it is held, and why.
_HeldPermission = tuple[PermissionName, bool, Iterable[PermissionSource]]


def explanation(
    viewer: User, *, person: User, thing: ObjectKind, object_id: str
) -> AccessExplanation:
    """What the person can see and do with the object, each permission with its sources.

    Administrators ask about everybody and everything; others about themselves and what they see,
    and about the people of their groups where they manage the object.

    Raises:
        NotFound: there is no such object or person that the viewer may ask about.
    """
    row = _visible_row(viewer, thing, object_id)
    if row is None or not _may_ask(viewer, person, thing, row):
        raise NotFound("There is no such object, or you may not see it.")
    if person.is_active:
        found = list(_ANSWERS[thing](person, row))
    else:
        away = [PermissionSource("deactivated", is_denial=True)]
        found = [(permission, False, away) for permission in VERBS[thing]]
    answers = [
        PermissionAnswer(permission, is_held, tuple(why)) for permission, is_held, why in found
    ]
    if is_shown_alone(row):
        # Which sources others have, and which the viewer lacks, would name queue and policy.
        answers = [_of_task_alone(one) for one in answers]
    visible = tuple(_without_other_tenants(viewer, answers))
    return AccessExplanation(person, thing, str(row.pk), str(row.name), visible)


def _of_task_alone(answer: PermissionAnswer) -> PermissionAnswer:
    """The answer without sources that are not on the task itself."""
    known = [one for one in answer.reasons if one.on[0] in {"", RuleKind.TASK.value}]
    nothing = PermissionSource("nothing", is_denial=True)
    return replace(answer, reasons=tuple(known) or (nothing,))


def people_explainable_to(viewer: User) -> QuerySet[User]:
    """Everybody for administrators, deactivated people too; else the viewer and their groups."""
    if is_admin(viewer):
        return User.objects.filter(removed_at__isnull=True)
    return people_nameable_by(viewer) | User.objects.filter(pk=viewer.pk)


def objects_visible_to(viewer: User, thing: ObjectKind) -> QuerySet[Any]:
    """The objects of a kind that the viewer sees at all."""
    return _VISIBLE[thing](viewer)


def _visible_row(viewer: User, thing: ObjectKind, object_id: str) -> Any:
    rows = objects_visible_to(viewer, thing)
    try:
        pk = rows.model._meta.pk.to_python(object_id)
    except ValidationError:
        return None
    return None if isinstance(pk, int) and not 0 < pk < 2**63 else rows.filter(pk=pk).first()


def _may_ask(viewer: User, person: User, thing: ObjectKind, row: Any) -> bool:
    if is_admin(viewer) or person.pk == viewer.pk:
        return True
    if not people_nameable_by(viewer).filter(pk=person.pk).exists():
        return False
    if thing is ObjectKind.POLICY:
        return policies_managed_by(viewer).filter(pk=row.pk).exists()
    queue = {ObjectKind.QUEUE: row.pk, ObjectKind.TASK: getattr(row, "queue_id", None)}.get(thing)
    return queue is not None and queues_managed_by(viewer).filter(pk=queue).exists()


def _without_other_tenants(
    viewer: User, answers: Sequence[PermissionAnswer]
) -> Iterator[PermissionAnswer]:
    """The answers without names of other tenants than the viewer's: who made rules, and groups."""
    every = [source for answer in answers for source in answer.reasons]
    found = users_isolated_from(viewer).filter(username__in={one.by for one in every})
    outsiders = set(found.values_list("username", flat=True))
    named = Group.objects.filter(name__in={one.group for one in every})
    subjects = {group.name: subject_of(group) for group in named}
    hidden = {one.name for one in subjects_hidden_from(viewer, subjects.values())}

    def visible(source: PermissionSource) -> PermissionSource:
        if source.group in hidden:
            return PermissionSource("other_tenants_group", is_denial=source.is_denial)
        return replace(source, by="") if source.by in outsiders else source

    for answer in answers:
        yield replace(answer, reasons=tuple(map(visible, answer.reasons)))


# --- a kind of object each -------------------------------------------------------------------


def _by_sources(person: User, row: Any) -> Iterable[_HeldPermission]:
    """Each permission that only sources of permissions give."""
    for permission, verb in VERBS[ObjectKind(resource_of(type(row)).kind)].items():
        yield permission, may(person, verb, row), permission_sources(person, verb, row)


def _profile(person: User, profile: Any) -> Iterable[_HeldPermission]:
    queues = list(queues_visible_to(person).filter(profile=profile).order_by("name")[:MOST_QUEUES])
    why = [PermissionSource("administrator")] if is_admin(person) else []
    if tenants_administered_by(person):
        why.append(PermissionSource("connects_profiles"))
    why += [PermissionSource("by_queue", (RuleKind.QUEUE.value, queue.name)) for queue in queues]
    is_seen = _is_in(profiles_visible_to(person), profile)
    yield PermissionName.SEE, is_seen, why or [PermissionSource("nothing", is_denial=True)]


def _node(person: User, node: Any) -> Iterable[_HeldPermission]:
    """Nodes are for administrators, who see and manage them all."""
    is_seen = _is_in(nodes_visible_to(person), node)
    why = (
        PermissionSource("administrator")
        if is_seen
        else PermissionSource("only_administrators", is_denial=True)
    )
    yield from ((permission, is_seen, [why]) for permission in VERBS[ObjectKind.NODE])


def _task(person: User, task: Task) -> Iterable[_HeldPermission]:
    yield from _by_sources(person, task)
    if person.is_service:
        yield _acting(person, task, is_seen=may(person, QUEUE, task))


def _acting(person: User, task: Task, *, is_seen: bool) -> _HeldPermission:
    if not person.can_act_for_owners:
        return PermissionName.ACT, False, [PermissionSource("may_not_act", is_denial=True)]
    is_alive = TaskState(task.state) in ALIVE
    is_somebody = task.owner.is_active and not task.owner.is_service
    is_possible = is_seen and is_alive and is_somebody and can_act_for(person, task.owner)
    return (
        PermissionName.ACT,
        is_possible,
        [
            PermissionSource("acts")
            if is_possible
            else PermissionSource("cannot_act_now", is_denial=True)
        ],
    )


def _is_in(rows: QuerySet[Any], row: Any) -> bool:
    return rows.filter(pk=row.pk).exists()


MOST_QUEUES = 5
# The permissions of each kind, with their verbs where sources of permissions give them.
VERBS: Mapping[ObjectKind, Mapping[PermissionName, str]] = {
    ObjectKind.POLICY: {
        PermissionName.SEE: "view",
        PermissionName.ENQUEUE: "enqueue",
        PermissionName.MANAGE: "manage",
        PermissionName.EXCEED: EXCEED,
    },
    ObjectKind.QUEUE: {
        PermissionName.SEE: "view",
        PermissionName.ENQUEUE: "enqueue",
        PermissionName.MANAGE: "manage",
    },
    ObjectKind.TASK: {
        PermissionName.SEE: "view",
        PermissionName.CONTENT: "manage",
        PermissionName.LOG: LOG,
        PermissionName.MANAGE: "manage",
    },
    ObjectKind.POOL: {PermissionName.SEE: "view"},
    ObjectKind.PROFILE: {PermissionName.SEE: ""},
    ObjectKind.VAULT: {
        PermissionName.SEE: "view",
        PermissionName.READ: "read",
        PermissionName.CHANGE: "change",
    },
    ObjectKind.NODE: {PermissionName.SEE: "", PermissionName.MANAGE: ""},
    ObjectKind.VOLUME: {PermissionName.MOUNT: "view", PermissionName.WRITE: "change"},
}
_ANSWERS: Mapping[ObjectKind, Callable[[User, Any], Iterable[_HeldPermission]]] = {
    ObjectKind.POLICY: _by_sources,
    ObjectKind.QUEUE: _by_sources,
    ObjectKind.TASK: _task,
    ObjectKind.POOL: _by_sources,
    ObjectKind.PROFILE: _profile,
    ObjectKind.VAULT: _by_sources,
    ObjectKind.NODE: _node,
    ObjectKind.VOLUME: _by_sources,
}
_VISIBLE: Mapping[ObjectKind, Callable[[User], QuerySet[Any]]] = {
    ObjectKind.POLICY: lambda viewer: policies_visible_to(viewer).select_related("group"),
    ObjectKind.QUEUE: lambda viewer: queues_visible_to(viewer).select_related("policy__group"),
    ObjectKind.TASK: lambda viewer: tasks_visible_to(viewer).select_related(
        "owner", "queue__policy__group"
    ),
    ObjectKind.POOL: pools_visible_to,
    ObjectKind.PROFILE: profiles_visible_to,
    ObjectKind.VAULT: lambda viewer: vaults_visible_to(viewer).select_related("group__belongs"),
    ObjectKind.NODE: nodes_visible_to,
    ObjectKind.VOLUME: volumes_visible_to,
}
