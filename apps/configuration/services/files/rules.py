"""Access rules of a configuration file: each with exactly the subjects that it names."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from django.contrib.auth.models import Group

from apps.access.levels import Level, RuleKind
from apps.access.rules.rows import rules_of
from apps.access.rules.rule import Rule, Target
from apps.access.rules.selectors import targets_open_to
from apps.accounts.models import User
from apps.configuration.services.files.places import at
from apps.configuration.services.rules import RuleSubjects, rule_change, rule_grant, rule_remove
from apps.core.errors import BadInput
from apps.core.suggestions import did_you_mean
from apps.policies.document import DocumentChange, RuleEntry, RuleName

# Objects of these kinds have names of their own; those of others may share one.
KINDS = (RuleKind.POLICY, RuleKind.QUEUE, RuleKind.POOL, RuleKind.VOLUME)


def rule_entries(actor: User) -> list[RuleEntry]:
    """The rules that people made, as a file has them."""
    targets = [target for target in targets_open_to(actor) if target.kind in KINDS]
    return [_entry(rule) for rule in rules_of(targets) if not rule.by_policy]


def rules_apply(
    actor: User, entries: Sequence[RuleEntry], removed: Iterable[RuleName], *, is_pruned: bool
) -> list[DocumentChange]:
    """Make each rule as the file has it, and remove those that it removes.

    Args:
        is_pruned: remove all others as well.
    """
    _check_subjects_once(entries)
    labels = {entry.label.lower() for entry in entries}
    if is_pruned:
        others = (one for one in rule_entries(actor) if one.label.lower() not in labels)
        removed = [*removed, *others]
    targets = {
        (target.kind.value, target.name.lower()): target
        for target in targets_open_to(actor)
        if target.kind in KINDS
    }
    changes = []
    for index, entry in enumerate(entries):
        with at(f"rules[{index}]"):
            changes += _rule_apply(actor, _target(entry, targets), entry)
    for index, name in enumerate(removed):
        with at(f"remove.rules[{index}]"):
            _check_not_named(name, labels)
            target = targets.get((name.kind, name.name.strip().lower()))
            changes += _rule_remove(actor, target, name) if target is not None else []
    return changes


def _check_not_named(name: RuleName, labels: Collection[str]) -> None:
    if name.label.lower() in labels:
        problem = "is in rules, too"
        raise BadInput(f"The rule {name.label} {problem}.", fields={"name": problem})


def _target(entry: RuleName, targets: dict[tuple[str, str], Target]) -> Target:
    target = targets.get((entry.kind, entry.name.strip().lower()))
    if target is not None:
        return target
    if not entry.name:
        problem = f"is needed: there are no rules on every {entry.kind}"
    else:
        known = [one.name for one in targets.values() if one.kind.value == entry.kind]
        problem = f"there is no {entry.kind} {entry.name!r}{did_you_mean(entry.name, known)}"
    raise BadInput(f"name: {problem}.", fields={"name": problem})


def _rule_apply(actor: User, target: Target, entry: RuleEntry) -> list[DocumentChange]:
    level = Level(entry.level)
    subjects = RuleSubjects(
        _rows(User.objects.all(), "username", entry.users, "users"),
        _rows(Group.objects.all(), "name", entry.groups, "groups"),
    )
    if not subjects.rows:
        problem = "name users or groups; to remove the rule, list it in remove.rules"
        raise BadInput(f"{problem}.", fields={"users": problem})
    old = _rule(target, level)
    before, after = _subjects(old), _named(entry)
    if before == after:
        return []
    if old is None:
        rule_grant(actor=actor, target=target, level=level, subjects=subjects)
    else:
        rule_change(actor=actor, target=target, level=level, subjects=subjects)
    if old is None:
        return [DocumentChange(kind="rules", name=entry.label, what="added", after=after)]
    change = DocumentChange(
        kind="rules",
        name=entry.label,
        what="changed",
        field="subjects",
        before=before,
        after=after,
    )
    return [change]


def _rule_remove(actor: User, target: Target, name: RuleName) -> list[DocumentChange]:
    old = _rule(target, Level(name.level))
    if old is None:
        return []
    rule_remove(actor=actor, target=target, level=old.level)
    return [DocumentChange(kind="rules", name=name.label, what="removed", before=_subjects(old))]


def _rule(target: Target, level: Level) -> Rule | None:
    found = rules_of([target])
    return next((one for one in found if one.level is level and not one.by_policy), None)


def _entry(rule: Rule) -> RuleEntry:
    return RuleEntry(
        kind=rule.target.kind.value,  # type: ignore[arg-type]  # one of KINDS
        name=rule.target.name,
        level=rule.level.value,  # type: ignore[arg-type]  # of these kinds
        users=tuple(one.name for one in rule.subjects if not one.is_group),
        groups=tuple(one.name for one in rule.subjects if one.is_group),
    )


def _subjects(rule: Rule | None) -> list[str]:
    return _named(_entry(rule)) if rule is not None else []


def _named(entry: RuleEntry) -> list[str]:
    """The subjects, sorted: `group dev` and `alice`."""
    return sorted({*(f"group {name}" for name in entry.groups), *entry.users})


def _rows(rows: Any, column: str, names: Sequence[str], field: str) -> tuple[Any, ...]:
    found = {getattr(row, column): row for row in rows.filter(**{f"{column}__in": names})}
    for name in names:
        if name not in found:
            problem = f"{name!r} is not known"
            raise BadInput(f"{field}: {problem}.", fields={field: problem})
    return tuple(found.values())


def _check_subjects_once(entries: Sequence[RuleEntry]) -> None:
    """A subject has one level on a target: of two, the later one would take the place."""
    seen: dict[tuple[str, str, str], int] = {}
    for index, entry in enumerate(entries):
        is_exceeding = Level(entry.level) is Level.EXCEED
        for subject in _named(entry):
            key = (f"{entry.kind} {entry.name.lower()}", subject, str(is_exceeding))
            if key in seen:
                problem = f"{subject} has a level there in rules[{seen[key]}] already"
                raise BadInput(f"rules[{index}] {problem}.", fields={f"rules[{index}]": problem})
            seen[key] = index
