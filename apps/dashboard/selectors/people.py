"""The people that a policy applies to."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth.models import Group
from django.db.models import Count

from apps.policies.models import Policy
from apps.policies.selectors import people_of_policy, restricted_members_in_group

MOST_NAMED = 100


@dataclass(frozen=True, slots=True)
class People:
    """How many they are; `names` are the first of them, empty for those who may not know."""

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


def people_in(policies: Iterable[Policy]) -> dict[int, int]:
    """Active people and service accounts that each policy applies to, by its id."""
    every = list(policies)
    groups = Group.objects.filter(pk__in={p.group_id for p in every}, user__is_active=True)
    members = dict(groups.values_list("pk").annotate(Count("user")).order_by())
    restricted = [policy.pk for policy in every if policy.is_restricted]
    restricted_counts: dict[int, int] = {}
    if restricted:
        rows = restricted_members_in_group(restricted).filter(user__is_active=True)
        restricted_counts = dict(rows.values_list("policy").annotate(Count("pk")).order_by())
    return {
        policy.pk: restricted_counts.get(policy.pk, 0)
        if policy.is_restricted
        else members.get(policy.group_id, 0)
        for policy in every
    }


def people_of(policy: Policy, *, are_named: bool) -> People:
    """The active people and service accounts that a policy applies to, by name."""
    people = people_of_policy(policy).filter(is_active=True).order_by("username")
    names = tuple(str(one) for one in people[:MOST_NAMED]) if are_named else ()
    return People(people.count(), names)
