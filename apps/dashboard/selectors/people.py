"""How many people a group has."""

from collections.abc import Iterable

from django.contrib.auth.models import Group
from django.db.models import Count


def people_in(groups: Iterable[int]) -> dict[int, int]:
    """Active people and service accounts per group."""
    rows = Group.objects.filter(pk__in=list(groups), user__is_active=True)
    return dict(rows.values_list("pk").annotate(Count("user")).order_by())
