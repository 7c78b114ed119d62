"""Tenant isolation of the actors in a vault's history."""

from collections.abc import Iterable
from typing import TypeVar

from django.db.models import Model

from apps.accounts.models import User
from apps.accounts.tenant_isolation import users_isolated_from

Row = TypeVar("Row", bound=Model)


def without_other_tenants(reader: User, rows: Iterable[Row], by: str) -> list[Row]:
    """The rows, with `by` emptied where it is another tenant's user; never save them."""
    found = list(rows)
    people = {getattr(row, f"{by}_id") for row in found}
    hidden = set(users_isolated_from(reader).filter(pk__in=people).values_list("pk", flat=True))
    for row in found:
        if getattr(row, f"{by}_id") in hidden:
            setattr(row, by, None)
    return found
