"""To whom a policy applies."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth.models import Group
from django.db.models import Count

from apps.policies.models import Policy
from apps.policies.rights import chosen_members, people_of_policy

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
    """Active people and service accounts to whom each policy applies, by its id."""
    every = list(policies)
    groups = Group.objects.filter(pk__in={p.group_id for p in every}, user__is_active=True)
    members = dict(groups.values_list("pk").annotate(Count("user")).order_by())
    narrowed = [policy.pk for policy in every if policy.is_narrowed]
    chosen: dict[int, int] = {}
    if narrowed:
        rows = chosen_members(narrowed).filter(user__is_active=True)
        chosen = dict(rows.values_list("policy").annotate(Count("pk")).order_by())
    return {
        policy.pk: chosen.get(policy.pk, 0)
        if policy.is_narrowed
        else members.get(policy.group_id, 0)
        for policy in every
    }


def people_of(policy: Policy, *, are_named: bool) -> People:
    """The active people and service accounts to whom a policy applies, by name."""
    people = people_of_policy(policy).filter(is_active=True).order_by("username")
    names = tuple(str(one) for one in people[:MOST_NAMED]) if are_named else ()
    return People(people.count(), names)
