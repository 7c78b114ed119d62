"""The accounts that an administrator of a tenant manages: without permissions outside of it."""

from operator import attrgetter

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from guardian.models import UserObjectPermissionAbstract, UserObjectPermissionBase
from guardian.shortcuts import assign_perm

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import RuleFilter, Target
from apps.access.rules.selectors import rules_visible_to
from apps.accounts.models import ADMINS, User
from apps.accounts.selectors import RULES_ON_PEOPLE, people_managed_by, people_visible_to
from apps.accounts.services.groups import (
    group_members_add,
    group_members_remove,
    group_remove,
    group_save,
    user_groups_set,
)
from apps.accounts.services.invitations import (
    NewInvitation,
    invitation_accept,
    invitation_by_token,
    invitation_renew,
    person_invite,
)
from apps.accounts.services.people import user_create
from apps.accounts.services.people_changes import person_change, person_deactivate
from apps.configuration.access_explanation import ObjectKind, explanation
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.core.errors import BadInput, NotAllowed
from apps.tasks.services.enqueue.submission import task_create, task_submit
from apps.tasks.task_spec import TaskSpec
from apps.vaults.models import Vault, VaultUserPermission
from apps.vaults.services.vaults import vault_create
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db
PASSWORD = "Correct-horse-7-battery"


def token_of(invited: NewInvitation) -> str:
    return invited.link.removeprefix("/join/")


def address(token: str) -> str:
    return f"/join/{token}"


def fresh(user: User) -> User:
    """The same person with what is remembered for one request forgotten."""
    return User.objects.get(pk=user.pk)


@pytest.mark.parametrize(
    ("permission", "of", "is_managed"),
    [
        pytest.param("view_policy", "acme.team", True, id="a policy of the tenant"),
        pytest.param("view_policy", "example.dev", False, id="a policy of none"),
        pytest.param("view_policy", "rival.team", False, id="a policy of another"),
        pytest.param("view_queue", "acme.queue", True, id="a queue of the tenant"),
        pytest.param("view_queue", "example.dev_queue", False, id="a queue of none"),
        pytest.param("view_pool", "example.h100", False, id="a pool"),
        pytest.param("view_queue", "", False, id="every queue"),
    ],
)
def test_accounts_that_a_rule_names_outside_are_not_managed(
    organisations: Organisations, permission: str, of: str, is_managed: bool
) -> None:
    acme = organisations.acme
    assign_perm(
        permission if of else f"policies.{permission}",
        acme.member,
        attrgetter(of)(organisations) if of else None,
    )

    assert (acme.member in people_managed_by(acme.admin)) is is_managed
    assert acme.member in people_visible_to(acme.admin)


def test_accounts_that_read_vaults_of_others_are_not_managed(
    root: User, organisations: Organisations, dev_group: Group
) -> None:
    acme, managed = organisations.acme, []
    for group in (acme.group, dev_group, None):
        vault = vault_create(actor=root, name=f"of {group}", text="a = 1", group=group)
        assign_perm("view_vault", acme.member, Vault.objects.get(pk=vault.pk))
        managed.append(acme.member in people_managed_by(acme.admin))
        VaultUserPermission.objects.all().delete()

    assert managed == [True, False, False]


def test_every_rule_that_can_name_a_person_is_looked_at() -> None:
    found = {
        model._meta.model_name
        for model in apps.get_models()
        if issubclass(model, UserObjectPermissionBase)
        and not issubclass(model, UserObjectPermissionAbstract)
    }

    assert found == set(RULES_ON_PEOPLE)


def test_accounts_with_work_outside_are_not_managed(organisations: Organisations) -> None:
    acme, dev = organisations.acme, organisations.example.dev
    acme.member.groups.add(dev.group)
    submit = TaskSpec(name="t", queue=organisations.example.dev_queue.name, command=["true"])
    task_create(actor=acme.member, spec=TaskSpec(name="draft", command=["true"]))
    inside = TaskSpec(name="i", queue=acme.queue.name, command=["true"])
    task_submit(actor=acme.member, spec=inside)
    acme.member.groups.remove(dev.group)
    assert acme.member in people_managed_by(acme.admin)
    acme.member.groups.add(dev.group)
    task_submit(actor=fresh(acme.member), spec=submit)
    acme.member.groups.remove(dev.group)

    assert acme.member not in people_managed_by(acme.admin)
    assert acme.member in people_visible_to(acme.admin)


def test_a_link_works_only_while_its_maker_looks_after_the_person(
    root: User, organisations: Organisations
) -> None:
    acme = organisations.acme
    made = invitation_renew(actor=acme.admin, user=acme.member, address=address)
    assert invitation_by_token(token_of(made)) is not None

    group_members_add(actor=root, group=Group.objects.get(name=ADMINS), users=[acme.member])

    assert invitation_by_token(token_of(made)) is None
    with pytest.raises(NotAllowed):
        invitation_accept(token=token_of(made), password=PASSWORD)
    user_groups_set(actor=root, user=acme.member, groups=[acme.group])
    assert invitation_by_token(token_of(made)) is not None
    person_deactivate(actor=root, user=acme.admin)
    assert invitation_by_token(token_of(made)) is None


def test_addresses_that_a_tenant_gives_let_nobody_in_by_a_provider(
    root: User, organisations: Organisations
) -> None:
    acme = organisations.acme
    theirs = {"email": "boss@example.org"}

    person_change(actor=acme.admin, user=acme.member, changes=theirs)
    assert fresh(acme.member).is_email_unverified
    person_change(actor=acme.admin, user=acme.member, changes=theirs)
    assert fresh(acme.member).is_email_unverified
    person_change(actor=root, user=acme.member, changes=theirs)
    assert not fresh(acme.member).is_email_unverified

    invited = person_invite(
        actor=acme.admin, address=address, email="chief@example.org", groups=[acme.group]
    )
    assert not fresh(invited.user).is_email_unverified
    invitation_accept(token=token_of(invited), password=PASSWORD, username="chief")
    assert fresh(invited.user).is_email_unverified


def test_whom_one_looks_after_is_asked_once_the_row_is_held(
    root: User, organisations: Organisations
) -> None:
    acme = organisations.acme
    group_members_add(actor=root, group=Group.objects.get(name=ADMINS), users=[acme.member])

    with pytest.raises(NotAllowed):
        person_change(actor=acme.admin, user=acme.member, changes={"first_name": "x"})
    with pytest.raises(NotAllowed):
        person_deactivate(actor=acme.admin, user=acme.member)
    with pytest.raises(NotAllowed):
        invitation_renew(actor=acme.admin, user=acme.member, address=address)


def test_nobody_falls_out_of_a_tenant_by_the_tenant(
    root: User, organisations: Organisations
) -> None:
    acme = organisations.acme
    other = group_save(actor=acme.admin, group=Group(name="other"), description="", members=[])

    with pytest.raises(BadInput, match="no group of the tenant"):
        group_members_remove(actor=acme.admin, group=acme.group, users=[acme.member])
    with pytest.raises(BadInput, match="no group of the tenant"):
        group_members_remove(actor=acme.member, group=acme.group, users=[acme.member])
    group_members_add(actor=acme.admin, group=other, users=[acme.member])
    group_members_remove(actor=acme.admin, group=acme.group, users=[acme.member])
    with pytest.raises(BadInput, match="no group of the tenant"):
        group_remove(actor=acme.admin, group=other)
    group_members_remove(actor=root, group=other, users=[acme.member])

    assert set(acme.member.groups.values_list("name", flat=True)) <= {"Users"}


def test_who_made_a_rule_and_went_to_another_tenant_is_named_to_administrators_alone(
    root: User, organisations: Organisations
) -> None:
    acme, rival = organisations.acme, organisations.rival
    maker = user_create(username="maker", password=None, groups=[ADMINS])
    target = Target(RuleKind.QUEUE, str(rival.queue.pk))
    rule_grant(
        actor=maker, target=target, level=Level.READ, subjects=RuleSubjects(users=(rival.member,))
    )

    def visible_makers(reader: User) -> set[str]:
        rules = rules_visible_to(reader, RuleFilter(RuleKind.QUEUE)).rules
        queue = str(rival.queue.pk)
        why = explanation(reader, person=rival.member, thing=ObjectKind.QUEUE, object_id=queue)
        by = {reason.by for answer in why.answers for reason in answer.reasons}
        return {name for rule in rules for name in rule.makers} | by - {""}

    assert visible_makers(fresh(rival.admin)) == {"maker"}
    user_groups_set(actor=root, user=maker, groups=[acme.group])
    assert visible_makers(fresh(rival.admin)) == set()
    assert visible_makers(root) == {"maker"}
