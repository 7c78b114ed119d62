"""Making, changing and removing access rules. One rule names many and is written as one."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction

from apps.accounts.models import User
from apps.accounts.services.groups import rights_changed
from apps.configuration.rules.granting import (
    groups_nameable_by,
    levels_grantable_by,
    people_nameable_by,
)
from apps.configuration.rules.levels import RANKS, RESOURCES, Level
from apps.configuration.rules.reading import target_of
from apps.configuration.rules.rows import rules_of
from apps.configuration.rules.rule import Rule, Target
from apps.configuration.rules.walls import hidden_from, stranger_named
from apps.configuration.services.exceeding import policy_set_exceeding
from apps.configuration.services.rows import live_lock
from apps.configuration.services.rule_rows import levels_set, subjects_of
from apps.core.errors import BadInput, NotAllowed, NotFound, Stale
from apps.events.services import event_record
from apps.policies.models import Policy

MOST_SUBJECTS = 2000
MOST_NAMED = 50
Row = User | Group


@dataclass(frozen=True, slots=True)
class Named:
    """Whom a rule shall name."""

    users: tuple[User, ...] = ()
    groups: tuple[Group, ...] = ()

    @property
    def every(self) -> tuple[Row, ...]:
        return (*self.users, *self.groups)


@transaction.atomic
def rule_give(*, actor: User, target: Target, level: Level, named: Named) -> Rule:
    """Give these people and groups the level on the target; others keep what they have.

    Who has another level there by a rule of people has this one afterwards.

    Raises:
        BadInput: nobody is named, or somebody whom the actor may not name.
        NotAllowed: the actor does not hold that much there.
        NotFound: there is no such object any more.
    """
    target = _locked(actor, target, level)
    _check_level(actor, target, level)
    if not named.every:
        raise _bad_subjects("name somebody")
    _check_named(actor, target, named, known=())
    before = rules_of([target])
    if level in RANKS:
        levels_set(target, dict.fromkeys(named.every, level), actor=actor)
    else:
        known = named_by(_found(before, level))
        _exceed(actor, target, [*known.users, *named.users], [*known.groups, *named.groups])
    given = _told(actor, target, level, before)
    if given is None:
        raise NotFound("There is no such rule any more.")
    return given


@transaction.atomic
def rule_change(
    *,
    actor: User,
    target: Target,
    level: Level,
    new_level: Level | None = None,
    named: Named,
    version: str | None = None,
) -> Rule | None:
    """Let the rule name exactly these, on its level or on a new one.

    Returns:
        The rule; None where it names nobody any more, and is gone.

    Raises:
        Stale: the rule is not the one of this version any more.
        Everything that `rule_give` raises.
    """
    wanted = new_level or level
    target = _locked(actor, target, level)
    for one in {level, wanted}:
        _check_level(actor, target, one)
    if (level in RANKS) != (wanted in RANKS):
        problem = f"a rule of level {level.value} cannot become one of level {wanted.value}"
        raise BadInput(f"level: {problem}.", fields={"level": problem})
    before = rules_of([target])
    rule = _found(before, level)
    if rule is None:
        raise NotFound("There is no such rule any more.")
    if version is not None and version != rule.version:
        raise Stale("Somebody changed this rule meanwhile: look at it again.")
    known = named_by(rule)
    # Who is raised is given something new: that is for those whom the actor may name.
    is_raised = wanted in RANKS and RANKS.index(wanted) > RANKS.index(level)
    _check_named(actor, target, named, known=() if is_raised else known.every)
    kept = _kept(actor, rule, named)
    if level in RANKS:
        leaving = set(known.every) - set(named.every) - set(kept.every)
        changes: dict[Row, Level | None] = dict.fromkeys(leaving)
        levels_set(target, {**changes, **dict.fromkeys(named.every, wanted)}, actor=actor)
    else:
        _exceed(actor, target, [*named.users, *kept.users], [*named.groups, *kept.groups])
    return _told(actor, target, wanted, before)


def rule_remove(*, actor: User, target: Target, level: Level, version: str | None = None) -> None:
    """Take the rule away: from the next request on nobody has a right by it.

    Tasks that wait stay in line, as when somebody leaves a group.

    Raises:
        Everything that `rule_change` raises.
    """
    rule_change(actor=actor, target=target, level=level, named=Named(), version=version)


def named_by(rule: Rule | None) -> Named:
    """The rows of those whom a rule names, as far as its reader is told."""
    users, groups = subjects_of(rule.subjects if rule is not None else ())
    return Named(users, groups)


def _kept(actor: User, rule: Rule, named: Named) -> Named:
    """Of whom the actor is not told stays as they are, unless the rule goes as a whole."""
    if not named.every:
        return Named()
    return Named(*subjects_of(hidden_from(actor, rule.subjects)))


# --- parts -----------------------------------------------------------------------------------


def _locked(actor: User, target: Target, level: Level) -> Target:
    """The target as it is now, held against other writers of its rules and its removal."""
    resource = RESOURCES[target.kind]
    if level not in RANKS:
        # What changes the limits of waiting tasks waits for the live side; that comes first.
        live_lock()
    rows: Any = resource.model._default_manager.select_for_update(no_key=True, of=("self",))
    if target.object_id:
        rows = rows.filter(pk=target.object_id, removed_at__isnull=True)
    else:
        # All rules on kinds are few: whoever writes one waits for the others.
        rows = resource.known().select_for_update(no_key=True, of=("self",))
    held = list(rows)
    found = target_of(actor, target.kind, target.object_id) if held else None
    if found is None:
        raise NotFound("There is no such object, or you may not see its rules.")
    return found


def _check_level(actor: User, target: Target, level: Level) -> None:
    resource = RESOURCES[target.kind]
    grantable = levels_grantable_by(actor, target)
    if level in grantable:
        return
    known = [one for one in resource.verbs if target.object_id or one in RANKS]
    if level not in known:
        problem = f"a {resource.kind.value} has {', '.join(one.value for one in known)}"
        raise BadInput(f"level: {problem}.", fields={"level": problem})
    raise NotAllowed(
        f"You may not give {level.value} here: nobody grants what they do not hold.",
        fields={"level": "is more than you hold"},
    )


def _check_named(actor: User, target: Target, named: Named, *, known: Collection[Row]) -> None:
    """Who is new in a rule must be somebody whom the actor may name; others may stay."""
    if len(named.every) > MOST_SUBJECTS:
        raise _bad_subjects(f"names at most {MOST_SUBJECTS}")
    # By what they are and their id, which unlike a list is looked up at once.
    old = {(type(one), one.pk) for one in known}
    new_users = {one.pk for one in named.users if (User, one.pk) not in old}
    new_groups = {one.pk for one in named.groups if (Group, one.pk) not in old}
    people = people_nameable_by(actor).filter(pk__in=new_users)
    groups = groups_nameable_by(actor).filter(pk__in=new_groups)
    if len(people) < len(new_users) or len(groups) < len(new_groups):
        raise _bad_subjects("there is somebody whom you may not name")
    stranger = stranger_named(target, people, groups)
    if stranger:
        raise _bad_subjects(f"{stranger} belongs to another tenant")


def _bad_subjects(problem: str) -> BadInput:
    return BadInput(f"subjects: {problem}.", fields={"subjects": problem})


def _found(rules: Iterable[Rule], level: Level) -> Rule | None:
    return next((one for one in rules if one.level is level and not one.by_policy), None)


def _exceed(actor: User, target: Target, users: Iterable[User], groups: Iterable[Group]) -> None:
    """Those who exceed a limit are kept by their own service, which sorts what waits anew."""
    policy = Policy.objects.get(pk=target.object_id)
    people = {one.pk: one for one in users}
    teams = {one.pk: one for one in groups}
    policy_set_exceeding(actor=actor, policy=policy, users=people.values(), groups=teams.values())


def _told(actor: User, target: Target, level: Level, before: Iterable[Rule]) -> Rule | None:
    """Leave a trace where something is another now; the rule of this level, if there is one."""
    after = rules_of([target])
    told = [_facts(rules) for rules in (before, after)]
    if told[0] != told[1]:
        kind = "rule.removed" if not told[1] else "rule.changed" if told[0] else "rule.given"
        event_record(
            kind,
            actor=actor,
            object_type=target.kind.value,
            object_id=target.object_id or "all",
            data={
                "name": target.name or f"every {target.kind.value}",
                "before": told[0],
                "after": told[1],
            },
        )
        rights_changed(sorted(_touched(before, after)))
    return _found(after, level)


def _facts(rules: Iterable[Rule]) -> dict[str, list[str]]:
    """The rules of people on one target, by level and name."""
    told = {}
    for rule in rules:
        if rule.by_policy:
            continue
        names = [f"{one.kind.replace('_', ' ')} {one.name}" for one in rule.subjects]
        more = [f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
        told[rule.level.value] = [*names[:MOST_NAMED], *more]
    return told


def _touched(before: Iterable[Rule], after: Iterable[Rule]) -> set[int]:
    """Ids of everybody whose rights are others now, by themselves or by a group."""
    levels = [
        {
            (one.is_group, one.id, rule.level)
            for rule in rules
            if not rule.by_policy
            for one in rule.subjects
        }
        for rules in (before, after)
    ]
    changed = levels[0] ^ levels[1]
    users = {pk for is_group, pk, _ in changed if not is_group}
    groups = {pk for is_group, pk, _ in changed if is_group}
    members = User.objects.filter(groups__in=groups).values_list("pk", flat=True)
    return {*users, *members}
