"""Tenant isolation: nobody sees what belongs to another tenant.

A policy names its tenant, so that no query has to climb the tree.
"""

from django.db.models import Q

from apps.accounts.selectors import Person, is_admin, tenants_of
from apps.policies.models import Policy, Pool, Queue

TENANT_PATHS = {Policy: "tenant", Queue: "policy__tenant"}


def isolation_filter(model: type[Policy | Pool | Queue], user: Person) -> Q:
    """Rows that are in no other tenant's tree than the user's.

    A user of no tenant sees what rules give them, as everywhere.
    """
    path, tenants = TENANT_PATHS.get(model), tenants_of(user)
    if path is None or not tenants:
        return Q()
    return Q(**{f"{path}__in": tenants}) | Q(**{f"{path}__isnull": True})


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
