"""Vaults and tenants: tenant isolation hides counts and names, and permissions are current."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client
from rest_framework.test import APIClient

from apps.access.permissions import holders, may, permission_sources
from apps.access.services.vaults import (
    vault_change,
    vault_move,
    vault_remove,
    vault_restore,
    vault_switch,
)
from apps.access.vaults import vault_permissions, visible_vault
from apps.accounts.models import TenantGroup, User
from apps.core.errors import Conflict, NotAllowed, NotFound, Stale
from apps.events.models import AuditEntry
from apps.vaults.models import Vault, VaultUserPermission, VaultVersion
from apps.vaults.services import vaults as services
from apps.vaults.services.vaults import vault_create
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db

As = Callable[[User], APIClient]
Write = Callable[[User, Vault], Any]
VAULTS = "/api/v1/vaults/"

WRITES: dict[str, Write] = {
    "change": lambda actor, vault: vault_change(actor=actor, vault=vault, changes={"text": "b=1"}),
    "restore": lambda actor, vault: vault_restore(actor=actor, vault=vault, to=1),
    "switch": lambda actor, vault: vault_switch(actor=actor, vault=vault, is_active=True),
    "move": lambda actor, vault: vault_move(actor=actor, vault=vault, position=1),
    "remove": lambda actor, vault: vault_remove(actor=actor, vault=vault),
}


def let(user: User, vault: Vault, codename: str) -> VaultUserPermission:
    """A rule that names the person."""
    permission = Permission.objects.get(codename=codename, content_type__app_label="vaults")
    rule = VaultUserPermission(content_object=vault, user=user, permission=permission)
    rule.save()
    return rule


def written() -> tuple[list[Any], int, int]:
    """All rows that a write would leave."""
    rows = list(Vault.objects.order_by("pk").values())
    return rows, VaultVersion.objects.count(), AuditEntry.objects.count()


# --- one number of all ---------------------------------------------------------------------------


def test_each_tenant_has_a_bound_of_its_own(
    organisations: Organisations, root: User, dev_group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "MOST_OF_GROUPS", 2)
    acme, rival = organisations.acme, organisations.rival
    for name, group in (("one", rival.group), ("two", rival.admins), ("three", dev_group)):
        vault_create(actor=root, name=name, group=group)

    vault_create(actor=acme.admin, name="four", group=acme.group)
    vault_create(actor=root, name="five", group=acme.admins)
    vault_create(actor=root, name="six", group=dev_group)

    for group in (acme.group, rival.group, dev_group):
        with pytest.raises(Conflict, match="2 vaults"):
            vault_create(actor=root, name="too many", group=group)
    assert Vault.objects.count() == 6


def test_a_new_vault_still_wins_over_all_others_of_groups(
    organisations: Organisations, root: User, dev_group: Group
) -> None:
    vault_create(actor=root, name="low", group=dev_group)

    vault_create(actor=organisations.acme.admin, name="high", group=organisations.acme.group)

    assert list(Vault.objects.values_list("name", flat=True)) == ["low", "high"]


def test_a_position_tells_nothing_of_the_vaults_of_others(
    organisations: Organisations, api_as: As, root: User
) -> None:
    acme, rival = organisations.acme, organisations.rival
    for number in range(3):
        vault_create(actor=root, name=f"before {number}", group=rival.group)
        vault_create(actor=root, name=f"of acme {number}", group=acme.group)

    def positions(user: User) -> list[int]:
        return [row["position"] for row in api_as(user).get(VAULTS).json()["results"]]

    for user in (acme.admin, acme.member):
        assert positions(user) == [1, 2, 3]
    second = Vault.objects.get(name="of acme 1")
    assert api_as(acme.member).get(f"{VAULTS}{second.pk}/").json()["position"] == 2
    moved = api_as(acme.admin).post(f"{VAULTS}{second.pk}/move/", {"position": 3})
    assert moved.json()["position"] == 3
    assert positions(root) == [1, 2, 3, 4, 5, 6]


def test_the_pages_of_the_list_tell_it_neither(
    organisations: Organisations, api_as: As, root: User
) -> None:
    acme, rival = organisations.acme, organisations.rival
    for number in range(3):
        vault_create(actor=root, name=f"before {number}", group=rival.group)
        vault_create(actor=root, name=f"of acme {number}", group=acme.group)
    client, seen, cursors = api_as(acme.member), [], []

    path: str | None = f"{VAULTS}?limit=1"
    while path:
        answer = client.get(path).json()
        seen += [row["name"] for row in answer["results"]]
        path = answer["next"]
        cursors += parse_qs(urlsplit(path or "").query).get("cursor", [])

    assert seen == ["of acme 0", "of acme 1", "of acme 2"]
    # The same place is sealed differently each time, and a forged one is refused.
    assert client.get(f"{VAULTS}?limit=1").json()["next"] not in cursors
    # What stands for "after position 2" where nothing is sealed.
    made_up = client.get(VAULTS, {"cursor": "cD0y"})
    assert (made_up.status_code, set(made_up.json()["fields"])) == (400, {"cursor"})


# --- permissions of now -------------------------------------------------------------------------


@pytest.mark.parametrize("write", ["change", "restore", "switch"])
def test_who_may_only_read_since_they_looked_writes_nothing(
    charlie: User, root: User, dev_group: Group, write: str
) -> None:
    vault = vault_create(actor=root, name="team", text="a = 1", group=dev_group)
    vault_change(actor=root, vault=vault, changes={"text": "a = 2"})
    rule = let(charlie, vault, "change_vault")
    seen = visible_vault(charlie, vault.pk)
    rule.delete()
    let(charlie, vault, "view_vault")
    before = written()

    with pytest.raises(NotAllowed):
        WRITES[write](charlie, seen)

    assert written() == before


@pytest.mark.parametrize("write", list(WRITES))
def test_who_does_not_administer_its_group_since_they_looked_writes_nothing(
    organisations: Organisations, root: User, write: str
) -> None:
    acme = organisations.acme
    vault = vault_create(actor=root, name="team", text="a = 1", group=acme.group)
    vault_change(actor=root, vault=vault, changes={"text": "a = 2"})
    let(acme.admin, vault, "view_vault")
    seen = visible_vault(acme.admin, vault.pk)
    TenantGroup.objects.filter(group=acme.group).delete()
    before = written()

    with pytest.raises(NotAllowed):
        WRITES[write](acme.admin, seen)

    assert written() == before


@pytest.mark.parametrize("write", list(WRITES))
def test_permissions_are_asked_for_while_the_vault_is_held(
    organisations: Organisations, root: User, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """The rule goes while the actor waits at the lock."""
    acme = organisations.acme
    vault = vault_create(actor=root, name="team", text="a = 1", group=acme.group)
    vault_change(actor=root, vault=vault, changes={"text": "a = 2"})
    rows = Vault.objects
    lock = rows.select_for_update

    def waiting(*args: Any, **kwargs: Any) -> Any:
        TenantGroup.objects.filter(group=acme.group).delete()
        return lock(*args, **kwargs)

    before = written()
    monkeypatch.setattr(rows, "select_for_update", waiting)
    with pytest.raises(NotFound):
        WRITES[write](acme.admin, visible_vault(acme.admin, vault.pk))

    assert written() == before


# --- personal vaults -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_owner_active", [True, False])
def test_a_rule_on_a_personal_vault_of_another_tenant_gives_nothing(
    organisations: Organisations, charlie: User, *, is_owner_active: bool
) -> None:
    owner = organisations.acme.member
    vault = vault_create(actor=owner, name="own", text="a = 1")
    User.objects.filter(pk=owner.pk).update(is_active=is_owner_active)
    rex, colleague = organisations.rival.admin, organisations.acme.admin
    for reader in (rex, colleague, charlie):
        let(reader, vault, "change_vault")

    for reader in (colleague, charlie):
        assert vault_permissions(reader, visible_vault(reader, vault.pk)).change
    with pytest.raises(NotFound):
        visible_vault(rex, vault.pk)
    for verb in ("view", "read", "change"):
        vault.refresh_from_db()
        readers = set(holders(vault, verb))
        assert readers >= {colleague, charlie}
        assert rex not in readers
        assert [one.code for one in permission_sources(rex, verb, vault)] == ["other_tenant"]
    assert not may(colleague, "own", vault)


# --- names ---------------------------------------------------------------------------------------


@pytest.fixture
def left(organisations: Organisations, root: User) -> Vault:
    """A vault of Acme; who made and changed it works for the rival by now."""
    acme, rival = organisations.acme, organisations.rival
    vault = vault_create(actor=acme.admin, name="team", text="a = 1", group=acme.group)
    seen = visible_vault(acme.admin, vault.pk)
    vault_change(actor=acme.admin, vault=seen, changes={"text": "a = 2"})
    acme.admin.groups.set([rival.group])
    other = User.objects.create(username="agnes")
    other.groups.add(acme.admins)
    return vault


def test_who_came_to_another_tenant_is_named_to_nobody_of_the_first(
    left: Vault, api_as: As, root: User
) -> None:
    path, agnes = f"{VAULTS}{left.pk}/", User.objects.get(username="agnes")

    def names(user: User) -> set[str | None]:
        client = api_as(user)
        one, many = client.get(path).json(), client.get(VAULTS).json()["results"]
        found = {row["updated_by"] for row in (one, *many)}
        found |= {row["actor"] for row in client.get(f"{path}history/").json()["results"]}
        found |= {row["by"] for row in client.get(f"{path}versions/").json()["results"]}
        return found | {client.get(f"{path}versions/1/").json()["by"]}

    assert names(agnes) == {None}
    assert names(root) == {"adam"}


def test_the_second_to_save_does_not_learn_who_of_another_tenant_was_first(
    left: Vault, root: User
) -> None:
    agnes = User.objects.get(username="agnes")

    for user, name in ((agnes, "Another user"), (root, "adam")):
        seen = visible_vault(user, left.pk)
        with pytest.raises(Stale, match=f"{name} changed this vault"):
            vault_change(actor=user, vault=seen, changes={"name": "x"}, version=1)


def test_the_pages_name_them_neither(left: Vault, client: Client, root: User) -> None:
    def is_named(user: User) -> bool:
        client.force_login(user)
        pages = [client.get(f"/settings/vaults/{left.pk}/")]
        pages.append(client.get(f"/settings/vaults/{left.pk}/versions/1/"))
        assert [page.status_code for page in pages] == [200, 200]
        names = [b"adam" in page.content for page in pages]
        assert len(set(names)) == 1
        return names[0]

    assert not is_named(User.objects.get(username="agnes"))
    assert is_named(root)


def test_colleagues_and_who_belongs_to_no_tenant_are_named(
    organisations: Organisations, api_as: As, root: User
) -> None:
    acme = organisations.acme
    vault = vault_create(actor=root, name="team", text="a = 1", group=acme.group)
    seen = visible_vault(acme.admin, vault.pk)
    vault_change(actor=acme.admin, vault=seen, changes={"text": "a = 2"})

    rows = api_as(acme.admin).get(f"{VAULTS}{vault.pk}/versions/").json()["results"]

    assert [row["by"] for row in rows] == ["adam", "root"]
