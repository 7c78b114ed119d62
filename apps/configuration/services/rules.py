"""Creates, changes and removes access rules. A rule with many subjects is written as one."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction

from apps.access.isolation import (
    other_tenants_subject,
    subject_across_tenants,
    subjects_hidden_from,
)
from apps.access.levels import LEVEL_ORDER, RESOURCES, Level, RuleKind
from apps.access.rules.delegation import groups_nameable_by, levels_grantable_by, people_nameable_by
from apps.access.rules.rows import rules_of
from apps.access.rules.rule import Rule, Target
from apps.access.rules.selectors import target_of
from apps.access.services.rule_rows import levels_set, subjects_of
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.accounts.services.groups import permissions_change_notify
from apps.configuration.services.exceeders import policy_set_exceeders
from apps.configuration.services.rows import live_lock, live_wait
from apps.core.errors import BadInput, NotAllowed, NotFound, Stale
from apps.events.services import event_record
from apps.nodes.models import Volume
from apps.nodes.services import volume_change
from apps.policies.models import Policy

MOST_SUBJECTS = 2000
MOST_NAMED = 50
# The most people, service accounts and groups that rules on one task name.
MOST_ON_TASK = 100
Row = User | Group


@dataclass(frozen=True, slots=True)
class RuleSubjects:
    """The subjects that a rule will name."""

    users: tuple[User, ...] = ()
    groups: tuple[Group, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        return (*self.users, *self.groups)


@transaction.atomic
def rule_grant(*, actor: User, target: Target, level: Level, subjects: RuleSubjects) -> Rule:
    """Give these people and groups the level on the target; others keep what they have.

    This level replaces another one that they have there by a rule of people.

    Raises:
        BadInput: no subject is named, or one whom the actor may not name.
        NotAllowed: the actor does not hold that much there.
        NotFound: there is no such object any more.
    """
    target = _lock_target(actor, target, level)
    _check_level(actor, target, level)
    if not subjects.rows:
        raise _bad_subjects("name a user or a group")
    _check_subjects(actor, target, subjects, known=())
    before = rules_of([target])
    if target.kind is RuleKind.VOLUME:
        _restrict(actor, target)
    if level in LEVEL_ORDER:
        levels_set(target, dict.fromkeys(subjects.rows, level), actor=actor)
    else:
        known = subjects_named_by(_rule_of_level(before, level))
        _exceed(actor, target, [*known.users, *subjects.users], [*known.groups, *subjects.groups])
    given = _record(actor, target, level, before)
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
    subjects: RuleSubjects,
    version: str | None = None,
) -> Rule | None:
    """Replace the rule's subjects, on its level or on a new one.

    Returns:
        The rule; None if it names nobody any more, and is gone.

    Raises:
        Stale: the rule is not the one of this version any more.
        Everything that `rule_grant` raises.
    """
    wanted = new_level or level
    target = _lock_target(actor, target, level)
    for one in {level, wanted}:
        _check_level(actor, target, one)
    if (level in LEVEL_ORDER) != (wanted in LEVEL_ORDER):
        problem = f"a rule of level {level.value} cannot become one of level {wanted.value}"
        raise BadInput(f"level: {problem}.", fields={"level": problem})
    before = rules_of([target])
    rule = _rule_of_level(before, level)
    if rule is None:
        raise NotFound("There is no such rule any more.")
    if version is not None and version != rule.version:
        raise Stale("Another user has changed this rule meanwhile. Reload and try again.")
    known = subjects_named_by(rule)
    # A higher level gives something new: the actor must be allowed to name all subjects.
    is_raised = wanted in LEVEL_ORDER and LEVEL_ORDER.index(wanted) > LEVEL_ORDER.index(level)
    _check_subjects(actor, target, subjects, known=() if is_raised else known.rows)
    hidden = _hidden_subjects(actor, rule, subjects)
    if level in LEVEL_ORDER:
        leaving = set(known.rows) - set(subjects.rows) - set(hidden.rows)
        changes: dict[Row, Level | None] = dict.fromkeys(leaving)
        levels_set(target, {**changes, **dict.fromkeys(subjects.rows, wanted)}, actor=actor)
    else:
        _exceed(actor, target, [*subjects.users, *hidden.users], [*subjects.groups, *hidden.groups])
    return _record(actor, target, wanted, before)


def rule_remove(*, actor: User, target: Target, level: Level, version: str | None = None) -> None:
    """Remove the rule: from the next request on nobody has a permission by it.

    Tasks that wait stay queued, as when a user leaves a group.

    Raises:
        Everything that `rule_change` raises.
    """
    rule_change(actor=actor, target=target, level=level, subjects=RuleSubjects(), version=version)


def subjects_named_by(rule: Rule | None) -> RuleSubjects:
    """The rows of a rule's subjects, as far as its reader sees them."""
    users, groups = subjects_of(rule.subjects if rule is not None else ())
    return RuleSubjects(users, groups)


def _hidden_subjects(actor: User, rule: Rule, subjects: RuleSubjects) -> RuleSubjects:
    """The subjects that the actor does not see: they stay, unless the whole rule is removed."""
    if not subjects.rows:
        return RuleSubjects()
    return RuleSubjects(*subjects_of(subjects_hidden_from(actor, rule.subjects)))


# --- parts -----------------------------------------------------------------------------------


def _lock_target(actor: User, target: Target, level: Level) -> Target:
    """The current target, locked against other writers of its rules and its removal."""
    resource = RESOURCES[target.kind]
    if level not in LEVEL_ORDER:
        # Changes of the limits of waiting tasks lock the live side, which comes first.
        live_lock()
    elif target.kind is not RuleKind.TASK:
        # A configuration file that is being applied has read the rules.
        live_wait()
    rows: Any = resource.model._default_manager.select_for_update(no_key=True, of=("self",))
    if target.object_id:
        rows = rows.filter(resource.live, pk=target.object_id).values_list("pk")
    else:
        # Rules on whole kinds are few: a writer waits for all the others.
        rows = resource.permissions().select_for_update(no_key=True, of=("self",))
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
    known = [one for one in resource.verbs if target.object_id or one in LEVEL_ORDER]
    if level not in known:
        problem = f"a {resource.kind.value} has {', '.join(one.value for one in known)}"
        raise BadInput(f"level: {problem}.", fields={"level": problem})
    raise NotAllowed(
        f"You may not give {level.value} here: nobody grants what they do not hold.",
        fields={"level": "is more than you hold"},
    )


def _check_subjects(
    actor: User, target: Target, subjects: RuleSubjects, *, known: Collection[Row]
) -> None:
    """Refuse new subjects whom the actor may not name; others may stay."""
    if len(subjects.rows) > MOST_SUBJECTS:
        raise _bad_subjects(f"names at most {MOST_SUBJECTS}")
    # By what they are and their id, which unlike a list is looked up at once.
    old = {(type(one), one.pk) for one in known}
    new_users = {one.pk for one in subjects.users if (User, one.pk) not in old}
    new_groups = {one.pk for one in subjects.groups if (Group, one.pk) not in old}
    people = people_nameable_by(actor).filter(pk__in=new_users)
    groups = groups_nameable_by(actor).filter(pk__in=new_groups)
    if len(people) < len(new_users) or len(groups) < len(new_groups):
        raise _bad_subjects("names a user or group that you may not name")
    outsider = other_tenants_subject(target, people, groups)
    if outsider:
        raise _bad_subjects(f"{outsider} belongs to another tenant")
    if target.kind is RuleKind.TASK and not is_admin(actor):
        # Their administrators could not manage people who hold a permission outside of the tenant.
        outsider = subject_across_tenants(target, people, groups)
        if outsider:
            raise _bad_subjects(f"{outsider} and the task do not belong to the same tenant")


def _bad_subjects(problem: str) -> BadInput:
    return BadInput(f"subjects: {problem}.", fields={"subjects": problem})


def _rule_of_level(rules: Iterable[Rule], level: Level) -> Rule | None:
    return next((one for one in rules if one.level is level and not one.by_policy), None)


def _exceed(actor: User, target: Target, users: Iterable[User], groups: Iterable[Group]) -> None:
    """Exceeding a limit has its own service, which groups the waiting tasks again."""
    policy = Policy.objects.get(pk=target.object_id)
    people = {one.pk: one for one in users}
    teams = {one.pk: one for one in groups}
    policy_set_exceeders(actor=actor, policy=policy, users=people.values(), groups=teams.values())


def _restrict(actor: User, target: Target) -> None:
    """Close the volume for others than its rules name. Removing them does not open it again."""
    volume = Volume.objects.filter(pk=target.object_id, is_restricted=False).first()
    if volume is not None:
        volume_change(actor=actor, volume=volume, values={"is_restricted": True})


def _record(actor: User, target: Target, level: Level, before: Iterable[Rule]) -> Rule | None:
    """Record a change, if there is one; returns the rule of this level, if there is one."""
    after = rules_of([target])
    if target.kind is RuleKind.TASK and sum(len(one.subjects) for one in after) > MOST_ON_TASK:
        raise _bad_subjects(f"a task has at most {MOST_ON_TASK} of them")
    facts = [_facts(rules) for rules in (before, after)]
    if facts[0] != facts[1]:
        kind = "rule.removed" if not facts[1] else "rule.changed" if facts[0] else "rule.granted"
        event_record(
            kind,
            actor=actor,
            object_type=target.kind.value,
            object_id=target.object_id or "all",
            data={
                "name": target.name or f"every {target.kind.value}",
                "before": facts[0],
                "after": facts[1],
            },
        )
        if target.kind is not RuleKind.TASK:
            # Of a task, cards ask again each time, and no other page shows more or less.
            permissions_change_notify(sorted(_affected_users(before, after)))
    return _rule_of_level(after, level)


def _facts(rules: Iterable[Rule]) -> dict[str, list[str]]:
    """The rules of people on one target, by level and name."""
    facts = {}
    for rule in rules:
        if rule.by_policy:
            continue
        names = [f"{one.kind.replace('_', ' ')} {one.name}" for one in rule.subjects]
        more = [f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
        facts[rule.level.value] = [*names[:MOST_NAMED], *more]
    return facts


def _affected_users(before: Iterable[Rule], after: Iterable[Rule]) -> set[int]:
    """Ids of everybody whose permissions changed, by themselves or by a group."""
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
