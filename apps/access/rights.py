"""Rights on pools, policies and queues. Only this module reads their rows.

A right comes from a rule on the object, from one on its policy where it is a queue, or from one on
all objects of a kind, which is Django's own permission of the model. Each is given to a user or to
a group. Children of a policy inherit nothing. Administrators of a tenant hold everything in its
tree, and no rule reaches into the tree of another tenant.
"""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any

from django.contrib.auth.models import Group, Permission
from django.db.models import Exists, Q, QuerySet

from apps.access.isolation import TENANT_PATHS, isolation_filter
from apps.accounts.models import User
from apps.accounts.selectors import Person, group_ids, tenants_administered_by
from apps.accounts.tenant_isolation import users_isolated_from_tenants
from apps.policies.models import (
    Policy,
    PolicyGroupPermission,
    PolicyUserPermission,
    Pool,
    PoolGroupPermission,
    PoolUserPermission,
    Queue,
    QueueGroupPermission,
    QueueUserPermission,
)

GRANTS = {
    Policy: (PolicyUserPermission, PolicyGroupPermission),
    Pool: (PoolUserPermission, PoolGroupPermission),
    Queue: (QueueUserPermission, QueueGroupPermission),
}


def administered_filter(model: type[Policy | Pool | Queue], user: Person) -> Q:
    """Rows of the trees that the user administers, with every right there."""
    path, tenants = TENANT_PATHS.get(model), tenants_administered_by(user)
    return Q(**{f"{path}__in": tenants}) if path and tenants else Q(pk__in=[])


def administrators_of(tenant_id: int | None) -> QuerySet[User]:
    """The administrators of the tenant; none for no tenant."""
    return User.objects.filter(groups__administers=tenant_id or 0)


def right_filter(model: type[Policy | Pool | Queue], user: Person, verb: str) -> Q:
    """Rows of `model` on which the user holds the right, from any source.

    Args:
        verb: `view`, `enqueue` or `manage`.
    """
    if not isinstance(user, User) or not user.is_active:
        return Q(pk__in=[])
    groups = list(group_ids(user))
    found = _by_rows("pk", model, user, groups, verb)
    kinds = [f"{verb}_{model._meta.model_name}"]
    if model is Queue:
        found |= _by_rows("policy", Policy, user, groups, verb)
        kinds.append(f"{verb}_policy")
    found |= _by_kind(user, groups, kinds) | administered_filter(model, user)
    return found & isolation_filter(model, user)


def holders(queue: Queue, verb: str) -> QuerySet[User]:
    """Active people and service accounts who hold the right on this queue by some rule."""
    kinds = _kinds([f"{verb}_queue", f"{verb}_policy"])
    users: list[Any] = [User.objects.filter(user_permissions__in=kinds).values("pk")]
    groups: list[Any] = [Group.objects.filter(permissions__in=kinds).values("pk")]
    for model, pk in ((Queue, queue.pk), (Policy, queue.policy_id)):
        by_user, by_group = GRANTS[model]
        right = f"{verb}_{model._meta.model_name}"
        rows = {"content_object": pk, "permission__codename": right}
        users.append(by_user._default_manager.filter(**rows).values("user"))
        groups.append(by_group._default_manager.filter(**rows).values("group"))
    members = User.groups.through._default_manager.filter(_any_of("group", groups))
    tenant = queue.policy.tenant_id
    users.append(administrators_of(tenant).values("pk"))
    found = _any_of("pk", [*users, members.values("user")])
    live = User.objects.filter(found, is_active=True)
    return live.exclude(pk__in=users_isolated_from_tenants([tenant] if tenant else []).values("pk"))


def _by_rows(
    path: str, model: type[Policy | Pool | Queue], user: User, groups: list[int], verb: str
) -> Q:
    right = f"{verb}_{model._meta.model_name}"
    by_user, by_group = GRANTS[model]
    users = by_user._default_manager.filter(user=user, permission__codename=right)
    teams = by_group._default_manager.filter(group__in=groups, permission__codename=right)
    return Q(**{f"{path}__in": users.values("content_object_id")}) | Q(
        **{f"{path}__in": teams.values("content_object_id")}
    )


def _any_of(path: str, subqueries: Iterable[QuerySet[Any, Any]]) -> Q:
    return reduce(or_, (Q(**{f"{path}__in": found}) for found in subqueries))


def _by_kind(user: User, groups: list[int], codenames: Iterable[str]) -> Q:
    kinds = _kinds(codenames)
    return Q(Exists(kinds.filter(user=user))) | Q(Exists(kinds.filter(group__in=groups)))


def _kinds(codenames: Iterable[str]) -> QuerySet[Permission]:
    return Permission.objects.order_by().filter(
        content_type__app_label="policies", codename__in=list(codenames)
    )
