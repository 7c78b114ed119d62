"""Changes who may exceed the limit of a policy."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib.auth.models import Group, Permission
from django.db import transaction

from apps.access.isolation import other_tenants_subject
from apps.access.levels import RuleKind
from apps.access.rules.rule import Target
from apps.accounts.models import User
from apps.configuration.services.change_records import change_record
from apps.configuration.services.rows import live_lock
from apps.core.errors import BadInput, Conflict
from apps.policies.models import Policy, PolicyGroupPermission, PolicyUserPermission
from apps.policies.selectors import EXCEED_LIMIT
from apps.tasks.services.task_groups import tasks_regroup


@transaction.atomic
def policy_set_exceeders(
    *, actor: User | None, policy: Policy, users: Iterable[User], groups: Iterable[Group]
) -> None:
    """Let exactly these people, and members of these groups, exceed the policy's limit.

    It applies to their waiting tasks at once. Running ones go on as they were admitted.

    Raises:
        BadInput: a new user or group belongs to another tenant than the policy.
        Conflict: the policy is removed.
    """
    live_lock()
    if Policy.objects.get(pk=policy.pk).is_removed:
        raise Conflict(f"Policy {policy.name} was removed.")
    permission = Permission.objects.get(codename=EXCEED_LIMIT, content_type__app_label="policies")
    people, teams = sorted(users, key=_pk), sorted(groups, key=_pk)
    same: dict[str, Any] = {"content_object": policy, "permission": permission}
    by_user = PolicyUserPermission.objects.filter(**same)
    by_group = PolicyGroupPermission.objects.filter(**same)
    _check_tenant(policy, people, by_user.values_list("user_id", flat=True))
    _check_tenant(policy, teams, by_group.values_list("group_id", flat=True))
    before = _facts(policy.pk)
    by_user.exclude(user__in=people).delete()
    by_group.exclude(group__in=teams).delete()
    PolicyUserPermission.objects.bulk_create(
        (PolicyUserPermission(**same, user=one, created_by=actor) for one in people),
        ignore_conflicts=True,
    )
    PolicyGroupPermission.objects.bulk_create(
        (PolicyGroupPermission(**same, group=one, created_by=actor) for one in teams),
        ignore_conflicts=True,
    )
    tasks_regroup(policy_ids=[policy.pk])
    change_record(
        "policy.exceeders",
        actor=actor,
        object_type="policy",
        object_id=policy.pk,
        policy_id=policy.pk,
        note=f"Who may exceed the limit of policy {policy.name}.",
        data={
            "name": policy.name,
            "users": [one.username for one in people],
            "groups": [one.name for one in teams],
            "before": before,
            "after": _facts(policy.pk),
        },
        topics=[f"policy.{policy.pk}", "policies"],
    )


def _check_tenant(
    policy: Policy, named: Sequence[User] | Sequence[Group], known: Iterable[int]
) -> None:
    """Check new subjects only: present ones may stay, though they joined another tenant since."""
    there = set(known)
    new = [one for one in named if one.pk not in there]
    users = [one for one in new if isinstance(one, User)]
    groups = [one for one in new if isinstance(one, Group)]
    outsider = other_tenants_subject(Target(RuleKind.POLICY, str(policy.pk)), users, groups)
    if outsider:
        problem = f"{outsider} belongs to another tenant"
        raise BadInput(f"{problem}.", fields={"users" if users else "groups": problem})


def _facts(policy_id: int) -> dict[str, list[str]]:
    """The users and groups that may exceed it, by name."""
    users = PolicyUserPermission.objects.filter(
        content_object=policy_id, permission__codename=EXCEED_LIMIT
    )
    groups = PolicyGroupPermission.objects.filter(
        content_object=policy_id, permission__codename=EXCEED_LIMIT
    )
    return {
        "may_exceed_users": sorted(users.values_list("user__username", flat=True)),
        "may_exceed_groups": sorted(groups.values_list("group__name", flat=True)),
    }


def _pk(row: User | Group) -> int:
    return row.pk
