"""Removes the demonstration, with all that its people did; what others made stays."""

import time
from collections.abc import Iterator

import msgspec
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.services.people_changes import person_deactivate
from apps.configuration.selectors import draft_document
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.policies import policy_remove
from apps.configuration.services.provision import document_provision
from apps.core.errors import Conflict
from apps.execution.node_server.server import NodeServer
from apps.nodes.models import Node, NodeState
from apps.policies.models import Policy, PoolLink, Queue
from apps.tasks.lifecycle.states import ENDED_STATES, LIVE_ATTEMPT_STATES
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services.retention import TASKS_AT_ONCE, ended_tasks_remove
from apps.tasks.services.stop import task_abort
from apps.usage.models import OwnerDay, PolicyDay, PolicyHour, QueueDay, Rate, ReservedSince
from apps.usage.services.sums import usage_book
from rpm.demonstration.catalog import GROUPS, POOLS, PROFILES, TEAMS, USERNAMES
from rpm.demonstration.presence import logins_path, nodes, pause

# Longer than the grace period of its queues.
ENDS_WITHIN_S = 60.0
POOL_NAMES = frozenset(one.name for one in POOLS)
PROFILE_NAMES = frozenset(one.name for one in PROFILES)


def remove() -> list[str]:
    """Abort its tasks, remove its resources and its past, deactivate its users.

    Returns:
        Users that stay, because there is no other administrator.

    Raises:
        Conflict: others use its pools, profiles or nodes, or some of its work does not end.
    """
    _check_unused()
    pause()
    for task in _tasks().exclude(state__in=ENDED_STATES).select_related("owner"):
        task_abort(actor=task.owner, task=task, detail="The demonstration was removed.")
    _await_ends()
    with transaction.atomic():
        policies = list(_policies())
        _resources_remove(policies)
        staying = [one.username for one in _active_people() if not _deactivate(one)]
    _past_remove([policy.pk for policy in policies])
    logins_path().unlink(missing_ok=True)
    return staying


def _check_unused() -> None:
    found = list(_uses())
    if found:
        raise Conflict(
            f"Others use the demonstration: {', '.join(found)}. Move or end these first, then "
            "remove it again."
        )


def _uses() -> Iterator[str]:
    """What others made that depends on it."""
    own_nodes = nodes().filter(removed_at__isnull=True)
    for node in Node.objects.filter(
        pool__name__in=POOL_NAMES, pool__removed_at__isnull=True, removed_at__isnull=True
    ).exclude(pk__in=own_nodes):
        yield f"node {node.name} is in {node.pool}"
    for link in PoolLink.objects.filter(
        pool__name__in=POOL_NAMES, pool__removed_at__isnull=True, profile__removed_at__isnull=True
    ).exclude(profile__name__in=PROFILE_NAMES):
        yield f"profile {link.profile} is linked to {link.pool}"
    for queue in Queue.objects.filter(
        profile__name__in=PROFILE_NAMES, profile__removed_at__isnull=True, removed_at__isnull=True
    ).exclude(policy__in=_policies()):
        yield f"queue {queue.name} has its profile {queue.profile}"
    for queue in Queue.objects.filter(policy__in=_policies(), removed_at__isnull=True).exclude(
        profile__name__in=PROFILE_NAMES
    ):
        yield f"queue {queue.name} is of its policy {queue.policy}"
    for policy in Policy.objects.filter(parent__in=_policies(), removed_at__isnull=True):
        yield f"policy {policy.name} is below {policy.parent}"
    for attempt in Attempt.objects.filter(
        members__node__in=own_nodes, state__in=LIVE_ATTEMPT_STATES
    ).exclude(task__owner__username__in=USERNAMES)[:5]:
        yield f"task {attempt.task.name} runs on its nodes"


def _policies() -> QuerySet[Policy]:
    """Those of its teams: other policies may have the same names meanwhile."""
    own = Policy.objects.filter(removed_at__isnull=True, name__in=TEAMS)
    return own.filter(group__name__in=GROUPS.values())


def _tasks() -> QuerySet[Task]:
    return Task.objects.filter(owner__username__in=USERNAMES)


def _resources_remove(policies: list[Policy]) -> None:
    Rate.objects.filter(pool__name__in=POOL_NAMES, pool__removed_at__isnull=True).delete()
    for policy in policies:
        policy_remove(actor=None, policy=policy)
    draft = draft_document()
    document = msgspec.structs.replace(
        draft,
        pools=tuple(pool for pool in draft.pools if pool.name not in POOL_NAMES),
        profiles=tuple(one for one in draft.profiles if one.name not in PROFILE_NAMES),
    )
    draft_write(document=document, actor=None)
    document_provision(actor=None, note="The demonstration was removed.")
    nodes().filter(removed_at__isnull=True).update(removed_at=timezone.now(), state=NodeState.NEW)


def _past_remove(policies: list[int]) -> None:
    """Remove its tasks and all sums of its policies; attempts of others are summed up again."""
    now = timezone.now()
    usage_book(now=now)
    ids = list(_tasks().values_list("pk", flat=True))
    for start in range(0, len(ids), TASKS_AT_ONCE):
        ended_tasks_remove(ids[start : start + TASKS_AT_ONCE])
    with transaction.atomic():
        ReservedSince.objects.filter(policy__in=policies).delete()
        for table in (PolicyHour, PolicyDay, QueueDay, OwnerDay):
            table._default_manager.filter(policy__in=policies).delete()
        Attempt.objects.filter(policy__in=policies).update(is_booked=False, booked_until=None)
    usage_book(now=now)


def _active_people() -> list[User]:
    people = User.objects.filter(username__in=USERNAMES, is_active=True)
    return list(people.order_by("username"))


def _deactivate(person: User) -> bool:
    """Whether the user is deactivated now; the last administrator always stays."""
    try:
        person_deactivate(actor=None, user=person)
    except Conflict:
        return False
    return True


def _await_ends() -> None:
    """Let the work end on its nodes, served by a worker that runs, or from here if none does."""
    members = Member.objects.filter(node__in=nodes(), released_at__isnull=True)
    deadline = time.monotonic() + ENDS_WITHIN_S
    server = NodeServer()
    server.start()
    try:
        while members.exists():
            if time.monotonic() > deadline:
                raise Conflict("Some work of the demonstration does not end; try again later.")
            time.sleep(0.2)
    finally:
        server.stop()
