"""Who is of another tenant, so that neither sees the name of the other."""

from collections.abc import Collection

from django.db.models import QuerySet

from apps.accounts.models import User
from apps.accounts.selectors import is_admin, tenants_of


def strangers_to(tenant_ids: Collection[int]) -> QuerySet[User]:
    """Whom the wall keeps from what belongs to these tenants: people of other tenants alone.

    Where it belongs to none, nobody.
    """
    if not tenant_ids:
        return User.objects.none()
    own = User.objects.filter(groups__belongs__tenant__in=tenant_ids)
    return User.objects.filter(groups__belongs__isnull=False).exclude(pk__in=own.values("pk"))


def strangers_of(reader: User) -> QuerySet[User]:
    """People and service accounts of other tenants; for who belongs to none, nobody."""
    return User.objects.none() if is_admin(reader) else strangers_to(tenants_of(reader))
