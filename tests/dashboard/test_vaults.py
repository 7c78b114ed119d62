"""The pages of vaults: made, changed, switched, moved and removed by hand."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from apps.access.services.vaults import vault_change
from apps.accounts.models import User
from apps.core.keyring import HIDDEN
from apps.vaults.models import Vault, VaultVersion
from apps.vaults.services.vaults import vault_create
from tests.dashboard.conftest import ClientFor, Submit
from tests.page_words import words_on

pytestmark = pytest.mark.django_db

CANARY = "canary-1234-geheim"
TEXT = f"lr = 0.1\nsecrets {{ TOKEN = {CANARY} }}\n"


@pytest.fixture
def own_vault(alice: User) -> Vault:
    return vault_create(actor=alice, name="mine", text=TEXT)


def fields(vault: Vault, **changes: Any) -> dict[str, Any]:
    """What the form sends for a vault as it is."""
    values = {"name": vault.name, "format": vault.format, "text": "a = 1", "version": 1}
    return {**values, **changes}


def test_a_vault_is_made_from_a_file(alice: User, client_for: ClientFor) -> None:
    file = SimpleUploadedFile("v.conf", TEXT.encode())
    body = {"name": "from a file", "format": "hocon", "text": "", "file": file}

    answer = client_for(alice).post(reverse("vault_new"), body)

    assert answer.status_code == 302
    assert Vault.objects.get().summary == ["lr", "secrets"]


def test_a_mistake_is_said_at_the_text(alice: User, client_for: ClientFor) -> None:
    body = {"name": "x", "format": "hocon", "text": "a = 1\ninclude file(x)"}

    answer = client_for(alice).post(reverse("vault_new"), body)

    assert answer.status_code == 400
    assert "line 2, column 1" in answer.content.decode().lower()
    assert not Vault.objects.exists()


def test_pages_never_show_a_secret(alice: User, own_vault: Vault, client_for: ClientFor) -> None:
    client = client_for(alice)
    for name, arguments in (
        ("vault_list", []),
        ("vault_detail", [own_vault.pk]),
        ("vault_download", [own_vault.pk]),
        ("vault_delete", [own_vault.pk]),
    ):
        content = client.get(reverse(name, args=arguments)).content.decode()
        assert CANARY not in content, name
    assert HIDDEN in client.get(reverse("vault_download", args=[own_vault.pk])).content.decode()


def test_who_saves_second_sees_both_texts(
    alice: User, own_vault: Vault, client_for: ClientFor
) -> None:
    vault_change(actor=alice, vault=own_vault, changes={"text": "theirs = 1"})
    client, path = client_for(alice), reverse("vault_detail", args=[own_vault.pk])

    answer = client.post(path, fields(own_vault, text="ours = 1"))

    page = answer.content.decode()
    assert answer.status_code == 400
    assert "theirs = 1" in page
    assert "ours = 1" in page
    assert 'name="version" value="2"' in page
    again = client.post(path, fields(own_vault, text="ours = 1", version=2))
    assert again.status_code == 302
    assert Vault.objects.get().summary == ["ours"]


def test_an_earlier_version_is_looked_at_and_brought_back(
    alice: User, root: User, own_vault: Vault, client_for: ClientFor
) -> None:
    vault_change(actor=alice, vault=own_vault, changes={"text": "later = 1"})
    client, path = client_for(alice), reverse("vault_version", args=[own_vault.pk, 1])

    listed = client.get(reverse("vault_detail", args=[own_vault.pk])).content.decode()
    page = client.get(path).content.decode()
    stale = client.post(path, {"version": "1"})
    done = client.post(path, {"version": "2"})

    assert path in listed
    assert reverse("vault_version", args=[own_vault.pk, 2]) not in listed
    assert "lr = 0.1" in page
    assert HIDDEN in page
    assert CANARY not in page
    assert stale.status_code == 400
    assert "changed this vault since you read it" in stale.content.decode()
    assert done.status_code == 302
    assert Vault.objects.get().summary == ["lr", "secrets"]
    assert client.get(reverse("vault_version", args=[own_vault.pk, 9])).status_code == 404
    assert client_for(root).get(path).status_code == 404


def test_a_vault_is_switched_moved_and_removed(
    alice: User, own_vault: Vault, client_for: ClientFor
) -> None:
    other = vault_create(actor=alice, name="other")
    client = client_for(alice)

    client.post(reverse("vault_switch", args=[own_vault.pk]), {"is_active": "1"})
    client.post(reverse("vault_move", args=[other.pk]), {"position": "1"})
    client.post(reverse("vault_delete", args=[other.pk]))

    assert Vault.objects.get(pk=own_vault.pk).is_active
    assert list(Vault.objects.filter(removed_at__isnull=True)) == [own_vault]


def test_charlie_finds_no_vault_of_others(
    charlie: User, root: User, dev_group: Group, own_vault: Vault, client_for: ClientFor
) -> None:
    team = vault_create(actor=root, name="team", group=dev_group, text=TEXT)
    client = client_for(charlie)

    page = client.get(reverse("vault_list")).content.decode()
    assert str(own_vault.pk) not in page
    assert str(team.pk) not in page
    for vault in (own_vault, team):
        for name in ("vault_detail", "vault_download", "vault_delete"):
            assert client.get(reverse(name, args=[vault.pk])).status_code == 404
        for name in ("vault_switch", "vault_move", "vault_delete"):
            path = reverse(name, args=[vault.pk])
            assert client.post(path, {"position": "1"}).status_code == 404


def test_a_members_page_says_that_a_vault_of_the_group_is_there(
    bob: User, root: User, dev_group: Group, client_for: ClientFor
) -> None:
    team = vault_create(actor=root, name="team", group=dev_group, text=TEXT)
    client = client_for(bob)

    page = client.get(reverse("vault_detail", args=[team.pk])).content.decode()

    assert "lr, secrets" in page
    assert words_on(page, "0.1") == []
    assert client.get(reverse("vault_download", args=[team.pk])).status_code == 404
    assert client.post(reverse("vault_detail", args=[team.pk]), fields(team)).status_code == 403


def test_a_task_shows_its_owner_what_vaults_bring(
    alice: User, bob: User, charlie: User, submit: Submit, client_for: ClientFor
) -> None:
    text = f"environment.A = from-vault, secrets.S = {CANARY}"
    vault_create(actor=alice, name="mine", text=text, is_active=True)
    path = reverse("task_vaults", args=[submit(alice, "t").pk])

    shown = client_for(alice).get(path).content.decode()

    assert "environment.A" in shown
    assert "from-vault" in shown
    assert CANARY not in shown
    assert client_for(bob).get(path).status_code == 404
    assert client_for(charlie).get(path).status_code == 404


def test_a_text_that_cannot_be_read_spoils_its_own_page_only(
    alice: User, own_vault: Vault, client_for: ClientFor
) -> None:
    other = vault_create(actor=alice, name="other", text="a = 1")
    row = VaultVersion.objects.get(vault=own_vault)
    VaultVersion.objects.filter(vault=other).update(sealed_text=row.sealed_text)
    client = client_for(alice)

    broken = client.get(reverse("vault_detail", args=[other.pk]))

    assert broken.status_code == 409
    assert "cannot be read" in broken.content.decode()
    assert CANARY not in broken.content.decode()
    assert client.get(reverse("vault_list")).status_code == 200
    assert client.get(reverse("vault_detail", args=[own_vault.pk])).status_code == 200
    assert client.post(reverse("vault_delete", args=[other.pk])).status_code == 302
