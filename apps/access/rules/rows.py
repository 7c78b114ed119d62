"""Rows of guardian and permissions of Django, grouped into rules.

Nothing else is stored of a rule: it exists as long as its rows do.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Group

from apps.access.levels import (
    LEVEL_ORDER,
    RESOURCES,
    Level,
    Resource,
    RuleKind,
    highest,
)
from apps.access.rules.rule import Rule, Subject, Target, subject_of
from apps.accounts.models import User
from apps.accounts.models.grants import GrantSource
from apps.policies.models import Policy


@dataclass(slots=True)
class _SubjectRows:
    """The rows of one subject on one target from one source."""

    codenames: set[str] = field(default_factory=set)
    makers: set[int] = field(default_factory=set)
    at: datetime | None = None


# Target, source, whether it is a group, and its id.
_Holder = tuple[Target, GrantSource, bool, int]


def rules_of(targets: Sequence[Target]) -> list[Rule]:
    """The rules of these targets, in their order, the highest level first."""
    found = _rows(targets)
    restricted = _restricted(targets)
    names = _Names.of(found)
    grouped: dict[tuple[Target, GrantSource, Level], list[_Holder]] = defaultdict(list)
    for holder, rows in found.items():
        resource = RESOURCES[holder[0].kind]
        for level in _levels(resource, rows.codenames):
            grouped[holder[0], holder[1], level].append(holder)
    places = {target: at for at, target in enumerate(targets)}
    rules = [
        _rule(key, holders, found, names, is_restricted=key[0].object_id in restricted)
        for key, holders in grouped.items()
    ]
    rules += [
        Rule(target, Level.MODIFY, GrantSource.POLICY, (), (), None, is_restricted=True)
        for target in targets
        if target.kind is RuleKind.POLICY
        and target.object_id in restricted
        and (target, GrantSource.POLICY, Level.MODIFY) not in grouped
    ]
    order = list(Level)[::-1]
    return sorted(
        rules,
        key=lambda r: (places[r.target], r.source != GrantSource.POLICY, order.index(r.level)),
    )


def _rows(targets: Iterable[Target]) -> dict[_Holder, _SubjectRows]:
    found: dict[_Holder, _SubjectRows] = defaultdict(_SubjectRows)
    by_kind: dict[RuleKind, dict[str, Target]] = defaultdict(dict)
    for target in targets:
        by_kind[target.kind][target.object_id] = target
    for kind, known in by_kind.items():
        resource = RESOURCES[kind]
        ids = [pk for pk in known if pk]
        for model, who in ((resource.by_user, "user"), (resource.by_group, "group")):
            rows = model._default_manager.filter(content_object__in=ids).values_list(
                "content_object_id",
                "source",
                f"{who}_id",
                "permission__codename",
                "created_by_id",
                "created_at",
            )
            for pk, source, subject, codename, maker, at in rows:
                one = found[known[str(pk)], GrantSource(source), who == "group", subject]
                one.codenames.add(codename)
                one.makers |= {maker} - {None}
                one.at = max(filter(None, (one.at, at)), default=None)
    _kind_rows([known[""] for known in by_kind.values() if "" in known], found)
    return found


def _kind_rows(targets: Sequence[Target], found: dict[_Holder, _SubjectRows]) -> None:
    """Rules from Django's own permissions, which do not record who made them."""
    names = {
        RESOURCES[target.kind].codename(verb): target
        for target in targets
        for verbs in RESOURCES[target.kind].verbs.values()
        for verb in verbs
    }
    sources: tuple[tuple[type[Any], str], ...] = (
        (User.user_permissions.through, "user"),
        (Group.permissions.through, "group"),
    )
    for model, who in sources if names else ():
        rows = model._default_manager.filter(
            permission__codename__in=names, permission__content_type__app_label="policies"
        )
        for subject, codename in rows.values_list(f"{who}_id", "permission__codename"):
            holder = names[codename], GrantSource.PERSON, who == "group", subject
            found[holder].codenames.add(codename)


def _levels(resource: Resource, codenames: Iterable[str]) -> list[Level]:
    """The highest of the levels that include each other, and exceeding next to it."""
    known = {resource.level_of(name) for name in codenames} - {None}
    levels = [level for level in known if level is not None]
    ranked = [level for level in levels if level in LEVEL_ORDER]
    return [
        *([highest(ranked)] if ranked else []),
        *(one for one in levels if one not in LEVEL_ORDER),
    ]


def _restricted(targets: Iterable[Target]) -> set[str]:
    ids = [
        target.object_id
        for target in targets
        if target.kind is RuleKind.POLICY and target.object_id
    ]
    rows = Policy.objects.filter(pk__in=ids, is_restricted=True)
    return {str(pk) for pk in rows.values_list("pk", flat=True)}


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of the subjects and makers of rules."""

    people: Mapping[int, Subject]
    groups: Mapping[int, Subject]

    @classmethod
    def of(cls, found: Mapping[_Holder, _SubjectRows]) -> "_Names":
        users = {pk for _, _, is_group, pk in found if not is_group}
        groups = {pk for _, _, is_group, pk in found if is_group}
        makers = {pk for rows in found.values() for pk in rows.makers}
        rows = User.objects.filter(pk__in=users | makers).only(
            "username", "first_name", "last_name", "is_service"
        )
        return cls(
            {one.pk: subject_of(one) for one in rows},
            {one.pk: subject_of(one) for one in Group.objects.filter(pk__in=groups)},
        )


def _rule(
    key: tuple[Target, GrantSource, Level],
    holders: Iterable[_Holder],
    found: Mapping[_Holder, _SubjectRows],
    names: _Names,
    *,
    is_restricted: bool,
) -> Rule:
    target, source, level = key
    subjects = [(names.groups if is_group else names.people)[pk] for _, _, is_group, pk in holders]
    makers = {maker for holder in holders for maker in found[holder].makers}
    times = [at for holder in holders if (at := found[holder].at) is not None]
    return Rule(
        target,
        level,
        source,
        tuple(sorted(subjects, key=_by_name)),
        tuple(sorted((names.people[pk] for pk in makers if pk in names.people), key=_by_name)),
        max(times, default=None),
        is_restricted=source is GrantSource.POLICY and is_restricted,
    )


def _by_name(one: Subject) -> tuple[bool, str, int]:
    """Sort by name, groups first."""
    return not one.is_group, one.name.lower(), one.id
