"""The people whose permissions change when policies join or leave a tenant.

Their permissions change though none of their rows does: administrators of a tenant hold everything
in its tree, and rules do not reach into the tree of another.
"""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import Group, Permission
from django.db.models import Q

from apps.access.levels import RESOURCES, RuleKind
from apps.accounts.models import User
from apps.accounts.services.groups import permissions_change_notify
from apps.policies.models import Queue


def tenant_change_notify(*, policy_ids: Iterable[int], tenant_ids: Iterable[int | None]) -> None:
    """Close the sockets of the people of these tenants, and of those whom a rule names on these
    policies, their queues, or all.
    """
    policies = list(policy_ids)
    queues = Queue.objects.filter(policy__in=policies).values("pk")
    kinds = Permission.objects.filter(
        content_type__app_label="policies", content_type__model__in=("policy", "queue")
    )
    tenants = [pk for pk in tenant_ids if pk is not None]
    groups = set(
        Group.objects.filter(
            Q(belongs__tenant__in=tenants)
            | Q(administers__in=tenants)
            | Q(permissions__in=kinds.values("pk"))
        ).values_list("pk", flat=True)
    )
    users = set(
        User.objects.filter(user_permissions__in=kinds.values("pk")).values_list("pk", flat=True)
    )
    objects: tuple[tuple[RuleKind, Any], ...] = (
        (RuleKind.POLICY, policies),
        (RuleKind.QUEUE, queues),
    )
    for kind, found in objects:
        by_user, by_group = RESOURCES[kind].by_user, RESOURCES[kind].by_group
        rows = {"content_object__in": found}
        users |= set(by_user._default_manager.filter(**rows).values_list("user", flat=True))
        groups |= set(by_group._default_manager.filter(**rows).values_list("group", flat=True))
    members = User.objects.filter(groups__in=groups)
    permissions_change_notify(sorted(users | set(members.values_list("pk", flat=True))))
