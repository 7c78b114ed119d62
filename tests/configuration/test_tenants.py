"""Making tenants, who belongs to them, and tenant isolation."""

from typing import Any

import pytest
from django.contrib.auth.models import Group

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import RuleFilter, Target
from apps.access.rules.selectors import rules_visible_to
from apps.access.selectors import (
    policies_administered_by,
    policies_changeable_by,
    policies_visible_to,
    profiles_visible_to,
    queues_managed_by,
    queues_open_to,
    queues_settable_by,
    queues_visible_to,
)
from apps.accounts.models import (
    ADMINS,
    QUEUE_ADMINS,
    IdentityGroup,
    IdentityProvider,
    Protocol,
    Tenant,
    User,
)
from apps.accounts.selectors import (
    accounts_visible_to,
    groups_visible_to,
    people_managed_by,
    people_visible_to,
)
from apps.accounts.services.groups import (
    group_members_add,
    group_members_remove,
    group_remove,
    group_save,
    user_groups_set,
)
from apps.accounts.services.identity_log_in import memberships_sync
from apps.accounts.services.people import user_create
from apps.accounts.services.service_accounts import service_account_create
from apps.configuration.services.policies import policy_create, policy_remove
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.configuration.services.tenants import (
    tenant_change,
    tenant_create,
    tenant_name,
    tenant_remove,
)
from apps.core.errors import BadInput, Conflict
from apps.events.models import AuditEntry, Event
from apps.policies.models import Policy, QueueGroupPermission, QueueUserPermission
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db


def fresh(user: User) -> User:
    """The same person with what is remembered for one request forgotten."""
    return User.objects.get(pk=user.pk)


def names(rows: Any) -> set[str]:
    return {str(row) for row in rows}


def refused(error: Any, field: str) -> str:
    assert list(error.value.fields) == [field]
    found: str = error.value.fields[field]
    return found


# --- making, changing, removing --------------------------------------------------------------


def test_a_tenant_is_called_as_its_top_and_holds_all_below(organisations: Organisations) -> None:
    acme = organisations.acme

    assert tenant_name(acme.tenant) == "acme-top"
    assert names(Policy.objects.filter(tenant=acme.tenant)) == {"acme-top", "acme-team"}


def test_a_new_policy_below_is_of_the_tenant(root: User, organisations: Organisations) -> None:
    acme = organisations.acme

    made = policy_create(actor=root, name="new", group=acme.group, parent=acme.top)

    assert made.tenant_id == acme.tenant.pk


@pytest.mark.parametrize(
    ("field", "groups"),
    [
        pytest.param("admin_group", ("Users", "dev"), id="a built-in group administers"),
        pytest.param("groups", ("heads", "Users"), id="a built-in group belongs"),
        pytest.param("groups", ("heads",), id="the group of the policy is missing"),
        pytest.param("groups", ("heads", "dev", "acme-team-group"), id="a group of another"),
    ],
)
def test_groups_that_will_not_do_are_named(
    root: User, organisations: Organisations, field: str, groups: tuple[str, ...]
) -> None:
    Group.objects.create(name="heads")
    head, *others = (Group.objects.get(name=name) for name in groups)

    with pytest.raises(BadInput) as error:
        tenant_create(actor=root, top=organisations.example.dev, admin_group=head, groups=others)

    assert refused(error, field)
    assert Tenant.objects.count() == 2


def test_a_policy_below_another_is_no_top(root: User, organisations: Organisations) -> None:
    with pytest.raises(BadInput) as error:
        tenant_create(
            actor=root, top=organisations.acme.team, admin_group=organisations.acme.admins
        )

    assert "has a parent" in refused(error, "top")


def test_people_of_two_tenants_keep_the_second_from_being_made(
    root: User, organisations: Organisations, dev_group: Group
) -> None:
    heads = Group.objects.create(name="heads")
    group_members_add(actor=root, group=dev_group, users=[organisations.acme.member])

    with pytest.raises(BadInput) as error:
        tenant_create(
            actor=root, top=organisations.example.dev, admin_group=heads, groups=[dev_group]
        )

    assert "ada" in refused(error, "groups")


def test_another_group_administers_from_the_next_request_on(
    root: User, organisations: Organisations
) -> None:
    acme = organisations.acme

    tenant_change(actor=root, tenant=acme.tenant, admin_group=acme.group)

    assert policies_administered_by(fresh(acme.member)).count() == 2
    assert not policies_administered_by(fresh(acme.admin)).exists()
    entry = AuditEntry.objects.get(verb="tenant.changed")
    assert (entry.before["admin_group"], entry.after["admin_group"]) == (
        "acme-admin-group",
        "acme-team-group",
    )


def test_the_group_of_a_policy_cannot_leave_its_tenant(
    root: User, organisations: Organisations
) -> None:
    acme = organisations.acme

    with pytest.raises(BadInput) as error:
        tenant_change(actor=root, tenant=acme.tenant, groups=[])

    assert "add acme-team-group" in refused(error, "groups")


def test_after_a_tenant_its_tree_stays_as_ordinary_policies(
    root: User, organisations: Organisations
) -> None:
    acme = organisations.acme

    tenant_remove(actor=root, tenant=acme.tenant)

    assert Policy.objects.filter(pk__in=[acme.top.pk, acme.team.pk], tenant=None).count() == 2
    assert not policies_changeable_by(fresh(acme.admin)).exists()
    assert names(policies_visible_to(fresh(acme.member))) == {"acme-team"}


def test_a_top_is_removed_after_its_tenant_only(root: User, organisations: Organisations) -> None:
    policy_remove(actor=root, policy=organisations.acme.team)

    with pytest.raises(Conflict, match="remove the tenant first"):
        policy_remove(actor=root, policy=organisations.acme.top)


def test_the_group_that_administers_a_tenant_cannot_be_removed(
    root: User, organisations: Organisations
) -> None:
    with pytest.raises(Conflict):
        group_remove(actor=root, group=organisations.acme.admins)


# --- who belongs -----------------------------------------------------------------------------


def test_nobody_joins_groups_of_two_tenants(root: User, organisations: Organisations) -> None:
    acme, rival = organisations.acme, organisations.rival
    both = [acme.group, rival.group]

    with pytest.raises(BadInput):
        group_members_add(actor=root, group=rival.group, users=[acme.member])
    with pytest.raises(BadInput):
        group_save(actor=root, group=rival.group, description="", members=[acme.member])
    with pytest.raises(BadInput):
        user_groups_set(actor=root, user=acme.member, groups=both)
    with pytest.raises(BadInput):
        user_create(username="new", password=None, groups=[one.name for one in both])
    with pytest.raises(BadInput):
        service_account_create(actor=root, name="ci", groups=[one.name for one in both])

    assert not acme.member.groups.filter(pk=rival.group.pk).exists()
    assert not User.objects.filter(username__in=["new", "ci"]).exists()


def test_an_administrator_may_be_in_both_and_then_stays_one(
    root: User, organisations: Organisations
) -> None:
    acme, rival = organisations.acme, organisations.rival
    other = user_create(
        username="other", password=None, groups=[ADMINS, acme.group.name, rival.group.name]
    )

    with pytest.raises(BadInput):
        group_members_remove(actor=root, group=Group.objects.get(name=ADMINS), users=[other])


def test_nobody_of_a_tenant_administers_all_queues(
    root: User, organisations: Organisations
) -> None:
    everywhere = Group.objects.get(name=QUEUE_ADMINS)

    with pytest.raises(BadInput, match="queues of all"):
        group_members_add(actor=root, group=everywhere, users=[organisations.acme.member])


def test_a_provider_that_names_groups_of_two_tenants_brings_none(
    organisations: Organisations,
) -> None:
    acme, rival = organisations.acme, organisations.rival
    provider = IdentityProvider.objects.create(name="ours", slug="ours", protocol=Protocol.OIDC)
    for group in (acme.group, rival.group):
        IdentityGroup.objects.create(provider=provider, external_name=group.name, group=group)
    new = user_create(username="new", password=None)
    both = [acme.group.name, rival.group.name]

    assert memberships_sync(provider=provider, user=new, external=both) == ([], [])
    assert names(new.groups.all()) == {"Users"}
    event = Event.objects.get(kind="person.groups_synchronised")
    assert event.data["skipped"] == sorted(both)

    moved = [rival.group.name]
    assert memberships_sync(provider=provider, user=acme.member, external=moved) == (
        moved,
        [acme.group.name],
    )


@pytest.mark.parametrize("asked", ["acme", "rival"])
def test_who_a_provider_makes_an_administrator_no_more_stays_in_one_tenant(
    root: User, organisations: Organisations, asked: str
) -> None:
    acme, rival = organisations.acme, organisations.rival
    kept, gone = (acme.group, rival.group) if asked == "acme" else (rival.group, acme.group)
    provider = IdentityProvider.objects.create(name="ours", slug="ours", protocol=Protocol.OIDC)
    for group in (Group.objects.get(name=ADMINS), kept):
        IdentityGroup.objects.create(provider=provider, external_name=group.name, group=group)
    both = [ADMINS, QUEUE_ADMINS, acme.group.name, rival.group.name]
    other = user_create(username="other", password=None, groups=both)

    left = sorted([ADMINS, QUEUE_ADMINS, gone.name])
    found = memberships_sync(provider=provider, user=other, external=[kept.name])

    assert found == ([], left)
    assert names(other.groups.all()) == {"Users", kept.name}
    event = Event.objects.get(kind="person.groups_synchronised")
    assert event.data["of_too_much"] == sorted([QUEUE_ADMINS, gone.name])
    assert "skipped" not in event.data


def test_who_administers_no_more_joins_no_other_tenant_than_theirs(
    root: User, organisations: Organisations
) -> None:
    acme, rival = organisations.acme, organisations.rival
    provider = IdentityProvider.objects.create(name="ours", slug="ours", protocol=Protocol.OIDC)
    for group in (Group.objects.get(name=ADMINS), rival.group):
        IdentityGroup.objects.create(provider=provider, external_name=group.name, group=group)
    other = user_create(username="other", password=None, groups=[ADMINS, acme.group.name])

    moved = memberships_sync(provider=provider, user=other, external=[rival.group.name])

    assert moved == ([], [ADMINS])
    assert names(other.groups.all()) == {"Users", acme.group.name}
    event = Event.objects.get(kind="person.groups_synchronised")
    assert event.data["skipped"] == [rival.group.name]


# --- what is seen ----------------------------------------------------------------------------


def test_members_see_their_own_and_nothing_of_others(organisations: Organisations) -> None:
    ada = organisations.acme.member

    assert names(policies_visible_to(ada)) == {"acme-team"}
    assert names(queues_visible_to(ada)) == {"acme-queue"}
    assert not people_visible_to(ada).exists()
    assert not groups_visible_to(ada).exists()


def test_administrators_see_their_tree_people_and_groups(organisations: Organisations) -> None:
    adam = organisations.acme.admin

    assert names(policies_visible_to(adam)) == {"acme-top", "acme-team"}
    for selector in (queues_visible_to, queues_open_to, queues_managed_by, queues_settable_by):
        assert names(selector(adam)) == {"acme-queue"}
    assert names(policies_changeable_by(adam)) == {"acme-team"}
    assert names(groups_visible_to(adam)) == {"acme-team-group", "acme-admin-group"}
    assert names(people_visible_to(adam)) == {"ada", "adam"}
    assert "8xGPU" in names(profiles_visible_to(adam))


def test_a_rule_does_not_reach_another_tenant(root: User, organisations: Organisations) -> None:
    acme, rival = organisations.acme, organisations.rival
    permissions = QueueGroupPermission.objects.filter(content_object=rival.queue)
    for permission in {row.permission for row in permissions}:
        QueueUserPermission.objects.create(
            content_object=rival.queue, user=acme.member, permission=permission
        )

    assert names(queues_visible_to(acme.member)) == {"acme-queue"}
    assert names(queues_open_to(acme.member)) == {"acme-queue"}


def test_a_service_account_that_acts_has_nothing_of_the_administrator(
    organisations: Organisations,
) -> None:
    adam = fresh(organisations.acme.admin)
    adam.acted_by_id = 1

    assert not policies_visible_to(adam).exists()
    assert not groups_visible_to(adam).exists()
    permissions = QueueGroupPermission.objects.filter(content_object=organisations.rival.queue)
    for permission in {row.permission for row in permissions}:
        QueueUserPermission.objects.create(
            content_object=organisations.rival.queue, user=adam, permission=permission
        )
    assert not queues_visible_to(adam).exists()


def test_accounts_with_other_permissions_are_seen_and_not_managed(
    root: User, organisations: Organisations, dev_group: Group
) -> None:
    acme = organisations.acme
    group_members_add(actor=root, group=dev_group, users=[acme.member])
    group_members_add(actor=root, group=acme.group, users=[root])
    service_account_create(actor=root, name="ci", groups=[acme.group.name])

    assert names(people_visible_to(acme.admin)) == {"ada", "adam", "root"}
    assert names(people_managed_by(acme.admin)) == {"adam"}
    assert names(accounts_visible_to(acme.admin)) == {"ada", "adam", "root", "ci"}


def test_a_rule_names_nobody_of_another_tenant(root: User, organisations: Organisations) -> None:
    acme, rival = organisations.acme, organisations.rival
    target = Target(RuleKind.QUEUE, str(rival.queue.pk))

    for subjects in (RuleSubjects(users=(acme.member,)), RuleSubjects(groups=(acme.group,))):
        with pytest.raises(BadInput, match="another tenant"):
            rule_grant(actor=root, target=target, level=Level.READ, subjects=subjects)


def test_who_comes_to_another_tenant_later_is_named_to_administrators_alone(
    root: User, organisations: Organisations
) -> None:
    acme, rival = organisations.acme, organisations.rival
    new = user_create(username="new", password=None)
    target = Target(RuleKind.QUEUE, str(rival.queue.pk))
    rule_grant(actor=root, target=target, level=Level.READ, subjects=RuleSubjects(users=(new,)))

    def visible_names(reader: User) -> set[str]:
        rules = rules_visible_to(reader, RuleFilter(RuleKind.QUEUE)).rules
        return {one.name for rule in rules for one in rule.subjects}

    assert "new" in visible_names(fresh(rival.admin))
    group_members_add(actor=root, group=acme.group, users=[new])
    assert "new" not in visible_names(fresh(rival.admin))
    assert "new" in visible_names(root)
