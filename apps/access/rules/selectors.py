"""The access rules that a user sees: all for administrators, else those of what they manage."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
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
)
from apps.access.permissions import rows_with_permission
from apps.access.rules.rows import rules_of
from apps.access.rules.rule import ALL, Rule, RuleFilter, RulePage, Target
from apps.access.selectors import policies_managed_by, queues_managed_by
from apps.accounts.models import User
from apps.accounts.models.grants import GrantSource
from apps.accounts.selectors import is_admin
from apps.core.errors import BadInput

PAGE = 50
# `Target.sort_key`.
Position = tuple[int, str, str]


def sees_rules(user: User) -> bool:
    """Whether this person may see the list of rules: who manages something, or made rules."""
    if is_admin(user) or policies_managed_by(user).exists() or queues_managed_by(user).exists():
        return True
    # By the index of makers: looking for their tasks with rules would read all their tasks.
    many = [one for one in RESOURCES.values() if not one.has_few]
    return any(
        rows._default_manager.filter(created_by=user).exists()
        for resource in many
        for rows in (resource.by_user, resource.by_group)
    )


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
    at = _position(after)
    start = bisect_right(targets, at, key=lambda one: one.sort_key) if at else 0
    shown = targets[start : start + limit + 1]
    shown += _targets_of_many(user, wanted, at, limit + 1 - len(shown))
    more, shown = len(shown) > limit, shown[:limit]
    visible = rules_without_other_tenants(user, rules_of(shown))
    rules = [rule for rule in visible if _matches(rule, wanted)]
    return RulePage(tuple(rules), _cursor(shown[-1]) if more else "")


def rule_by_key(user: User, key: str) -> Rule | None:
    """The rule of this key; None if there is none that the person may see."""
    parts = key.split(".")
    try:
        kind, object_id, level, source = parts
        wanted = RuleFilter(
            RuleKind(kind), object_id, level=Level(level), source=GrantSource(source)
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
    if pk is None:
        return None
    names = _managed_rows(user, RESOURCES[kind]).filter(pk=pk).order_by()
    return next(
        (Target(kind, str(pk), str(name)) for name in names.values_list("name", flat=True)), None
    )


def targets_open_to(user: User) -> list[Target]:
    """The targets of a form, on which this person may make rules: kinds first, and few objects."""
    found = []
    for kind, resource in RESOURCES.items():
        if not resource.has_few:
            continue
        if is_admin(user) and resource.has_kind_rules:
            found.append(Target(kind))
        rows = _managed_rows(user, resource).order_by().values_list("pk", "name")
        found += [Target(kind, str(pk), name) for pk, name in rows]
    return sorted(found, key=lambda one: one.sort_key)


# --- targets ---------------------------------------------------------------------------------


def _managed_rows(user: User, resource: Resource) -> QuerySet[Any]:
    """The objects of a kind whose rules this person sees."""
    if is_admin(user):
        live: QuerySet[Any] = resource.model._default_manager.filter(resource.live)
        return live.filter(resource.ruled)
    if resource.is_managed:
        return rows_with_permission(resource.model, user, "manage").filter(resource.ruled)
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
        if wanted.object_id != ALL and resource.has_few:
            targets += _object_targets(user, resource, wanted)
    return targets


def _targets_of_many(
    user: User, wanted: RuleFilter, after: Position | None, most: int
) -> list[Target]:
    """The next targets of kinds with many objects, which are the last of the list.

    They are found from the rows of rules: most objects have none.
    """
    found: list[Target] = []
    for kind, resource in RESOURCES.items():
        is_wanted = wanted.kind in {None, kind} and wanted.level in {None, *resource.verbs}
        if resource.has_few or not is_wanted or wanted.object_id == ALL or len(found) >= most:
            continue
        given = [
            _rows_about(wanted, model, who).order_by().values("content_object")
            for model, who in ((resource.by_user, "user"), (resource.by_group, "group"))
        ]
        rows = _managed_rows(user, resource).filter(pk__in=given[0].union(given[1]))
        rows = _named_rows(rows, resource, wanted)
        if after is not None and after[0] == list(RuleKind).index(kind):
            last = _id_of(resource, after[2].partition(".")[2])
            rows = rows.filter(pk__gt=last) if last is not None else rows.none()
        names = rows.order_by("pk").values_list("pk", "name")[: most - len(found)]
        found += [Target(kind, str(pk), name) for pk, name in names]
    return found


def _named_rows(rows: QuerySet[Any], resource: Resource, wanted: RuleFilter) -> QuerySet[Any]:
    """The objects of the id and the part of a name that the filter has."""
    if wanted.object_id:
        pk = _id_of(resource, wanted.object_id)
        rows = rows.filter(pk=pk) if pk is not None else rows.none()
    return rows.filter(name__icontains=wanted.name) if wanted.name else rows


def _rows_about(wanted: RuleFilter, model: type[Any], who: str) -> QuerySet[Any]:
    """The rows of the source and the subject that the filter names."""
    rows: QuerySet[Any] = model._default_manager.all()
    if wanted.source is not None:
        rows = rows.filter(source=wanted.source.value)
    if wanted.user is None and wanted.group is None:
        return rows
    given = wanted.user if who == "user" else wanted.group
    return rows.filter(**{f"{who}_id": given}) if given is not None else rows.none()


def _object_targets(user: User, resource: Resource, wanted: RuleFilter) -> list[Target]:
    rows = _named_rows(_managed_rows(user, resource), resource, wanted)
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
    rows = _rows_about(wanted, model, who).filter(content_object=OuterRef("pk"))
    if wanted.level is None:
        return rows
    rows = rows.filter(permission__codename=resource.codenames(wanted.level)[-1])
    same = model._default_manager.filter(
        content_object=OuterRef("content_object"),
        source=OuterRef("source"),
        permission__codename__in=_higher_codenames(resource, wanted.level),
        **{f"{who}_id": OuterRef(f"{who}_id")},
    )
    return rows.exclude(Exists(same))


def _higher_codenames(resource: Resource, level: Level) -> list[str]:
    """The permissions of the levels that include this one."""
    if level not in LEVEL_ORDER:
        return []
    higher = LEVEL_ORDER[LEVEL_ORDER.index(level) + 1 :]
    return [resource.codenames(one)[-1] for one in higher if one in resource.verbs]


def _kind_target(resource: Resource, wanted: RuleFilter) -> list[Target]:
    if not resource.has_kind_rules or wanted.source is GrantSource.POLICY:
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


def _position(after: str) -> Position | None:
    """The place in the list that the cursor names; its target may be gone."""
    if not after:
        return None
    try:
        kind, name, key = json.loads(urlsafe_b64decode(after.encode()))
        return int(kind), str(name), str(key)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
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
