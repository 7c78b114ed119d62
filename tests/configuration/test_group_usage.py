"""What uses a group, as far as the reader may know of it."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group, Permission
from rest_framework.test import APIClient

from apps.accounts.models import IdentityGroup, IdentityProvider, LogInRules, Protocol, User
from apps.accounts.services.groups import group_members_add, group_remove, group_save
from apps.configuration.group_usage import group_counts, group_usage
from apps.core.errors import Conflict
from apps.events.models import AuditEntry
from apps.policies.models import PolicyGroupPermission, QueueGroupPermission
from tests.dashboard.conftest import ClientFor, client_for
from tests.people import Example
from tests.tenants import Organisations

__all__ = ["client_for"]

pytestmark = pytest.mark.django_db

ApiAs = Callable[[User], APIClient]


@pytest.fixture
def log_in_group(organisations: Organisations) -> Group:
    """A group of Acme that log-ins use."""
    adam = organisations.acme.admin
    group = group_save(actor=adam, group=Group(name="acme-guests"), description="", members=[])
    rules, _ = LogInRules.objects.get_or_create(pk=1)
    rules.second_factor_groups.add(group)
    provider = IdentityProvider.objects.create(name="Ours", slug="ours", protocol=Protocol.OIDC)
    for name in ("guests", "visitors"):
        IdentityGroup.objects.create(provider=provider, external_name=name, group=group)
    return group


def test_a_group_that_signing_in_goes_by_is_not_removed_by_a_tenant(
    organisations: Organisations, log_in_group: Group
) -> None:
    with pytest.raises(Conflict, match="administrator of the installation"):
        group_remove(actor=organisations.acme.admin, group=log_in_group)

    assert LogInRules.objects.get().second_factor_groups.filter(pk=log_in_group.pk).exists()
    assert group_usage(log_in_group, reader=organisations.acme.admin).blocks_removal


def test_an_administrator_removes_it_and_the_log_says_what_went(
    root: User, log_in_group: Group
) -> None:
    assert not group_usage(log_in_group, reader=root).blocks_removal

    group_remove(actor=root, group=log_in_group)

    before = AuditEntry.objects.get(verb="group.removed").before
    assert before["asks_second_factor"] is True
    assert before["providers"] == ["Ours"]


def test_pages_and_rest_say_what_signing_in_asks_of_it(
    root: User,
    organisations: Organisations,
    log_in_group: Group,
    client_for: ClientFor,
    api_as: ApiAs,
) -> None:
    for reader, may in ((root, True), (organisations.acme.admin, False)):
        page = (
            client_for(reader)
            .get(f"/settings/people/groups/{log_in_group.pk}/delete/")
            .content.decode()
        )
        usage = api_as(reader).get(f"/api/v1/groups/{log_in_group.pk}/used-by/").json()

        assert "Members need a second factor" in page
        assert "Identity provider Ours puts people into it" in page
        assert ("This is deleted with it" in page) is may
        assert ("An administrator of the installation must remove it" in page) is not may
        assert usage["log_in"] == {"asks_second_factor": True, "providers": ["Ours"]}


def test_of_rules_a_tenant_counts_those_on_what_it_sees(
    root: User, organisations: Organisations
) -> None:
    acme, rival = organisations.acme, organisations.rival
    see, use = (Permission.objects.get(codename=f"{verb}_queue") for verb in ("view", "enqueue"))
    for queue in (acme.queue, rival.queue):
        for permission in (see, use):
            QueueGroupPermission.objects.create(
                content_object=queue, group=acme.admins, permission=permission
            )
    PolicyGroupPermission.objects.create(
        content_object=organisations.example.dev,
        group=acme.admins,
        permission=Permission.objects.get(codename="exceed_limit_policy"),
    )
    acme.admins.permissions.add(see)

    assert group_counts([acme.admins.pk], reader=root)[acme.admins.pk].rules == 4
    assert group_counts([acme.admins.pk])[acme.admins.pk].rules == 4
    assert group_counts([acme.admins.pk], reader=acme.admin)[acme.admins.pk].rules == 1


def test_rest_tells_the_ids_of_what_its_rules_are_about(
    root: User, log_in_group: Group, example: Example, api_as: ApiAs
) -> None:
    client = api_as(root)
    body = {"name": "shared", "group": "dev", "text": "a = 1", "format": "hocon"}
    vault = client.post("/api/v1/vaults/", body).json()["id"]
    for kind, pk in (("vault", vault), ("queue", example.dev_queue.pk), ("queue", None)):
        rule = {"kind": kind, "object": pk, "level": "read", "groups": [log_in_group.name]}
        assert client.post("/api/v1/access-rules/", rule, format="json").status_code == 201

    rules = client.get(f"/api/v1/groups/{log_in_group.pk}/used-by/").json()["rules"]

    ids = sorted((one["kind"], one["object_id"]) for one in rules)
    assert ids == [("queue", ""), ("queue", str(example.dev_queue.pk)), ("vault", vault)]


def test_lists_of_groups_count_for_their_reader(
    root: User, organisations: Organisations, api_as: ApiAs
) -> None:
    acme, rival = organisations.acme, organisations.rival
    QueueGroupPermission.objects.create(
        content_object=rival.queue,
        group=acme.admins,
        permission=Permission.objects.get(codename="view_queue"),
    )
    group_members_add(actor=root, group=acme.group, users=[acme.admin])

    def rules(reader: User) -> int:
        rows = api_as(reader).get("/api/v1/groups/").json()["results"]
        found: int = next(row["rules"] for row in rows if row["id"] == acme.admins.pk)
        return found

    assert rules(root) == 1
    assert rules(acme.admin) == 0
