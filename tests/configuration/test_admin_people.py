"""People and groups on the admin site."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.accounts.models import User
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.policies.models import Policy, PolicyGroupPermission, PolicyUserPermission
from tests.configuration.site import form_of, url
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_somebody_stays_an_administrator(site: Client, root: User) -> None:
    address = url(User, "change", root.pk)

    answer = site.post(address, form_of(site, address) | {"groups": []}, follow=True)

    assert "Admins needs at least one member who can sign in." in answer.content.decode()
    assert root.groups.filter(name="Admins").exists()


def test_a_person_made_here_is_in_users_and_has_no_flags(site: Client) -> None:
    answer = site.post(
        url(User, "add"),
        {"username": "dora", "password1": "correct-horse-9", "password2": "correct-horse-9"},
    )

    assert answer.status_code == 302
    dora = User.objects.get(username="dora")
    assert [group.name for group in dora.groups.all()] == ["Users"]
    assert not dora.is_staff
    assert not dora.is_superuser


def test_members_of_a_group_are_set_on_its_page(
    site: Client, alice: User, charlie: User, dev_group: Group
) -> None:
    address = url(Group, "change", dev_group.pk)

    answer = site.post(address, form_of(site, address) | {"members": [charlie.pk]})

    assert answer.status_code == 302
    assert [user.username for user in User.objects.filter(groups=dev_group)] == ["charlie"]


def test_a_built_in_group_is_not_removed(site: Client) -> None:
    admins = Group.objects.get(name="Admins")

    answer = site.post(url(Group, "delete", admins.pk), {"post": "yes"}, follow=True)

    assert "is built in and cannot be removed" in answer.content.decode()
    assert Group.objects.filter(name="Admins").exists()


def test_a_rule_on_a_whole_kind_opens_nothing_of_the_site(
    site: Client, root: User, quinn: User, example: Example
) -> None:
    kind, subjects = Target(RuleKind.POLICY), RuleSubjects(users=(quinn,))
    rule_grant(actor=root, target=kind, level=Level.MANAGE, subjects=subjects)
    client = Client()
    client.force_login(quinn)

    assert client.get(url(Policy, "changelist")).status_code == 403
    assert not User.objects.get(pk=quinn.pk).has_perm("policies.view_policy")
    assert client.get(f"/policies/{example.dev.pk}/").status_code == 200


@pytest.mark.parametrize("model", [PolicyUserPermission, PolicyGroupPermission])
def test_rows_of_rules_are_there_to_be_looked_at(
    site: Client, root: User, quinn: User, example: Example, model: type[Any]
) -> None:
    target = Target(RuleKind.POLICY, str(example.dev.pk))
    rule_grant(actor=root, target=target, level=Level.READ, subjects=RuleSubjects(users=(quinn,)))
    row = model.objects.first()
    client = Client()
    client.force_login(quinn)

    assert "Dev" in site.get(url(model, "changelist")).content.decode()
    assert site.get(url(model, "change", row.pk)).status_code == 200
    assert site.get(url(model, "add")).status_code == 403
    assert client.get(url(model, "changelist")).status_code == 403
