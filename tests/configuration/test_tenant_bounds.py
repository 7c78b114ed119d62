"""Bounds on what a tenant's administrators create; those of the installation create more."""

import pytest
from django.contrib.auth.models import Group

from apps.accounts.models import Tenant, User
from apps.accounts.services import tenancy as people_tenancy
from apps.accounts.services.groups import group_save
from apps.accounts.services.invitations import person_invite
from apps.configuration.services import tenant_checks
from apps.configuration.services.policies import policy_create
from apps.core.errors import Conflict
from apps.policies.models import Policy
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db


def policies_of(tenant: Tenant) -> int:
    return Policy.objects.filter(tenant=tenant).count()


def test_policies_of_a_tenant_are_bounded(
    root: User, organisations: Organisations, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme, rival = organisations.acme, organisations.rival
    most = policies_of(acme.tenant) + 1
    monkeypatch.setattr(tenant_checks, "MOST_POLICIES", most)
    policy_create(actor=acme.admin, name="one", group=acme.group, parent=acme.top)

    with pytest.raises(Conflict, match=f"has {most} policies already"):
        policy_create(actor=acme.admin, name="two", group=acme.group, parent=acme.top)

    policy_create(actor=rival.admin, name="theirs", group=rival.group, parent=rival.top)
    policy_create(actor=root, name="two", group=acme.group, parent=acme.top)


def test_groups_of_a_tenant_are_bounded(
    root: User, organisations: Organisations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(people_tenancy, "MOST_GROUPS", 3)
    acme, rival = organisations.acme, organisations.rival
    group_save(actor=acme.admin, group=Group(name="one"), description="")

    with pytest.raises(Conflict, match="has 3 groups already"):
        group_save(actor=acme.admin, group=Group(name="two"), description="")

    assert not Group.objects.filter(name="two").exists()
    group_save(actor=rival.admin, group=Group(name="theirs"), description="")
    group_save(actor=root, group=Group(name="two"), description="")


def test_people_whom_a_tenant_invites_are_bounded(
    root: User, organisations: Organisations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(people_tenancy, "MOST_PEOPLE", 3)
    acme = organisations.acme
    person_invite(actor=acme.admin, address=str, username="one", groups=[acme.group])

    with pytest.raises(Conflict, match="has 3 people already"):
        person_invite(actor=acme.admin, address=str, username="two", groups=[acme.group])

    person_invite(actor=root, address=str, username="two", groups=[acme.group])
