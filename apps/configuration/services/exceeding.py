"""Who may exceed the limit of a policy."""

from collections.abc import Iterable, Sequence

from django.contrib.auth.models import Group, Permission
from django.db import transaction

from apps.accounts.models import User
from apps.configuration.rules.levels import Kind
from apps.configuration.rules.rule import Target
from apps.configuration.rules.walls import stranger_named
from apps.configuration.services.recording import change_record
from apps.configuration.services.rows import live_lock
from apps.core.errors import BadInput, Conflict
from apps.policies.models import Policy, PolicyGroupPermission, PolicyUserPermission
from apps.policies.selectors import EXCEED_LIMIT
from apps.tasks.services.reshaping import tasks_reshape


@transaction.atomic
def policy_set_exceeding(
    *, actor: User | None, policy: Policy, users: Iterable[User], groups: Iterable[Group]
) -> None:
    """Let exactly these people, and members of these groups, exceed the policy's limit.

    It holds for their waiting tasks at once. What runs goes on as it was admitted.

    Raises:
        BadInput: somebody new belongs to another tenant than the policy.
        Conflict: the policy is removed.
    """
    live_lock()
    if Policy.objects.get(pk=policy.pk).is_removed:
        raise Conflict(f"Policy {policy.name} was removed.")
    right = Permission.objects.get(codename=EXCEED_LIMIT, content_type__app_label="policies")
    people, teams = sorted(users, key=_pk), sorted(groups, key=_pk)
    by_user = PolicyUserPermission.objects.filter(content_object=policy, permission=right)
    by_group = PolicyGroupPermission.objects.filter(content_object=policy, permission=right)
    _check_within_walls(policy, people, by_user.values_list("user_id", flat=True))
    _check_within_walls(policy, teams, by_group.values_list("group_id", flat=True))
    before = _facts(policy.pk)
    by_user.exclude(user__in=people).delete()
    by_group.exclude(group__in=teams).delete()
    PolicyUserPermission.objects.bulk_create(
        (
            PolicyUserPermission(
                content_object=policy, user=one, permission=right, created_by=actor
            )
            for one in people
        ),
        ignore_conflicts=True,
    )
    PolicyGroupPermission.objects.bulk_create(
        (
            PolicyGroupPermission(
                content_object=policy, group=one, permission=right, created_by=actor
            )
            for one in teams
        ),
        ignore_conflicts=True,
    )
    tasks_reshape(policy_ids=[policy.pk])
    change_record(
        "policy.exceeding",
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


def _check_within_walls(
    policy: Policy, named: Sequence[User] | Sequence[Group], known: Iterable[int]
) -> None:
    """Who exceeds it already may stay: they came to another tenant since."""
    there = set(known)
    new = [one for one in named if one.pk not in there]
    users = [one for one in new if isinstance(one, User)]
    groups = [one for one in new if isinstance(one, Group)]
    stranger = stranger_named(Target(Kind.POLICY, str(policy.pk)), users, groups)
    if stranger:
        problem = f"{stranger} belongs to another tenant"
        raise BadInput(f"{problem}.", fields={"users" if users else "groups": problem})


def _facts(policy_id: int) -> dict[str, list[str]]:
    """Who may exceed it, by name."""
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
