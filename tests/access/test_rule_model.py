"""Whatever rules, groups and restrictions there are: selectors, explanations and a model agree.

The naive model knows no rows: only who is in which group, what was given to whom, and to whom each
policy was restricted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.access.levels import RESOURCES, Level, RuleKind
from apps.access.permissions import permission_filter
from apps.access.rules.rows import rules_of
from apps.access.rules.rule import Target
from apps.access.selectors import (
    policies_managed_by,
    policies_visible_to,
    queues_managed_by,
    queues_open_to,
    queues_visible_to,
)
from apps.accounts.models import TenantGroup, User
from apps.accounts.services.groups import group_members_add, group_members_remove
from apps.accounts.services.people import user_create
from apps.accounts.services.people_changes import person_deactivate
from apps.configuration.access_explanation import ObjectKind, PermissionName, explanation
from apps.configuration.services.grants import owners_who_may_enqueue
from apps.configuration.services.policies import policy_move
from apps.configuration.services.restrictions import policy_restrict, policy_unrestrict
from apps.configuration.services.rules import RuleSubjects, rule_grant, rule_remove
from apps.core.errors import BadInput
from apps.policies.models import Policy, Queue
from tests.people import Example
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db
LEVELS = (Level.READ, Level.MODIFY, Level.MANAGE)
PEOPLE, TEAMS = 3, 3


@dataclass
class World:
    """What happened, without rows; `given` by target key and subject.

    Of tenants: that of a policy, that of a person, and that which a person administers.
    """

    root: User
    people: list[User]
    teams: list[Group]
    policies: list[Policy]
    queues: list[Queue]
    members: set[tuple[int, int]] = field(default_factory=set)
    given: dict[tuple[str, bool, int], Level] = field(default_factory=dict)
    restricted: dict[int, set[int]] = field(default_factory=dict)
    group_of: dict[int, int] = field(default_factory=dict)
    away: set[int] = field(default_factory=set)
    tenant_of: dict[int, int] = field(default_factory=dict)
    belongs: dict[int, int] = field(default_factory=dict)
    administers: dict[int, int] = field(default_factory=dict)

    def targets(self) -> list[Target]:
        return [
            Target(RuleKind.POLICY),
            Target(RuleKind.QUEUE),
            *(Target(RuleKind.POLICY, str(one.pk), one.name) for one in self.policies),
            *(Target(RuleKind.QUEUE, str(one.pk), one.name) for one in self.queues),
        ]

    def holds(self, user: User, verb: str, keys: list[str], policy: Policy) -> bool:
        """The naive model."""
        if user.pk in self.away:
            return False
        tenant = self.tenant_of.get(policy.pk)
        if tenant is not None and self.belongs.get(user.pk, tenant) != tenant:
            return False
        if tenant is not None and self.administers.get(user.pk) == tenant:
            return True
        groups = {team for person, team in self.members if person == user.pk}
        by_rule = any(
            key in keys
            and (pk in groups if is_group else pk == user.pk)
            and verb in RESOURCES[RuleKind.POLICY].verbs[level]
            for (key, is_group, pk), level in self.given.items()
        )
        members = self.restricted.get(policy.pk)
        is_of_policy = self.group_of[policy.pk] in groups and (
            members is None or user.pk in members
        )
        return by_rule or (is_of_policy and verb in {"view", "enqueue"})


Step = tuple[str, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "join",
                "leave",
                "give",
                "give",
                "remove",
                "restrict",
                "unrestrict",
                "move",
                "deactivate",
            ]
        ),
        st.integers(0, 11),
        st.integers(0, 11),
        st.integers(0, 11),
    ),
    max_size=14,
)


@pytest.fixture
def world(root: User, example: Example) -> World:
    people = [user_create(username=f"person-{n}", password=None) for n in range(PEOPLE)]
    teams = [Group.objects.create(name=f"team-{n}") for n in range(TEAMS)]
    policies = [example.dev, example.research]
    queues = [example.dev_queue, example.research_queue]
    world = World(root, people, teams, policies, queues)
    for at, policy in enumerate(policies):
        policy_move(actor=root, policy=policy, parent=None, group=teams[at])
        world.group_of[policy.pk] = teams[at].pk
    return world


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_permissions_are_those_of_the_naive_model(world: World, steps: list[Step]) -> None:
    with transaction.atomic():
        fresh = _copy(world)
        for step in steps:
            _do(fresh, *step)
        _compare(fresh)
        transaction.set_rollback(True)


@pytest.fixture
def two_tenants(root: User, organisations: Organisations, charlie: User) -> World:
    """A member and the administrator of both organisations, and a person of neither."""
    both = (organisations.acme, organisations.rival)
    world = World(
        root,
        people=[*(one.member for one in both), *(one.admin for one in both), charlie],
        teams=[*(one.group for one in both), *(one.admins for one in both)],
        policies=[one.team for one in both],
        queues=[one.queue for one in both],
    )
    for one in both:
        world.group_of[one.team.pk] = one.group.pk
        world.tenant_of[one.team.pk] = one.tenant.pk
        world.members |= {(one.member.pk, one.group.pk), (one.admin.pk, one.admins.pk)}
        world.belongs |= {one.member.pk: one.tenant.pk, one.admin.pk: one.tenant.pk}
        world.administers[one.admin.pk] = one.tenant.pk
    return world


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_permissions_agree_across_two_tenants(two_tenants: World, steps: list[Step]) -> None:
    with transaction.atomic():
        fresh = _copy(two_tenants)
        for step in steps:
            # Tenants keep their people; what would cross tenant isolation is refused.
            if step[0] not in {"join", "leave", "move"}:
                _do(fresh, *step)
        _compare(fresh)
        transaction.set_rollback(True)


def _copy(world: World) -> World:
    return World(
        world.root,
        world.people,
        world.teams,
        world.policies,
        world.queues,
        members=set(world.members),
        group_of=dict(world.group_of),
        tenant_of=world.tenant_of,
        belongs=world.belongs,
        administers=world.administers,
    )


def _do(world: World, what: str, a: int, b: int, c: int) -> None:
    person, team = world.people[a % len(world.people)], world.teams[b % TEAMS]
    policy = world.policies[c % len(world.policies)]
    if what == "join":
        group_members_add(actor=world.root, group=team, users=[person])
        world.members.add((person.pk, team.pk))
    elif what == "leave":
        group_members_remove(actor=world.root, group=team, users=[person])
        world.members.discard((person.pk, team.pk))
    elif what == "give":
        _give(world, world.targets()[a % 6], LEVELS[c % 3], person=b % 2 == 0, number=b)
    elif what == "remove":
        _remove(world, world.targets()[a % 6], LEVELS[c % 3])
    elif what == "restrict":
        inside = {pk for pk, group in world.members if group == world.group_of[policy.pk]}
        members = [one for one in world.people if one.pk in inside][: a % 3]
        policy_restrict(actor=world.root, policy=policy, people=members)
        world.restricted[policy.pk] = {one.pk for one in members}
    elif what == "unrestrict":
        policy_unrestrict(actor=world.root, policy=policy)
        world.restricted.pop(policy.pk, None)
    elif what == "move":
        policy_move(actor=world.root, policy=policy, parent=None, group=team)
        world.group_of[policy.pk] = team.pk
    else:
        person_deactivate(actor=world.root, user=person)
        world.away.add(person.pk)


def _give(world: World, target: Target, level: Level, *, person: bool, number: int) -> None:
    one = world.people[number % len(world.people)]
    subject = one if person else world.teams[number % len(world.teams)]
    if subject.pk in world.away and person:
        return
    subjects = (
        RuleSubjects(users=(subject,))
        if isinstance(subject, User)
        else RuleSubjects(groups=(subject,))
    )
    if _is_other_tenant(world, target, subject):
        with pytest.raises(BadInput, match="another tenant"):
            rule_grant(actor=world.root, target=target, level=level, subjects=subjects)
        return
    rule_grant(actor=world.root, target=target, level=level, subjects=subjects)
    world.given[target.key, not person, subject.pk] = level


def _is_other_tenant(world: World, target: Target, subject: User | Group) -> bool:
    """Whether they belong to different tenants; a rule on a whole kind belongs to none."""
    policies = {str(one.pk): one.pk for one in world.policies}
    if target.kind is RuleKind.QUEUE:
        policies = {str(one.pk): one.policy_id for one in world.queues}
    theirs = world.tenant_of.get(policies.get(target.object_id, 0))
    if isinstance(subject, User):
        own = world.belongs.get(subject.pk)
    else:
        own = TenantGroup.objects.filter(group=subject).values_list("tenant", flat=True).first()
    return None not in (theirs, own) and theirs != own


def _remove(world: World, target: Target, level: Level) -> None:
    revoked = {key for key, given in world.given.items() if key[0] == target.key and given is level}
    if revoked:
        rule_remove(actor=world.root, target=target, level=level)
        for key in revoked:
            del world.given[key]


def _compare(world: World) -> None:
    for user, queue in _pairs(world):
        policy = next(one for one in world.policies if one.pk == queue.policy_id)
        on_policy = ["policy.all", f"policy.{policy.pk}"]
        on_queue = [*on_policy, "queue.all", f"queue.{queue.pk}"]
        queues = {
            PermissionName.SEE: ("view", queues_visible_to(user)),
            PermissionName.ENQUEUE: ("enqueue", queues_open_to(user)),
            PermissionName.MANAGE: ("manage", queues_managed_by(user)),
        }
        explained = explanation(
            world.root, person=user, thing=ObjectKind.QUEUE, object_id=str(queue.pk)
        )
        for answer in explained.answers:
            verb, rows = queues[answer.permission]
            want = world.holds(user, verb, on_queue, policy)
            assert rows.filter(pk=queue.pk).exists() == want, (user, verb, queue)
            assert answer.is_held == want == bool(answer.sources), (user, verb, queue, answer)
        want = world.holds(user, "enqueue", on_queue, policy)
        assert (user.pk in owners_who_may_enqueue(queue)) == want
        policies = {
            PermissionName.SEE: ("view", policies_visible_to(user)),
            PermissionName.ENQUEUE: (
                "enqueue",
                Policy.objects.filter(permission_filter(Policy, user, "enqueue")),
            ),
            PermissionName.MANAGE: ("manage", policies_managed_by(user)),
        }
        explained = explanation(
            world.root, person=user, thing=ObjectKind.POLICY, object_id=str(policy.pk)
        )
        for answer in explained.answers:
            if answer.permission in policies:
                verb, found = policies[answer.permission]
                want = world.holds(user, verb, on_policy, policy)
                assert found.filter(pk=policy.pk).exists() == want, (user, verb, policy)
                assert answer.is_held == want == bool(answer.sources), (user, verb, policy, answer)
    _compare_rules(world)


def _pairs(world: World) -> Iterator[tuple[User, Queue]]:
    for user in User.objects.filter(pk__in=[one.pk for one in world.people]):
        for queue in world.queues:
            yield user, queue


def _compare_rules(world: World) -> None:
    """The table shows what was given, and to whom each policy applies."""
    rules = rules_of(world.targets())
    given = {
        (rule.target.key, one.is_group, one.id): rule.level
        for rule in rules
        if not rule.by_policy
        for one in rule.subjects
    }
    assert given == world.given
    by_policy = {rule.target.object_id: rule for rule in rules if rule.by_policy}
    for policy in world.policies:
        subjects = {(one.is_group, one.id) for one in by_policy[str(policy.pk)].subjects}
        group, members = world.group_of[policy.pk], world.restricted.get(policy.pk)
        inside = {pk for pk, team in world.members if team == group}
        want = {(True, group)} if members is None else {(False, pk) for pk in members & inside}
        assert subjects == want
