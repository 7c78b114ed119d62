"""What somebody can see and do with one object, and why."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from apps.accounts.models import User
from apps.accounts.selectors import groups_of, is_admin, tenants_administered_by
from apps.accounts.strangers import strangers_of
from apps.configuration.rules.granting import people_nameable_by
from apps.configuration.rules.levels import Kind
from apps.configuration.rules.rule import subject_of
from apps.configuration.rules.walls import hidden_from
from apps.configuration.rules.ways import Reason, ways_to
from apps.core.errors import NotFound
from apps.nodes.selectors import nodes_visible_to
from apps.policies.models import Policy, Queue
from apps.policies.rights import held, is_of_policy
from apps.policies.selectors import (
    may_exceed_limit,
    policies_managed_by,
    policies_visible_to,
    pools_visible_to,
    profiles_visible_to,
    queues_managed_by,
    queues_open_to,
    queues_visible_to,
)
from apps.tasks.models import Task
from apps.tasks.selectors.acting import ALIVE, may_stand_for
from apps.tasks.selectors.seen import task_rights, tasks_visible_to
from apps.tasks.states import TaskState
from apps.vaults.selectors.seen import vault_rights, vaults_told, vaults_visible_to


class Thing(models.TextChoices):
    """What can be asked about."""

    POLICY = "policy", _("Policy")
    QUEUE = "queue", _("Queue")
    TASK = "task", _("Task")
    POOL = "pool", _("Pool")
    PROFILE = "profile", _("Profile")
    VAULT = "vault", _("Vault")
    NODE = "node", _("Node")


class Right(models.TextChoices):
    """What somebody may do with it."""

    SEE = "see", _("See it")
    ENQUEUE = "enqueue", _("Enqueue tasks")
    MANAGE = "manage", _("Manage it")
    EXCEED = "exceed", _("Exceed its limit")
    CONTENT = "content", _("Read its command and environment")
    LOG = "log", _("Read its log")
    ACT = "act", _("Act for its owner")
    READ = "read", _("Read its text")
    CHANGE = "change", _("Change its text")


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether somebody holds a right, by which ways, and what stands against it."""

    right: Right
    is_held: bool
    reasons: tuple[Reason, ...]

    @property
    def ways(self) -> tuple[Reason, ...]:
        return tuple(one for one in self.reasons if not one.is_against)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one person can do with one object."""

    person: User
    thing: Thing
    object_id: str
    name: str
    answers: tuple[Answer, ...]


# Right, whether it is held, and why.
_Found = tuple[Right, bool, Iterable[Reason]]


def explanation(viewer: User, *, person: User, thing: Thing, object_id: str) -> Explanation:
    """What the person can see and do with the object, each right with its reasons.

    Administrators ask about everybody and everything; others about themselves and what they see,
    and about the people of their groups where they manage the object.

    Raises:
        NotFound: there is no such object or person that the viewer may ask about.
    """
    row = _seen(viewer, thing, object_id)
    if row is None or not _may_ask(viewer, person, thing, row):
        raise NotFound("There is no such object, or you may not see it.")
    if person.is_active:
        found = list(_ANSWERS[thing](person, row))
    else:
        away = [Reason("deactivated", is_against=True)]
        found = [(right, False, away) for right in RIGHTS[thing]]
    answers = [Answer(right, is_held, tuple(why)) for right, is_held, why in found]
    told = tuple(_within_walls(viewer, answers))
    return Explanation(person, thing, str(row.pk), str(row.name), told)


def people_to_ask_about(viewer: User) -> QuerySet[User]:
    """Everybody for administrators, deactivated people too; else oneself and one's groups."""
    if is_admin(viewer):
        return User.objects.filter(removed_at__isnull=True)
    return people_nameable_by(viewer) | User.objects.filter(pk=viewer.pk)


def things_seen(viewer: User, thing: Thing) -> QuerySet[Any]:
    """The objects of a kind that the viewer sees at all."""
    return _VISIBLE[thing](viewer)


def _seen(viewer: User, thing: Thing, object_id: str) -> Any:
    rows = things_seen(viewer, thing)
    try:
        pk = rows.model._meta.pk.to_python(object_id)
    except ValidationError:
        return None
    return None if isinstance(pk, int) and not 0 < pk < 2**63 else rows.filter(pk=pk).first()


def _may_ask(viewer: User, person: User, thing: Thing, row: Any) -> bool:
    if is_admin(viewer) or person.pk == viewer.pk:
        return True
    if not people_nameable_by(viewer).filter(pk=person.pk).exists():
        return False
    if thing is Thing.POLICY:
        return policies_managed_by(viewer).filter(pk=row.pk).exists()
    queue = {Thing.QUEUE: row.pk, Thing.TASK: getattr(row, "queue_id", None)}.get(thing)
    return queue is not None and queues_managed_by(viewer).filter(pk=queue).exists()


def _within_walls(viewer: User, answers: Sequence[Answer]) -> Iterator[Answer]:
    """The answers without names of other tenants than the viewer's: who made rules, and groups."""
    every = [reason for answer in answers for reason in answer.reasons]
    found = strangers_of(viewer).filter(username__in={one.by for one in every})
    strangers = set(found.values_list("username", flat=True))
    named = Group.objects.filter(name__in={one.group for one in every})
    subjects = {group.name: subject_of(group) for group in named}
    hidden = {one.name for one in hidden_from(viewer, subjects.values())}

    def told(reason: Reason) -> Reason:
        if reason.group in hidden:
            return Reason("elsewhere", is_against=reason.is_against)
        return replace(reason, by="") if reason.by in strangers else reason

    for answer in answers:
        yield replace(answer, reasons=tuple(map(told, answer.reasons)))


# --- a kind of object each -------------------------------------------------------------------


def _policy(person: User, policy: Policy) -> Iterable[_Found]:
    def why(verb: str) -> list[Reason]:
        return ways_to(person, verb, Kind.POLICY, policy)

    is_exceeding = person.pk in may_exceed_limit(policy.pk)
    open_to = Policy.objects.filter(held(Policy, person, "enqueue"))
    enqueues = is_admin(person) or _is_in(open_to, policy)
    manages = _is_in(policies_managed_by(person), policy)
    yield Right.SEE, _is_in(policies_visible_to(person), policy), why("view")
    yield Right.ENQUEUE, enqueues, why("enqueue")
    yield Right.MANAGE, manages, why("manage")
    yield Right.EXCEED, is_exceeding, why("exceed_limit")


def _queue(person: User, queue: Queue) -> Iterable[_Found]:
    for right, verb, rows in (
        (Right.SEE, "view", queues_visible_to(person)),
        (Right.ENQUEUE, "enqueue", queues_open_to(person)),
        (Right.MANAGE, "manage", queues_managed_by(person)),
    ):
        yield right, _is_in(rows, queue), ways_to(person, verb, Kind.QUEUE, queue)


def _pool(person: User, pool: Any) -> Iterable[_Found]:
    yield (
        Right.SEE,
        _is_in(pools_visible_to(person), pool),
        ways_to(person, "view", Kind.POOL, pool),
    )


def _profile(person: User, profile: Any) -> Iterable[_Found]:
    queues = list(queues_visible_to(person).filter(profile=profile).order_by("name")[:MOST_QUEUES])
    why = [Reason("administrator")] if is_admin(person) else []
    if tenants_administered_by(person):
        why.append(Reason("connects_profiles"))
    why += [Reason("by_queue", (Kind.QUEUE.value, queue.name)) for queue in queues]
    is_seen = _is_in(profiles_visible_to(person), profile)
    yield Right.SEE, is_seen, why or [Reason("nothing", is_against=True)]


def _node(person: User, node: Any) -> Iterable[_Found]:
    """Nodes are for administrators, who see and manage them all."""
    is_seen = _is_in(nodes_visible_to(person), node)
    why = Reason("administrator") if is_seen else Reason("only_administrators", is_against=True)
    yield from ((right, is_seen, [why]) for right in RIGHTS[Thing.NODE])


def _task(person: User, task: Task) -> Iterable[_Found]:
    is_seen = _is_in(tasks_visible_to(person), task)
    rights = task_rights(person, task)
    own = [Reason("owner")] if task.owner_id == person.pk else []
    if is_admin(person):
        own.append(Reason("administrator"))
    queue = task.queue if task.queue is not None and task.queue.removed_at is None else None
    view, manage = (
        (ways_to(person, verb, Kind.QUEUE, queue) if queue is not None else [])
        for verb in ("view", "manage")
    )
    seen, managed = _told(own, view), _told(own, manage)
    yield Right.SEE, is_seen, seen
    yield Right.CONTENT, is_seen and rights.content, managed
    yield Right.LOG, is_seen and rights.log, _told([*own, *_open_log(person, task)], manage)
    yield Right.MANAGE, is_seen and rights.manage, managed
    if person.is_service:
        yield _acting(person, task, is_seen=is_seen)


def _open_log(person: User, task: Task) -> list[Reason]:
    policy = task.queue.policy if task.queue is not None else None
    if policy is None or not policy.logs_open_to_group or not is_of_policy(person, policy):
        return []
    return [Reason("open_logs", (Kind.POLICY.value, policy.name), group=policy.group.name)]


def _acting(person: User, task: Task, *, is_seen: bool) -> _Found:
    if not person.can_act_for_owners:
        return Right.ACT, False, [Reason("may_not_act", is_against=True)]
    is_alive = TaskState(task.state) in ALIVE
    is_somebody = task.owner.is_active and not task.owner.is_service
    is_possible = is_seen and is_alive and is_somebody and may_stand_for(person, task.owner)
    return (
        Right.ACT,
        is_possible,
        [Reason("acts") if is_possible else Reason("cannot_act_now", is_against=True)],
    )


def _vault(person: User, vault: Any) -> Iterable[_Found]:
    told = vaults_told(person).filter(pk=vault.pk).first()
    if told is None:
        given = _vault_rows(person, "view", vault)
        why = [Reason("apart" if given else "nothing", is_against=True)]
        yield from ((right, False, why) for right in RIGHTS[Thing.VAULT])
        return
    rights = vault_rights(person, told)
    own = [Reason("owner")] if vault.owner_id == person.pk else []
    if is_admin(person) and not vault.is_personal:
        own.append(Reason("administrator"))
    elif rights.own and not own:
        own.append(Reason("tenant_administrator"))
    knowing = [*own, *([Reason("administrator")] if is_admin(person) and not own else [])]
    if vault.group_id and groups_of(person).filter(pk=vault.group_id).exists():
        knowing.append(
            Reason("vault_group", (Kind.VAULT.value, vault.name), group=vault.group.name)
        )
    view, change = (_vault_rows(person, verb, vault) for verb in ("view", "change"))
    yield Right.SEE, True, _told(knowing, [*view, *change])
    yield Right.READ, rights.read, _told(own, [*view, *change])
    yield Right.CHANGE, rights.change, _told(own, change)


def _vault_rows(person: User, verb: str, vault: Any) -> list[Reason]:
    return [one for one in ways_to(person, verb, Kind.VAULT, vault) if one.code == "rule"]


def _told(first: list[Reason], others: Iterable[Reason]) -> list[Reason]:
    """Each once: what administrators may need not be said twice, nor that there is nothing."""
    every = list(dict.fromkeys([*first, *others]))
    for_it = [one for one in every if not one.is_against]
    against = [one for one in every if one.is_against and one.code != "nothing"]
    return [*for_it, *against] or [Reason("nothing", is_against=True)]


def _is_in(rows: QuerySet[Any], row: Any) -> bool:
    return rows.filter(pk=row.pk).exists()


MOST_QUEUES = 5
RIGHTS: Mapping[Thing, tuple[Right, ...]] = {
    Thing.POLICY: (Right.SEE, Right.ENQUEUE, Right.MANAGE, Right.EXCEED),
    Thing.QUEUE: (Right.SEE, Right.ENQUEUE, Right.MANAGE),
    Thing.TASK: (Right.SEE, Right.CONTENT, Right.LOG, Right.MANAGE),
    Thing.POOL: (Right.SEE,),
    Thing.PROFILE: (Right.SEE,),
    Thing.VAULT: (Right.SEE, Right.READ, Right.CHANGE),
    Thing.NODE: (Right.SEE, Right.MANAGE),
}
_ANSWERS: Mapping[Thing, Callable[[User, Any], Iterable[_Found]]] = {
    Thing.POLICY: _policy,
    Thing.QUEUE: _queue,
    Thing.TASK: _task,
    Thing.POOL: _pool,
    Thing.PROFILE: _profile,
    Thing.VAULT: _vault,
    Thing.NODE: _node,
}
_VISIBLE: Mapping[Thing, Callable[[User], QuerySet[Any]]] = {
    Thing.POLICY: lambda viewer: policies_visible_to(viewer).select_related("group"),
    Thing.QUEUE: lambda viewer: queues_visible_to(viewer).select_related("policy__group"),
    Thing.TASK: lambda viewer: tasks_visible_to(viewer).select_related(
        "owner", "queue__policy__group"
    ),
    Thing.POOL: pools_visible_to,
    Thing.PROFILE: profiles_visible_to,
    Thing.VAULT: vaults_visible_to,
    Thing.NODE: nodes_visible_to,
}
