"""Filters of rows, put together so that all rows and no rows cost nothing.

Django reads an empty Q as all rows in a filter, as no rows in a union, and refuses it in a `When`;
so filters of permissions are put together here only.
"""

from collections.abc import Iterable
from typing import Final

from django.db.models import Case, Q, Value, When

ALL_ROWS: Final = Q()
# Compared by identity: empty lists cost Django time in every query.
NO_ROWS: Final = Q(pk__in=[])


def any_of(filters: Iterable[Q]) -> Q:
    """What at least one of them finds. The first that finds all rows ends it."""
    found = NO_ROWS
    for one in filters:
        if not one:
            return ALL_ROWS
        if one is not NO_ROWS:
            found = one if found is NO_ROWS else found | one
    return found


def all_of(first: Q, second: Q) -> Q:
    """What both of them find."""
    return NO_ROWS if first is NO_ROWS or second is NO_ROWS else first & second


def column_of(given: Q) -> Case | Value:
    """Whether a row matches."""
    if not given or given is NO_ROWS:
        return Value(value=not given)
    return Case(When(given, then=Value(value=True)), default=Value(value=False))
