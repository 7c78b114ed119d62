"""How tenants change visibility: a tenant's administrators see its tree, nobody sees another's.

`apps.policies.rights` applies both wherever it reads rights. A policy names its tenant, so that
no query has to climb the tree.
"""

from django.db.models import Q, QuerySet

from apps.accounts.models import User
from apps.accounts.selectors import Person, is_admin, tenants_administered_by, tenants_of
from apps.policies.models import Policy, Pool, Queue

_PATHS = {Policy: "tenant", Queue: "policy__tenant"}


def administered_filter(model: type[Policy | Pool | Queue], user: Person) -> Q:
    """Rows of the trees that the user administers, with every right there."""
    path, tenants = _PATHS.get(model), tenants_administered_by(user)
    return Q(**{f"{path}__in": tenants}) if path and tenants else Q(pk__in=[])


def isolation_filter(model: type[Policy | Pool | Queue], user: Person) -> Q:
    """Rows that are in no other tenant's tree than the user's.

    A user of no tenant sees what rules give them, as everywhere.
    """
    path, tenants = _PATHS.get(model), tenants_of(user)
    if path is None or not tenants:
        return Q()
    return Q(**{f"{path}__in": tenants}) | Q(**{f"{path}__isnull": True})


def administrators_of(tenant_id: int | None) -> QuerySet[User]:
    """The administrators of the tenant; none for no tenant."""
    return User.objects.filter(groups__administers=tenant_id or 0)


def policies_changeable_by(user: Person) -> QuerySet[Policy]:
    """Policies that the user changes, pauses and removes: in a tenant those below its top."""
    live = Policy.objects.filter(removed_at__isnull=True)
    if is_admin(user):
        return live
    return live.filter(tenant__in=tenants_administered_by(user), parent__isnull=False)


def policies_administered_by(user: Person) -> QuerySet[Policy]:
    """Those, and the top, below which the user creates policies."""
    live = Policy.objects.filter(removed_at__isnull=True)
    if is_admin(user):
        return live
    return live.filter(tenant__in=tenants_administered_by(user))


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
