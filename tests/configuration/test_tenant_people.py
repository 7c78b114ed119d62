"""Whose account an administrator of a tenant manages: who has all they may do from it."""

from operator import attrgetter

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from guardian.models import UserObjectPermissionAbstract, UserObjectPermissionBase
from guardian.shortcuts import assign_perm

from apps.accounts.models import User
from apps.accounts.selectors import RULES_ON_PEOPLE, people_managed_by, people_visible_to
from apps.vaults.models import Vault, VaultUserPermission
from apps.vaults.services.vaults import vault_create
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("right", "of", "is_managed"),
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
    organisations: Organisations, right: str, of: str, is_managed: bool
) -> None:
    acme = organisations.acme
    assign_perm(
        right if of else f"policies.{right}",
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
