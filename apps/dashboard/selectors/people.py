"""Who is in a group."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth.models import Group
from django.db.models import Count

from apps.accounts.models import User

MOST_NAMED = 100


@dataclass(frozen=True, slots=True)
class People:
    """How many a group has; `names` are the first of them, empty for those who may not know."""

    count: int
    names: tuple[str, ...]

    @property
    def faces(self) -> tuple[str, ...]:
        """As many as the head of a page shows."""
        return self.names[:3]

    @property
    def unseen(self) -> int:
        """Those beyond `faces`."""
        return self.count - len(self.faces)

    @property
    def unnamed(self) -> int:
        """Those beyond `names`."""
        return self.count - len(self.names)


def people_in(groups: Iterable[int]) -> dict[int, int]:
    """Active people and service accounts per group."""
    rows = Group.objects.filter(pk__in=list(groups), user__is_active=True)
    return dict(rows.values_list("pk").annotate(Count("user")).order_by())


def people_of(group_id: int, *, are_named: bool) -> People:
    """The active people and service accounts of one group, by name."""
    people = User.objects.filter(groups=group_id, is_active=True).order_by("username")
    names = tuple(str(one) for one in people[:MOST_NAMED]) if are_named else ()
    return People(people.count(), names)
