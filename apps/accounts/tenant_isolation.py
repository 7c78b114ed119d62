"""Users of other tenants, so that neither side sees names of the other."""

from collections.abc import Collection

from django.db.models import QuerySet

from apps.accounts.models import User
from apps.accounts.selectors import is_admin, tenants_of


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
