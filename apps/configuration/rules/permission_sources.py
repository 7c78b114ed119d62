"""The sources of a user's right on a pool, a policy or a queue: each row, as a permission source.

`apps.policies.selectors` decides whether they hold it; this only names why.
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
from apps.configuration.rules.levels import RESOURCES, RuleKind
from apps.policies.models import Policy, PolicyMember


@dataclass(frozen=True, slots=True)
class PermissionSource:
    """One source of a right, or, with `is_denial`, what denies it.

    Args:
        code: the kind of source; `sentences.source_sentence` has a sentence for each.
        on: kind and name of the rule's target; the name is empty for all of a kind.
        group: the group that the rule names; empty if it names the person.
        by, at: the maker of the rule, and when, if known.
    """

    code: str
    on: tuple[str, str] = ("", "")
    group: str = ""
    by: str = ""
    at: datetime | None = None
    is_denial: bool = False


def permission_sources(person: User, verb: str, kind: RuleKind, row: Any) -> list[PermissionSource]:
    """Every source of the person's right on this object, then what denies it."""
    if not person.is_active:
        return [PermissionSource("deactivated", is_denial=True)]
    groups = {group.pk: group for group in groups_of(person)}
    found = list(_built_in(person, verb, kind))
    targets = [(kind, row), *([(RuleKind.POLICY, row.policy)] if kind is RuleKind.QUEUE else [])]
    policy = targets[-1][1]
    if isinstance(policy, Policy):
        # Exceeding a limit is read without tenants: it gives access to nothing by itself.
        if verb != "exceed_limit" and _is_other_tenants(person, policy):
            # Regardless of rules.
            return [*found, PermissionSource("other_tenant", is_denial=True)]
        found += _by_tenant(person, verb, policy)
    for on_kind, target in targets:
        found += _by_kind(person, groups, verb, on_kind)
        found += _by_rows(person, groups, verb, on_kind, target)
    if verb in {"view", "enqueue"} and isinstance(policy, Policy):
        found += _restricted(person, groups, policy)
    return found or [PermissionSource("nothing", is_denial=True)]


def _built_in(person: User, verb: str, kind: RuleKind) -> Iterator[PermissionSource]:
    """The sources from built-in groups; none of them gives the right to exceed a limit."""
    if verb == "exceed_limit":
        return
    if is_admin(person):
        yield PermissionSource("administrator")
    elif verb == "view" and kind is RuleKind.QUEUE and is_queue_admin(person):
        yield PermissionSource("queue_administrator")


def _is_other_tenants(person: User, policy: Policy) -> bool:
    """Whether the policy is of another tenant than the person."""
    own = tenants_of(person)
    is_of_none = policy.tenant_id is None or not own
    return not is_of_none and policy.tenant_id not in own and not is_admin(person)


def _by_tenant(person: User, verb: str, policy: Policy) -> Iterator[PermissionSource]:
    if verb != "exceed_limit" and policy.tenant_id in tenants_administered_by(person):
        yield PermissionSource("tenant_administrator", (RuleKind.POLICY.value, policy.name))


def _by_kind(
    person: User, groups: dict[int, Group], verb: str, kind: RuleKind
) -> Iterator[PermissionSource]:
    resource = RESOURCES[kind]
    if not resource.has_kind_rules or verb == "exceed_limit":
        return
    right = resource.permissions().filter(codename=resource.codename(verb))
    if right.filter(user=person).exists():
        yield PermissionSource("rule", (kind.value, ""))
    for pk in right.filter(group__in=groups).values_list("group", flat=True):
        yield PermissionSource("rule", (kind.value, ""), group=groups[pk].name)


def _by_rows(
    person: User, groups: dict[int, Group], verb: str, kind: RuleKind, target: Any
) -> Iterator[PermissionSource]:
    resource = RESOURCES[kind]
    right = {"content_object": target, "permission__codename": resource.codename(verb)}
    users = resource.by_user._default_manager.filter(user=person, **right)
    teams = resource.by_group._default_manager.filter(group__in=groups, **right)
    for row in _oldest_first(users):
        yield _source(row, (kind.value, target.name))
    for row in _oldest_first(teams):
        yield _source(row, (kind.value, target.name), groups[row.group_id].name)


def _source(row: Any, on: tuple[str, str], group: str = "") -> PermissionSource:
    if row.source == GrantSource.POLICY:
        return PermissionSource("policy_group" if group else "policy_member", on, group=group)
    by = row.created_by.username if row.created_by else ""
    return PermissionSource("rule", on, group=group, by=by, at=row.created_at)


def _restricted(person: User, groups: Iterable[int], policy: Policy) -> Iterator[PermissionSource]:
    """In the group, and the policy is restricted to others."""
    if not policy.is_restricted or policy.group_id not in groups:
        return
    if not PolicyMember.objects.filter(policy=policy, user=person).exists():
        on = (RuleKind.POLICY.value, policy.name)
        yield PermissionSource("policy_restricted", on, group=policy.group.name, is_denial=True)


def _oldest_first(rows: Any) -> Any:
    return rows.select_related("created_by").order_by("pk")
