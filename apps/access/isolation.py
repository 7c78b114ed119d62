"""Tenant isolation: nobody sees what belongs to another tenant.

A policy names its tenant, so that no query has to climb the tree.
"""

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from django.contrib.auth.models import Group
from django.db.models import Model, Q, QuerySet

from apps.access.levels import Resource
from apps.accounts.models import User
from apps.accounts.selectors import Person, is_admin, tenants_of
from apps.policies.models import Policy, Queue

Row = TypeVar("Row", bound=Model)


def isolation_filter(resource: Resource, user: Person) -> Q:
    """Objects that are in no other tenant's tree than the user's.

    A user of no tenant sees what rules give them, as everywhere.
    """
    path, tenants = resource.tenant_path, tenants_of(user)
    if not path or not tenants:
        return Q()
    return Q(**{f"{path}__in": tenants}) | Q(**{f"{path}__isnull": True})


def tenant_of(row: Any) -> int | None:
    """The tenant in whose tree a policy or queue is; None for what no tenant has."""
    policy = row.policy if isinstance(row, Queue) else row
    return policy.tenant_id if isinstance(policy, Policy) else None


def is_other_tenants(user: Person, row: Any) -> bool:
    """Whether `isolation_filter` leaves out this policy, queue or pool."""
    tenant, own = tenant_of(row), tenants_of(user)
    return tenant is not None and bool(own) and tenant not in own


def other_tenants_policy_ids(user: Person) -> frozenset[int]:
    """Ids of policies whose tasks the reader must not see: those of other tenants and, for a
    reader who belongs to one, of none. Empty for administrators, and where there are no tenants.
    """
    if is_admin(user):
        return frozenset()
    tenants = tenants_of(user)
    outside = Q(tenant__isnull=False)
    if tenants:
        outside = ~Q(tenant__in=tenants) | Q(tenant__isnull=True)
    return frozenset(Policy.objects.filter(outside).order_by().values_list("pk", flat=True))


def vault_isolation_filter(user: Person) -> Q:
    """Vaults that belong to no group and no user of another tenant."""
    tenants = tenants_of(user)
    if not tenants:
        return Q()
    others = Group.objects.filter(belongs__isnull=False).exclude(belongs__tenant__in=tenants)
    others_people = User.objects.filter(groups__in=others)
    return ~Q(group__in=others.values("pk")) & ~Q(owner__in=others_people.values("pk"))


def users_isolated_from_tenants(tenant_ids: Collection[int]) -> QuerySet[User]:
    """People whom tenant isolation keeps from what belongs to these tenants: those of others alone.

    Nobody where it belongs to no tenant.
    """
    if not tenant_ids:
        return User.objects.none()
    own = User.objects.filter(groups__belongs__tenant__in=tenant_ids)
    return User.objects.filter(groups__belongs__isnull=False).exclude(pk__in=own.values("pk"))


def users_isolated_from(reader: User) -> QuerySet[User]:
    """People and service accounts of other tenants; for a user of no tenant, nobody."""
    return (
        User.objects.none() if is_admin(reader) else users_isolated_from_tenants(tenants_of(reader))
    )


def without_other_tenants(reader: User, rows: Iterable[Row], by: str) -> list[Row]:
    """The rows, with `by` emptied where it is another tenant's user; never save them."""
    found = list(rows)
    people = {getattr(row, f"{by}_id") for row in found}
    hidden = set(users_isolated_from(reader).filter(pk__in=people).values_list("pk", flat=True))
    for row in found:
        if getattr(row, f"{by}_id") in hidden:
            setattr(row, by, None)
    return found
