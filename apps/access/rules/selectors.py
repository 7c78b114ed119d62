"""The access rules that a user sees: all for administrators, else those of what they manage."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Exists, OuterRef, Q, QuerySet

from apps.access.isolation import rules_without_other_tenants
from apps.access.levels import (
    LEVEL_ORDER,
    RESOURCES,
    Level,
    Resource,
    RuleKind,
    RuleSource,
)
from apps.access.rules.rows import rules_of
from apps.access.rules.rule import ALL, Rule, RuleFilter, RulePage, Target
from apps.access.selectors import policies_managed_by, queues_managed_by
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core.errors import BadInput
from apps.vaults.models import Vault

PAGE = 50


def sees_rules(user: User) -> bool:
    """Whether this person may see the list of rules."""
    return is_admin(user) or policies_managed_by(user).exists() or queues_managed_by(user).exists()


def rules_visible_to(
    user: User, wanted: RuleFilter, *, after: str = "", limit: int = PAGE
) -> RulePage:
    """The rules of what the user manages, all for administrators; a fixed number of queries.

    Args:
        after: the cursor from the page before.
        limit: how many targets a page has; each has a few rules.

    Raises:
        BadInput: `after` is not a cursor of a page.
    """
    targets = sorted(_targets(user, wanted), key=lambda one: one.sort_key)
    start = _offset_after(targets, after)
    shown = targets[start : start + limit]
    visible = rules_without_other_tenants(user, rules_of(shown))
    rules = [rule for rule in visible if _matches(rule, wanted)]
    more = len(targets) > start + limit
    return RulePage(tuple(rules), _cursor(shown[-1]) if more else "")


def rule_by_key(user: User, key: str) -> Rule | None:
    """The rule of this key; None if there is none that the person may see."""
    parts = key.split(".")
    try:
        kind, object_id, level, source = parts
        wanted = RuleFilter(
            RuleKind(kind), object_id, level=Level(level), source=RuleSource(source)
        )
    except ValueError:
        return None
    found = rules_visible_to(user, wanted).rules
    return next((rule for rule in found if rule.key == key), None)


def target_of(user: User, kind: RuleKind, object_id: str) -> Target | None:
    """The object whose rules the person sees; with ALL or nothing, the kind itself."""
    if object_id in {"", ALL}:
        return Target(kind) if is_admin(user) and RESOURCES[kind].has_kind_rules else None
    pk = _id_of(RESOURCES[kind], object_id)
    row = _managed_rows(user, RESOURCES[kind]).filter(pk=pk).first() if pk is not None else None
    return Target(kind, str(row.pk), str(row)) if row is not None else None


def targets_open_to(user: User) -> list[Target]:
    """The targets on which this person may make rules, kinds first."""
    found = []
    for kind, resource in RESOURCES.items():
        if is_admin(user) and resource.has_kind_rules:
            found.append(Target(kind))
        rows = _managed_rows(user, resource).order_by().values_list("pk", "name")
        found += [Target(kind, str(pk), name) for pk, name in rows]
    return sorted(found, key=lambda one: one.sort_key)


# --- targets ---------------------------------------------------------------------------------


def _managed_rows(user: User, resource: Resource) -> QuerySet[Any]:
    """The objects of a kind whose rules this person sees."""
    if is_admin(user):
        live: QuerySet[Any] = resource.model._default_manager.filter(removed_at__isnull=True)
        return live.filter(group__isnull=False) if resource.model is Vault else live
    if resource.kind is RuleKind.POLICY:
        return policies_managed_by(user)
    if resource.kind is RuleKind.QUEUE:
        return queues_managed_by(user)
    return resource.model._default_manager.none()  # type: ignore[no-any-return]  # any model's


def _targets(user: User, wanted: RuleFilter) -> list[Target]:
    targets = []
    for kind, resource in RESOURCES.items():
        if wanted.kind not in {None, kind}:
            continue
        if wanted.level is not None and wanted.level not in resource.verbs:
            continue
        if wanted.object_id in {"", ALL} and not wanted.name and is_admin(user):
            targets += _kind_target(resource, wanted)
        if wanted.object_id != ALL:
            targets += _object_targets(user, resource, wanted)
    return targets


def _object_targets(user: User, resource: Resource, wanted: RuleFilter) -> list[Target]:
    rows = _managed_rows(user, resource)
    if wanted.object_id:
        pk = _id_of(resource, wanted.object_id)
        if pk is None:
            return []
        rows = rows.filter(pk=pk)
    if wanted.name:
        rows = rows.filter(name__icontains=wanted.name)
    has_rules = Q(Exists(_matching_rows(resource, resource.by_user, "user", wanted))) | Q(
        Exists(_matching_rows(resource, resource.by_group, "group", wanted))
    )
    if resource.kind is RuleKind.POLICY and wanted.user is None and wanted.group is None:
        # A policy restricted to nobody has no rows, and is shown nevertheless.
        has_rules |= Q(is_restricted=True)
    found = rows.filter(has_rules).order_by().values_list("pk", "name")
    return [Target(resource.kind, str(pk), name) for pk, name in found]


def _matching_rows(
    resource: Resource, model: type[Any], who: str, wanted: RuleFilter
) -> QuerySet[Any]:
    """Rows of the outer object that belong to a matching rule."""
    rows = model._default_manager.filter(content_object=OuterRef("pk"))
    if wanted.source is not None:
        rows = rows.filter(source=wanted.source.value)
    if wanted.user is not None or wanted.group is not None:
        given = wanted.user if who == "user" else wanted.group
        rows = rows.filter(**{f"{who}_id": given}) if given is not None else rows.none()
    if wanted.level is None:
        return rows  # type: ignore[no-any-return]  # any model's
    rows = rows.filter(permission__codename=resource.codenames(wanted.level)[-1])
    same = model._default_manager.filter(
        content_object=OuterRef("content_object"),
        source=OuterRef("source"),
        permission__codename__in=_higher_codenames(resource, wanted.level),
        **{f"{who}_id": OuterRef(f"{who}_id")},
    )
    return rows.exclude(Exists(same))  # type: ignore[no-any-return]  # any model's


def _higher_codenames(resource: Resource, level: Level) -> list[str]:
    """The permissions of the levels that include this one."""
    if level not in LEVEL_ORDER:
        return []
    higher = LEVEL_ORDER[LEVEL_ORDER.index(level) + 1 :]
    return [resource.codenames(one)[-1] for one in higher if one in resource.verbs]


def _kind_target(resource: Resource, wanted: RuleFilter) -> list[Target]:
    if not resource.has_kind_rules or wanted.source is RuleSource.POLICY:
        return []
    return [Target(resource.kind)]


def _id_of(resource: Resource, text: str) -> Any:
    """The id as its column stores it; None for an invalid one."""
    try:
        pk = resource.model._meta.pk.to_python(text)
    except ValidationError:
        return None
    # Larger numbers are no ids, and SQLite cannot even hold them.
    return None if isinstance(pk, int) and not 0 < pk < 2**63 else pk


def _cursor(target: Target) -> str:
    return urlsafe_b64encode(json.dumps(target.sort_key).encode()).decode()


def _offset_after(targets: Sequence[Target], after: str) -> int:
    """How many targets come before the cursor `after`, whose target may be gone."""
    if not after:
        return 0
    try:
        kind, name, key = json.loads(urlsafe_b64decode(after.encode()))
        return bisect_right(targets, (int(kind), str(name), str(key)), key=lambda one: one.sort_key)
    except (ValueError, TypeError) as error:
        wrong = "is not a cursor of this list"
        raise BadInput(f"cursor {wrong}.", fields={"cursor": wrong}) from error


def _matches(rule: Rule, wanted: RuleFilter) -> bool:
    if wanted.level is not None and rule.level is not wanted.level:
        return False
    if wanted.source is not None and rule.source is not wanted.source:
        return False
    if wanted.user is None and wanted.group is None:
        return True
    named = {(one.is_group, one.id) for one in rule.subjects}
    return (False, wanted.user) in named or (True, wanted.group) in named
