"""The page of access rules: filters, and rules as its rows show them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.urls import reverse

from apps.access.levels import Level, RuleKind
from apps.access.rules.delegation import (
    groups_nameable_by,
    levels_grantable_by,
    levels_grantable_on,
)
from apps.access.rules.rule import Rule, RuleFilter, Subject
from apps.access.rules.selectors import rules_visible_to
from apps.access.rules.sentences import source_sentence
from apps.access.selectors import policies_restrictable_by
from apps.accounts.models import User
from apps.accounts.models.grants import GrantSource
from apps.configuration.access_explanation import (
    AccessExplanation,
    ObjectKind,
    explanation,
    objects_visible_to,
    people_explainable_to,
)
from apps.core.errors import NotFound
from apps.tasks.models import Task

MOST_CHARS = 200
MOST_CHIPS = 6
_PAGES = {
    RuleKind.POLICY: "policy_detail",
    RuleKind.QUEUE: "queue_detail",
    RuleKind.VAULT: "vault_detail",
    RuleKind.VOLUME: "admin:nodes_volume_change",
    RuleKind.TASK: "task_detail",
}


@dataclass(frozen=True, slots=True)
class AccessQuery:
    """The filters of the list, from its address. Unknown words fall back to the default."""

    kind: str = ""
    object_id: str = ""
    name: str = ""
    level: str = ""
    source: str = ""
    subject: str = ""
    after: str = ""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """From the query of the page."""
        plain = {
            field: given.get(name, "").replace("\0", "").strip()[:MOST_CHARS]
            for field, name in (("object_id", "object"), ("name", "name"), ("subject", "subject"))
        }
        known = {
            "kind": RuleKind.values,
            "level": Level.values,
            "source": GrantSource.values,
        }
        chosen = {name: given.get(name, "") for name in known}
        choices = {name: text for name, text in chosen.items() if text in known[name]}
        return cls(**plain, **choices, after=given.get("after", "")[:1000])

    def query(self, *, after: str = "") -> str:
        """The same as a query, behind `after`."""
        values = {
            "kind": self.kind,
            "object": self.object_id,
            "name": self.name,
            "level": self.level,
            "source": self.source,
            "subject": self.subject,
            "after": after,
        }
        return urlencode({name: text for name, text in values.items() if text})


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule with what this person may do about it; `href` is the page of its object."""

    rule: Rule
    href: str
    subjects: tuple[Subject, ...]
    more: int
    may_edit: bool
    may_restrict: bool


@dataclass(frozen=True, slots=True)
class AccessPage:
    """A page of the list; `older` is the query of the next one."""

    rows: tuple[RuleRow, ...]
    older: str


def access_page(user: User, wanted: AccessQuery) -> AccessPage:
    """One page, in a fixed number of queries."""
    found = _filter(user, wanted)
    if found is None:
        return AccessPage((), "")
    page = rules_visible_to(user, found, after=wanted.after)
    levels = levels_grantable_on(user, {rule.target for rule in page.rules})
    own = {rule.target.object_id for rule in page.rules if rule.by_policy}
    restrictable = policies_restrictable_by(user).filter(pk__in=own).values_list("pk", flat=True)
    ids = {str(pk) for pk in restrictable}
    rows = tuple(_row(rule, levels[rule.target], ids) for rule in page.rules)
    return AccessPage(rows, wanted.query(after=page.after) if page.after else "")


def task_rules(user: User, task: Task) -> tuple[RuleRow, ...]:
    """The rules on a task, for users who may make them; none on a draft."""
    found = RuleFilter(kind=RuleKind.TASK, object_id=str(task.pk))
    return tuple(
        _row(rule, levels_grantable_by(user, rule.target), ())
        for rule in rules_visible_to(user, found).rules
    )


def _filter(user: User, wanted: AccessQuery) -> RuleFilter | None:
    """None where the reader may see no such person."""
    subject: dict[str, Any] = {}
    if wanted.subject:
        people = people_explainable_to(user).filter(username__iexact=wanted.subject)
        teams = groups_nameable_by(user).filter(name__iexact=wanted.subject)
        one = people.values_list("pk", flat=True).first()
        team = teams.values_list("pk", flat=True).first()
        if one is None and team is None:
            return None
        subject = {"user": one, "group": team}
    return RuleFilter(
        kind=RuleKind(wanted.kind) if wanted.kind else None,
        object_id=wanted.object_id,
        name=wanted.name,
        level=Level(wanted.level) if wanted.level else None,
        source=GrantSource(wanted.source) if wanted.source else None,
        **subject,
    )


def _row(rule: Rule, levels: tuple[Level, ...], restrictable: Collection[str]) -> RuleRow:
    target = rule.target
    page = _PAGES.get(target.kind)
    return RuleRow(
        rule=rule,
        href=reverse(page, args=[target.object_id]) if page and target.object_id else "",
        subjects=rule.subjects[:MOST_CHIPS],
        more=max(len(rule.subjects) - MOST_CHIPS, 0) + len(rule.hidden),
        may_edit=not rule.by_policy and rule.level in levels,
        may_restrict=rule.by_policy and target.object_id in restrictable,
    )


@dataclass(frozen=True, slots=True)
class PermissionRow:
    """A permission with its sentences."""

    label: str
    is_held: bool
    sources: tuple[str, ...]
    denials: tuple[str, ...]


def permission_rows(found: AccessExplanation) -> tuple[PermissionRow, ...]:
    """The answers as sentences."""
    return tuple(
        PermissionRow(
            label=str(answer.permission.label),
            is_held=answer.is_held,
            sources=tuple(source_sentence(one) for one in answer.sources),
            denials=tuple(source_sentence(one) for one in answer.reasons if one.is_denial),
        )
        for answer in found.answers
    )


def explain(viewer: User, *, user: str, thing: ObjectKind, named: str) -> AccessExplanation:
    """What the person can do with the object of this name or id.

    Raises:
        NotFound: nobody whom the viewer may ask about is called so, or no object.
    """
    person = people_explainable_to(viewer).filter(username=user).first() if user else viewer
    if person is None:
        problem = "There is no person with this name that you may ask about."
        raise NotFound(problem, fields={"user": problem})
    found = _object_id(objects_visible_to(viewer, thing), named)
    try:
        return explanation(viewer, person=person, thing=thing, object_id=found)
    except NotFound:
        problem = "There is no %(kind)s with this name or id that you may ask about."
        problem %= {"kind": thing.label.lower()}
        raise NotFound(problem, fields={"object": problem}) from None


def _object_id(rows: QuerySet[Any], named: str) -> str:
    """A name comes first: it may consist of digits."""
    by_name = rows.filter(name=named).values_list("pk", flat=True)[:2]
    if len(by_name) == 1:
        return str(by_name[0])
    return named
