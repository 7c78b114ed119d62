"""Vaults through REST: permissions and responses."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.core.keyring import HIDDEN
from apps.vaults.models import Vault, VaultUserPermission, VaultVersion
from apps.vaults.services.vaults import vault_create

pytestmark = pytest.mark.django_db

As = Callable[[User], APIClient]
VAULTS = "/api/v1/vaults/"
CANARY = "canary-0815-geheim"
TEXT = f"lr = 0.1\nsecrets {{ TOKEN = {CANARY} }}\n"


@pytest.fixture
def personal(alice: User) -> Vault:
    return vault_create(actor=alice, name="mine", text=TEXT)


@pytest.fixture
def team(root: User, dev_group: Group) -> Vault:
    return vault_create(actor=root, name="team", text=TEXT, group=dev_group)


def names(client: APIClient, **wanted: str) -> list[str]:
    return [row["name"] for row in client.get(VAULTS, wanted).json()["results"]]


def test_a_vault_is_made_read_changed_switched_and_removed(api_as: As, alice: User) -> None:
    client = api_as(alice)
    made = client.post(VAULTS, {"name": "mine", "text": TEXT, "format": "hocon"})
    assert made.status_code == 201, made.content
    path = f"{VAULTS}{made.json()['id']}/"
    assert made.json()["text"] == TEXT.replace(CANARY, f'"{HIDDEN}"')
    assert made.json()["is_active"] is False

    body = {"text": made.json()["text"].replace("0.1", "0.2")}
    assert client.patch(path, body).status_code == 400
    changed = client.patch(path, body, headers={"If-Match": made.headers["ETag"]})
    assert changed.status_code == 200, changed.content
    stale = client.patch(path, body, headers={"If-Match": made.headers["ETag"]})
    assert stale.status_code == 412

    assert client.patch(path, {"is_active": True}).json()["is_active"] is True
    assert client.get(path).headers["Cache-Control"] == "no-store"
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404
    assert client.get(VAULTS).json()["results"] == []


def test_nobody_ever_reads_a_secret(
    api_as: As, alice: User, root: User, personal: Vault, team: Vault
) -> None:
    for user in (alice, root):
        client = api_as(user)
        for vault in (personal, team):
            for path in (VAULTS, f"{VAULTS}{vault.pk}/", f"{VAULTS}{vault.pk}/history/"):
                assert CANARY.encode() not in client.get(path).content


def test_everybody_sees_their_own_and_of_their_groups_only_what_there_is(
    api_as: As, alice: User, bob: User, charlie: User, root: User, personal: Vault, team: Vault
) -> None:
    assert names(api_as(alice)) == ["mine", "team"]
    assert names(api_as(bob)) == ["team"]
    assert names(api_as(charlie)) == []
    assert sorted(names(api_as(root))) == ["mine", "team"]
    payload = api_as(bob).get(f"{VAULTS}{team.pk}/").json()
    assert (payload["text"], payload["keys"]) == (None, ["lr", "secrets"])
    assert payload["may"] == {"read": False, "change": False, "switch_off": False, "remove": False}


def test_who_did_what_with_a_vault_is_shown_to_its_readers_alone(
    api_as: As, bob: User, root: User, team: Vault
) -> None:
    path = f"{VAULTS}{team.pk}/"

    assert api_as(root).get(path).json()["updated_by"] == "root"
    assert api_as(bob).get(path).json()["updated_by"] is None
    assert api_as(bob).get(VAULTS).json()["results"][0]["updated_by"] is None


@pytest.mark.parametrize("verb", ["get", "patch", "delete", "move", "history"])
def test_charlie_finds_none_of_them(
    api_as: As, charlie: User, personal: Vault, team: Vault, verb: str
) -> None:
    client = api_as(charlie)
    for vault in (personal, team):
        path = f"{VAULTS}{vault.pk}/"
        answer = {
            "get": lambda path=path: client.get(path),
            "patch": lambda path=path: client.patch(path, {"is_active": False}),
            "delete": lambda path=path: client.delete(path),
            "move": lambda path=path: client.post(f"{path}move/", {"position": 1}),
            "history": lambda path=path: client.get(f"{path}history/"),
        }[verb]()

        assert answer.status_code == 404


@pytest.mark.parametrize("verb", ["patch", "switch", "delete", "move"])
def test_who_only_sees_a_vault_may_not_touch_it(
    api_as: As, bob: User, team: Vault, verb: str
) -> None:
    client, path = api_as(bob), f"{VAULTS}{team.pk}/"

    answer = {
        "patch": lambda: client.patch(path, {"name": "x"}, headers={"If-Match": '"1"'}),
        "switch": lambda: client.patch(path, {"is_active": True}),
        "delete": lambda: client.delete(path),
        "move": lambda: client.post(f"{path}move/", {"position": 1}),
    }[verb]()

    assert answer.status_code == 403
    assert client.get(f"{path}history/").status_code == 404


def test_administrators_know_only_name_and_size_of_other_peoples_vaults(
    api_as: As, root: User, personal: Vault
) -> None:
    client, path = api_as(root), f"{VAULTS}{personal.pk}/"
    payload = client.get(path).json()

    assert (payload["text"], payload["keys"], payload["size"]) == (None, None, len(TEXT))
    assert client.patch(path, {"is_active": False}).status_code == 200
    assert client.patch(path, {"is_active": True}).status_code == 403
    assert client.delete(path).status_code == 403


@pytest.mark.parametrize(
    ("codename", "may_change"), [("view_vault", False), ("change_vault", True)]
)
def test_a_permission_on_a_vault_opens_its_text_and_no_more_than_was_given(
    api_as: As, charlie: User, team: Vault, codename: str, *, may_change: bool
) -> None:
    permission = Permission.objects.get(codename=codename, content_type__app_label="vaults")
    VaultUserPermission.objects.create(content_object=team, user=charlie, permission=permission)
    client, path = api_as(charlie), f"{VAULTS}{team.pk}/"

    payload = client.get(path).json()

    assert "lr = 0.1" in payload["text"]
    changed = client.patch(path, {"name": "renamed"}, headers={"If-Match": '"1"'})
    assert changed.status_code == (200 if may_change else 403)
    assert client.delete(path).status_code == 403
    enforcing = client.patch(path, {"enforced": ["lr"]}, headers={"If-Match": "*"})
    assert enforcing.status_code == 403


def test_the_list_is_filtered(api_as: As, root: User, personal: Vault, team: Vault) -> None:
    client = api_as(root)

    assert names(client, kind="group") == ["team"]
    assert names(client, kind="personal") == ["mine"]
    assert names(client, group="dev") == ["team"]
    assert names(client, owner="alice") == ["mine"]
    assert names(client, is_active="true") == []
    assert names(client, q="EA") == ["team"]
    for wrong in ({"kind": "x"}, {"is_active": "1"}, {"q": "\0"}):
        assert client.get(VAULTS, wrong).status_code == 400


def test_the_list_costs_the_same_however_long_it_is(api_as: As, root: User, team: Vault) -> None:
    client = api_as(root)
    client.get(VAULTS)
    with CaptureQueriesContext(connection) as few:
        client.get(VAULTS)
    for number in range(15):
        vault_create(actor=root, name=f"own {number}")

    with CaptureQueriesContext(connection) as many:
        answer = client.get(VAULTS)

    assert len(answer.json()["results"]) == 16
    assert len(many) == len(few)


def test_a_text_is_checked_as_one_types(api_as: As, alice: User) -> None:
    client = api_as(alice)

    def check(text: str, format_: str = "hocon") -> Any:
        return client.post(f"{VAULTS}validate/", {"text": text, "format": format_}).json()

    assert check("b = 1\na = 2") == {
        "is_valid": True,
        "problem": "",
        "line": 0,
        "column": 0,
        "keys": ["a", "b"],
    }
    wrong = check("a = 1\ninclude file(x)")
    assert (wrong["is_valid"], wrong["line"], wrong["column"]) == (False, 2, 1)
    assert check(json.dumps({"secrets": {"A": HIDDEN}}), "json")["is_valid"]
    assert not Vault.objects.exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "x", "text": "a = ["}, "text"),
        ({"name": "x", "format": "toml"}, "format"),
        ({"name": ""}, "name"),
        ({"name": "x", "group": "nobody"}, "group"),
        ({"name": "x", "groop": "dev"}, "groop"),
        ({"name": "x", "text": "x" * 300_000}, "text"),
        ({"name": "x", "enforced": "a"}, "enforced"),
    ],
)
def test_bad_input_is_refused_at_its_field(
    api_as: As, root: User, body: dict[str, Any], field: str
) -> None:
    answer = api_as(root).post(VAULTS, body)

    assert answer.status_code == 400
    assert field in answer.json()["fields"]
    assert not Vault.objects.exists()


def test_earlier_versions_are_read_and_brought_back(
    api_as: As, alice: User, bob: User, personal: Vault
) -> None:
    client, path = api_as(alice), f"{VAULTS}{personal.pk}/"
    client.patch(path, {"text": "lr = 0.2"}, headers={"If-Match": '"1"'})

    listed = client.get(f"{path}versions/").json()["results"]
    first = client.get(f"{path}versions/1/")
    unasked = client.post(f"{path}restore/", {"to": 1})
    unknown = client.post(f"{path}restore/", {"to": 9}, headers={"If-Match": '"2"'})
    stale = client.post(f"{path}restore/", {"to": 1}, headers={"If-Match": '"1"'})
    back = client.post(f"{path}restore/", {"to": 1}, headers={"If-Match": '"2"'})

    assert [(one["version"], one["by"]) for one in listed] == [(2, "alice"), (1, "alice")]
    assert "text" not in listed[0]
    assert first.json()["text"] == TEXT.replace(CANARY, f'"{HIDDEN}"')
    assert first.headers["Cache-Control"] == "no-store"
    assert client.get(f"{path}versions/9/").status_code == 404
    assert unasked.status_code == 400
    assert unknown.status_code == 400
    assert set(unknown.json()["fields"]) == {"to"}
    assert stale.status_code == 412
    assert (back.status_code, back.json()["version"]) == (200, 3)
    assert "lr = 0.1" in back.json()["text"]
    for part in ("versions/", "versions/1/"):
        assert api_as(bob).get(path + part).status_code == 404
    assert api_as(bob).post(f"{path}restore/", {"to": 1}).status_code == 404


def test_members_and_administrators_read_no_version_that_is_not_theirs(
    api_as: As, bob: User, root: User, personal: Vault, team: Vault
) -> None:
    for client, vault in ((api_as(bob), team), (api_as(root), personal)):
        path = f"{VAULTS}{vault.pk}/"
        assert client.get(path).status_code == 200
        assert client.get(f"{path}versions/").status_code == 404
        assert client.get(f"{path}versions/1/").status_code == 404
        restored = client.post(f"{path}restore/", {"to": 1}, headers={"If-Match": '"1"'})
        assert restored.status_code == 403


@pytest.mark.parametrize("change", ["text", "vault", "owner", "format", "version"])
def test_a_text_that_was_moved_opens_nowhere_else(
    api_as: As, alice: User, bob: User, personal: Vault, change: str
) -> None:
    his = vault_create(actor=bob, name="his", text="a = 1")
    row = VaultVersion.objects.get(vault=personal)
    stolen = VaultVersion.objects.filter(vault=his)
    if change == "text":
        stolen.update(sealed_text=row.sealed_text)
    elif change == "vault":
        stolen.delete()
        VaultVersion.objects.filter(pk=row.pk).update(vault=his)
    elif change == "owner":
        Vault.objects.filter(pk=personal.pk).update(owner=bob)
        his = personal
    elif change == "format":
        VaultVersion.objects.update(format="yaml")
        Vault.objects.update(format="yaml")
    else:
        VaultVersion.objects.update(version=2)
        Vault.objects.update(version=2)

    answer = api_as(bob).get(f"{VAULTS}{his.pk}/")

    assert answer.status_code == 409, answer.content
    assert answer.json()["code"] == "seal_mismatch"
    assert list(answer.json()["fields"]) == ["text"]
    assert CANARY not in answer.content.decode()
    assert his.name in names(api_as(bob))


def test_a_cursor_is_no_text_of_a_vault(api_as: As, alice: User, personal: Vault) -> None:
    for index in range(2):
        vault_create(actor=alice, name=f"v{index}")
    client = api_as(alice)
    page = client.get(VAULTS, {"limit": 1, "page_size": 1}).json()
    text = VaultVersion.objects.get(vault=personal).sealed_text
    cursor = b64encode(urlencode({"p": text}).encode()).decode()

    assert page["next"]
    assert client.get(page["next"]).status_code == 200
    refused = client.get(VAULTS, {"cursor": cursor})

    assert refused.status_code in {400, 404}
    assert CANARY not in refused.content.decode()
