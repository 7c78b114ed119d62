"""Tenant isolation: nobody sees what belongs to another tenant.

A policy names its tenant, so that no query has to climb the tree.
"""

from typing import Any

from django.db.models import Q

from apps.access.levels import Resource
from apps.accounts.selectors import Person, is_admin, tenants_of
from apps.policies.models import Policy, Queue


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
