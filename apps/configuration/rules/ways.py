"""By which ways somebody holds a right on a pool, a policy or a queue: each row, told as a reason.

Whether they hold it is for `apps.policies.selectors` to say; this only names why.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Group

from apps.accounts.models import User
from apps.accounts.models.grants import GrantSource
from apps.accounts.selectors import (
    groups_of,
    is_admin,
    is_queue_admin,
    tenants_administered_by,
    tenants_of,
)
from apps.configuration.rules.levels import RESOURCES, Kind
from apps.policies.models import Policy, PolicyChosen


@dataclass(frozen=True, slots=True)
class Reason:
    """One way to a right, or, with `is_against`, what stands in the way.

    Args:
        code: what kind of reason; `words.reason_words` has a sentence for each.
        on: kind and name of what the rule is about; the name is empty for all of a kind.
        group: through which group; empty where the person is named.
        by, at: who made the rule, and when, where that is known.
    """

    code: str
    on: tuple[str, str] = ("", "")
    group: str = ""
    by: str = ""
    at: datetime | None = None
    is_against: bool = False


def ways_to(person: User, verb: str, kind: Kind, row: Any) -> list[Reason]:
    """Every way by which the person holds the right on this object, then what stands against it."""
    if not person.is_active:
        return [Reason("deactivated", is_against=True)]
    groups = {group.pk: group for group in groups_of(person)}
    found = list(_standing(person, verb, kind))
    places = [(kind, row), *([(Kind.POLICY, row.policy)] if kind is Kind.QUEUE else [])]
    policy = places[-1][1]
    if isinstance(policy, Policy):
        # Who may exceed a limit is read without tenants: it opens nothing by itself.
        if verb != "exceed_limit" and _is_apart(person, policy):
            # Whatever rules say.
            return [*found, Reason("apart", is_against=True)]
        found += _of_tenant(person, verb, policy)
    for place, target in places:
        found += _by_kind(person, groups, verb, place)
        found += _by_rows(person, groups, verb, place, target)
    if verb in {"view", "enqueue"} and isinstance(policy, Policy):
        found += _not_chosen(person, groups, policy)
    return found or [Reason("nothing", is_against=True)]


def _standing(person: User, verb: str, kind: Kind) -> Iterator[Reason]:
    """What the built-in groups give; exceeding a limit is nothing that anybody has by itself."""
    if verb == "exceed_limit":
        return
    if is_admin(person):
        yield Reason("administrator")
    elif verb == "view" and kind is Kind.QUEUE and is_queue_admin(person):
        yield Reason("queue_administrator")


def _is_apart(person: User, policy: Policy) -> bool:
    """Whether the policy is of another tenant than the person."""
    own = tenants_of(person)
    is_of_none = policy.tenant_id is None or not own
    return not is_of_none and policy.tenant_id not in own and not is_admin(person)


def _of_tenant(person: User, verb: str, policy: Policy) -> Iterator[Reason]:
    if verb != "exceed_limit" and policy.tenant_id in tenants_administered_by(person):
        yield Reason("tenant_administrator", (Kind.POLICY.value, policy.name))


def _by_kind(person: User, groups: dict[int, Group], verb: str, kind: Kind) -> Iterator[Reason]:
    resource = RESOURCES[kind]
    if not resource.has_kind_rules or verb == "exceed_limit":
        return
    right = resource.known().filter(codename=resource.codename(verb))
    if right.filter(user=person).exists():
        yield Reason("rule", (kind.value, ""))
    for pk in right.filter(group__in=groups).values_list("group", flat=True):
        yield Reason("rule", (kind.value, ""), group=groups[pk].name)


def _by_rows(
    person: User, groups: dict[int, Group], verb: str, kind: Kind, target: Any
) -> Iterator[Reason]:
    resource = RESOURCES[kind]
    right = {"content_object": target, "permission__codename": resource.codename(verb)}
    users = resource.by_user._default_manager.filter(user=person, **right)
    teams = resource.by_group._default_manager.filter(group__in=groups, **right)
    for row in _oldest_first(users):
        yield _reason(row, (kind.value, target.name))
    for row in _oldest_first(teams):
        yield _reason(row, (kind.value, target.name), groups[row.group_id].name)


def _reason(row: Any, on: tuple[str, str], group: str = "") -> Reason:
    if row.source == GrantSource.POLICY:
        return Reason("policy_group" if group else "chosen", on, group=group)
    by = row.created_by.username if row.created_by else ""
    return Reason("rule", on, group=group, by=by, at=row.created_at)


def _not_chosen(person: User, groups: Iterable[int], policy: Policy) -> Iterator[Reason]:
    """In the group, and the policy is narrowed to others."""
    if not policy.is_narrowed or policy.group_id not in groups:
        return
    if not PolicyChosen.objects.filter(policy=policy, user=person).exists():
        on = (Kind.POLICY.value, policy.name)
        yield Reason("not_chosen", on, group=policy.group.name, is_against=True)


def _oldest_first(rows: Any) -> Any:
    return rows.select_related("created_by").order_by("pk")
