"""What administrators of a tenant may do below its top, and what they may not."""

from typing import Any

import pytest
from django.contrib.auth.models import Group

from apps.access.levels import Level, RuleKind
from apps.access.rules.delegation import groups_nameable_by, people_nameable_by
from apps.access.rules.rule import Target
from apps.access.selectors import (
    policies_restrictable_by,
    profiles_connectable_by,
    profiles_visible_to,
    queues_managed_by,
)
from apps.accounts.models import USERS, User
from apps.accounts.services.groups import group_members_add, user_groups_set
from apps.accounts.services.invitations import person_invite
from apps.accounts.services.people import user_create
from apps.accounts.services.service_accounts import service_account_create
from apps.configuration.services.limits import profiles_to_connect
from apps.configuration.services.policies import policy_change, policy_create, policy_remove
from apps.configuration.services.queues import (
    profile_connect,
    profile_disconnect,
    queue_change,
    queue_reorder,
)
from apps.configuration.services.restrictions import policy_restrict, policy_unrestrict
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.configuration.services.tenants import (
    tenant_change,
)
from apps.core.errors import BadInput, NotAllowed, RpmError
from apps.policies.models import Policy, Profile, Queue
from tests.people import Example
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db


def refused(error: Any, field: str) -> str:
    assert list(error.value.fields) == [field]
    found: str = error.value.fields[field]
    return found


# --- what administrators of a tenant do ------------------------------------------------------


def test_they_make_change_connect_and_remove_below_the_top(organisations: Organisations) -> None:
    acme = organisations.acme
    adam, profile = acme.admin, Profile.objects.get(name="2xGPU")

    made = policy_create(
        actor=adam, name="acme-new", group=acme.group, parent=acme.top, reserved={"gpu": 2}
    )
    policy_change(actor=adam, policy=made, changes={"weight": 3, "limit": {"gpu": 8}})
    queue = profile_connect(actor=adam, policy=made, profile=profile)
    queue_change(actor=adam, queue=queue, changes={"name": "acme-other", "max_waiting": 5})
    profile_disconnect(actor=adam, queue=queue)
    policy_remove(actor=adam, policy=made)

    assert Policy.objects.get(pk=made.pk).is_removed


PRIVILEGES: list[dict[str, Any]] = [
    {"volumes": ["rival-data"]},
    {"host_network": True},
    {"extra_permissions": ["root"]},
]


@pytest.mark.parametrize("privilege", PRIVILEGES, ids=lambda given: next(iter(given)))
def test_they_connect_no_profile_that_gives_the_tenant_more_than_resources(
    root: User, organisations: Organisations, privilege: dict[str, Any]
) -> None:
    acme, special = organisations.acme, Profile.objects.get(name="4xGPU")
    Profile.objects.filter(pk=special.pk).update(**privilege)
    new = policy_create(actor=root, name="acme-new", group=acme.group, parent=acme.top)

    with pytest.raises(BadInput) as error:
        profile_connect(actor=acme.admin, policy=new, profile=special)
    assert "administrator of the installation" in refused(error, "profile")
    assert special not in profiles_visible_to(acme.admin)
    assert special not in [one.profile for one in profiles_to_connect(acme.admin, new)]
    assert special in [one.profile for one in profiles_to_connect(root, new)]

    # What an administrator of the installation gave to one team of it, another may have.
    profile_connect(actor=root, policy=acme.team, profile=special)
    assert special in profiles_visible_to(acme.admin)
    assert special in profiles_connectable_by(acme.admin)
    assert profile_connect(actor=acme.admin, policy=new, profile=special).policy == new
    assert special not in profiles_connectable_by(organisations.rival.admin)


REFUSED: list[Any] = [
    pytest.param({"reserved": {"gpu": 3}}, "reserved.gpu", id="more than the top reserves"),
    pytest.param(
        {"reserved": {"cpu": 1}}, "reserved.cpu", id="a key that the top does not reserve"
    ),
    pytest.param({"limit": {"gpu": 9}}, "limit.gpu", id="a limit above that of the top"),
    pytest.param({"parent": None}, "parent", id="no parent"),
    pytest.param({"parent": "rival"}, "parent", id="below another tenant"),
    pytest.param({"parent": "dev"}, "parent", id="below what is of no tenant"),
    pytest.param({"group": "rival"}, "group", id="a group of another tenant"),
    pytest.param({"group": "dev"}, "group", id="a group of none"),
]


def values(given: dict[str, Any], organisations: Organisations) -> dict[str, Any]:
    """With policies and groups in the place of their names."""
    owners = {"rival": organisations.rival.top, "dev": organisations.example.dev}
    found = dict(given)
    if given.get("parent"):
        found["parent"] = owners[given["parent"]]
    if "group" in given:
        found["group"] = owners[given["group"]].group
    return found


@pytest.mark.parametrize(("given", "field"), REFUSED)
def test_a_new_policy_stays_within_the_tenant(
    organisations: Organisations, given: dict[str, Any], field: str
) -> None:
    acme = organisations.acme
    wanted = {"group": acme.group, "parent": acme.top, **values(given, organisations)}

    with pytest.raises(BadInput) as error:
        policy_create(actor=acme.admin, name="acme-new", **wanted)

    assert "rival" not in refused(error, field).replace("rival-only-admin-group does not", "")
    assert not Policy.objects.filter(name="acme-new").exists()


@pytest.mark.parametrize(("given", "field"), REFUSED[3:])
def test_nobody_moves_a_policy_out_of_its_tenant(
    root: User, organisations: Organisations, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadInput) as error:
        policy_change(
            actor=root, policy=organisations.acme.team, changes=values(given, organisations)
        )

    assert refused(error, field)


def test_a_policy_comes_into_a_tenant_with_groups_that_are_of_it(
    root: User, organisations: Organisations, dev_group: Group
) -> None:
    acme, example = organisations.acme, organisations.example
    parent = policy_create(actor=root, name="Parent", group=acme.group)
    child = policy_create(actor=root, name="Child", group=dev_group, parent=parent)

    with pytest.raises(BadInput) as error:
        policy_change(actor=root, policy=parent, changes={"parent": acme.top})
    assert "Child" in refused(error, "parent")
    tenant_change(actor=root, tenant=acme.tenant, groups=[acme.group, dev_group])
    policy_change(actor=root, policy=parent, changes={"parent": acme.top})

    assert Policy.objects.get(pk=child.pk).tenant_id == acme.tenant.pk
    assert Policy.objects.get(pk=example.dev.pk).tenant_id is None


@pytest.mark.parametrize("changes", [{"weight": 5}, {"limit": {"gpu": 1}}, {"name": "other"}])
def test_the_top_is_not_theirs(organisations: Organisations, changes: dict[str, Any]) -> None:
    with pytest.raises(NotAllowed):
        policy_change(
            actor=organisations.acme.admin, policy=organisations.acme.top, changes=changes
        )


def test_the_policies_of_others_are_not_theirs(organisations: Organisations) -> None:
    with pytest.raises(RpmError):
        policy_change(
            actor=organisations.acme.admin, policy=organisations.rival.team, changes={"weight": 5}
        )


def test_what_was_set_above_the_top_may_stay_and_shrink(
    root: User, organisations: Organisations
) -> None:
    acme = organisations.acme
    policy_change(actor=root, policy=acme.team, changes={"reserved": {"gpu": 6}})

    policy_change(actor=acme.admin, policy=acme.team, changes={"weight": 2})
    policy_change(actor=acme.admin, policy=acme.team, changes={"reserved": {"gpu": 5}})
    with pytest.raises(BadInput):
        policy_change(actor=acme.admin, policy=acme.team, changes={"reserved": {"gpu": 6}})


@pytest.mark.parametrize(
    "changes", [{"max_priority": 5}, {"min_runtime_s": 9}, {"grace_s": 9}, {"max_preemptions": 1}]
)
def test_settings_that_bear_upon_others_are_not_theirs(
    organisations: Organisations, changes: dict[str, Any]
) -> None:
    with pytest.raises(BadInput) as error:
        queue_change(
            actor=organisations.acme.admin, queue=organisations.acme.queue, changes=changes
        )

    assert "others' tasks" in refused(error, next(iter(changes)))


@pytest.mark.parametrize("is_closed_first", [False, True])
def test_another_policy_is_no_way_around_settings_that_are_not_theirs(
    root: User, organisations: Organisations, is_closed_first: bool
) -> None:
    acme, profile = organisations.acme, organisations.acme.queue.profile
    closed = policy_create(actor=root, name="acme-old", group=acme.group, parent=acme.top)
    earlier = profile_connect(actor=acme.admin, policy=closed, profile=profile)
    profile_disconnect(actor=acme.admin, queue=earlier)
    strict = {"allow_streams": False, "grace_s": 9}
    generous = {"max_priority": 9, "min_runtime_s": 900, "max_preemptions": 1}
    queue_change(actor=root, queue=acme.queue, changes={**strict, **generous})
    if is_closed_first:
        profile_disconnect(actor=acme.admin, queue=acme.queue)
    made = policy_create(actor=acme.admin, name="acme-new", group=acme.group, parent=acme.top)

    for policy in (made, closed):
        queue = profile_connect(actor=acme.admin, policy=policy, profile=profile)

        assert {name: getattr(queue, name) for name in strict} == strict
        # Nor do they get what was given to another policy.
        assert {name: getattr(queue, name) for name in generous} == {
            name: getattr(earlier, name) for name in generous
        }
        profile_disconnect(actor=acme.admin, queue=queue)
    rival = organisations.rival
    others = policy_create(actor=root, name="others", group=rival.group, parent=rival.top)
    assert profile_connect(actor=rival.admin, policy=others, profile=profile).allow_streams


def test_closing_and_connecting_again_keeps_settings_that_are_not_theirs(
    root: User, organisations: Organisations
) -> None:
    acme = organisations.acme
    changes = {"allow_streams": False, "max_priority": 9, "min_runtime_s": 900}
    queue_change(actor=root, queue=acme.queue, changes=changes)
    profile_disconnect(actor=acme.admin, queue=acme.queue)

    queue = profile_connect(actor=acme.admin, policy=acme.team, profile=acme.queue.profile)

    assert {name: getattr(queue, name) for name in changes} == changes


def test_they_order_their_queues_in_the_places_that_are_theirs(
    root: User, organisations: Organisations, example: Example
) -> None:
    acme, profile = organisations.acme, organisations.acme.queue.profile
    new = policy_create(actor=root, name="acme-new", group=acme.group, parent=acme.top)
    last = profile_connect(actor=root, policy=new, profile=profile)
    order = [acme.queue, organisations.rival.queue, last]

    queue_reorder(actor=acme.admin, profile=profile, order=[last, acme.queue])

    ranked = Queue.objects.filter(profile=profile).order_by("queuing_rank")
    assert list(ranked) == [order[2], order[1], order[0]]
    with pytest.raises(BadInput):
        queue_reorder(actor=acme.admin, profile=profile, order=order)


def test_rules_name_who_is_of_the_tenant_and_nobody_else(
    root: User, organisations: Organisations, dev_group: Group
) -> None:
    acme, target = organisations.acme, Target(RuleKind.QUEUE, str(organisations.acme.queue.pk))
    group_members_add(actor=root, group=dev_group, users=[acme.admin])
    adam = User.objects.get(pk=acme.admin.pk)
    service_account_create(actor=root, name="ci", groups=[acme.group.name])
    outsider = user_create(username="outsider", password=None, groups=["dev"])

    assert {str(one) for one in people_nameable_by(adam)} == {"ada", "adam", "ci"}
    assert set(groups_nameable_by(adam)) == {acme.group, acme.admins}
    rule_grant(
        actor=adam, target=target, level=Level.MANAGE, subjects=RuleSubjects(users=(acme.member,))
    )
    for subjects in (RuleSubjects(users=(outsider,)), RuleSubjects(groups=(dev_group,))):
        with pytest.raises(BadInput):
            rule_grant(actor=adam, target=target, level=Level.READ, subjects=subjects)

    assert queues_managed_by(User.objects.get(pk=acme.member.pk)).get() == acme.queue


def test_the_top_is_restricted_by_administrators_of_the_installation_alone(
    root: User, organisations: Organisations
) -> None:
    acme = organisations.acme
    target = Target(RuleKind.POLICY, str(acme.top.pk))
    rule_grant(
        actor=acme.admin, target=target, level=Level.MANAGE, subjects=RuleSubjects((acme.member,))
    )

    for actor in (acme.admin, User.objects.get(pk=acme.member.pk)):
        with pytest.raises(NotAllowed):
            policy_restrict(actor=actor, policy=acme.top, people=[])
        with pytest.raises(NotAllowed):
            policy_unrestrict(actor=actor, policy=acme.top)
        assert acme.top not in policies_restrictable_by(actor)
    policy_restrict(actor=acme.admin, policy=acme.team, people=[acme.member])
    policy_restrict(actor=root, policy=acme.top, people=[acme.admin])

    assert Policy.objects.filter(is_restricted=True).count() == 2


def test_nobody_is_put_out_of_the_last_group_of_the_tenant(
    root: User, organisations: Organisations
) -> None:
    acme = organisations.acme
    users = Group.objects.get(name=USERS)

    for groups in ([], [users]):
        with pytest.raises(BadInput) as error:
            user_groups_set(actor=acme.admin, user=acme.member, groups=groups)
        assert "one of your groups" in refused(error, "groups")
    user_groups_set(actor=root, user=acme.member, groups=[])

    assert [one.name for one in acme.member.groups.all()] == [USERS]


def test_the_group_of_everybody_may_be_named(organisations: Organisations) -> None:
    acme = organisations.acme
    groups = [acme.group, Group.objects.get(name=USERS)]

    invited = person_invite(
        actor=acme.admin, username="new", address=lambda token: token, groups=groups
    )
    user_groups_set(actor=acme.admin, user=acme.member, groups=[*groups, acme.admins])

    assert {one.name for one in invited.user.groups.all()} == {USERS, acme.group.name}
    assert acme.member.groups.count() == 3
