"""Vaults of earlier versions of RPM: still read, changed and replaced like all others."""

import pytest

from apps.access.services.vaults import vault_change
from apps.accounts.models import User
from apps.core.errors import BadInput
from apps.core.keyring import HIDDEN, seal
from apps.vaults.models import Vault, VaultVersion
from apps.vaults.selectors.effective import layers_of, vault_text
from apps.vaults.services import maintenance
from apps.vaults.services.maintenance import vaults_store_data
from apps.vaults.services.vaults import vault_create
from apps.vaults.text.hocon_resolver import SUBSTITUTIONS

pytestmark = pytest.mark.django_db

CANARY = "canary-4711-geheim"


def _with_many_substitutions() -> str:
    """What earlier versions took, and this one does not."""
    repeated = "".join(f"k{number} = ${{y}}x\n" for number in range(SUBSTITUTIONS + 500))
    return f"y = {'v' * 200}\nsecrets.TOKEN = {CANARY}\n{repeated}"


def _stored_before(vault: Vault, text: str) -> None:
    """As an earlier version stored it, without its data."""
    for row in VaultVersion.objects.filter(vault=vault).select_related("vault"):
        row.sealed_text, row.sealed_data = seal(text, context=row.text_context), ""
        row.save()


def test_what_was_stored_before_a_bound_is_read_and_can_be_changed(alice: User) -> None:
    text = _with_many_substitutions()
    with pytest.raises(BadInput, match="substitutions"):
        vault_create(actor=alice, name="new", text=text)
    vault = vault_create(actor=alice, name="mine", text="a = 1", is_active=True)
    _stored_before(vault, text)

    assert layers_of([(vault.pk, 1)])[0].data["k1"] == "v" * 200 + "x"
    shown = vault_text(vault)
    assert shown == text.replace(CANARY, f'"{HIDDEN}"')
    # The page sends the text with every change.
    for changes in ({"name": "other"}, {"name": "third", "text": shown}):
        vault = vault_change(actor=alice, vault=vault, changes=changes)
    data = layers_of([(vault.pk, vault.version)])[0].data
    assert (vault.name, vault.version, data["secrets"]) == ("third", 3, {"TOKEN": CANARY})
    with pytest.raises(BadInput, match="substitutions"):
        vault_change(actor=alice, vault=vault, changes={"text": shown + "z = 1\n"})
    kept = f'secrets.TOKEN = "{HIDDEN}"\n'
    vault = vault_change(actor=alice, vault=vault, changes={"text": kept})
    assert layers_of([(vault.pk, vault.version)])[0].data == {"secrets": {"TOKEN": CANARY}}


def test_what_a_stored_text_repeats_is_read_beyond_the_bound(alice: User) -> None:
    # Mappings that are merged over and over, and a long text within others that are replaced.
    keys = ", ".join(f"k{number} = 1" for number in range(300))
    merge_layers = f"b {{ {keys} }}\nc {{ x = 1 }}\nm = ${{b}}\n" + "m = ${c}\n" * 700
    written = f"y = {'v' * 100_000}\n" + "k = ${y}x\n" * 7 + "k = 1\n"
    for name, text in (("merged", merge_layers), ("written", written)):
        with pytest.raises(BadInput):
            vault_create(actor=alice, name="new", text=text)
        vault = vault_create(actor=alice, name=name, text="a = 1")
        _stored_before(vault, text)

        assert layers_of([(vault.pk, 1)])[0].data


def test_a_text_that_cannot_be_read_any_more_can_be_replaced(alice: User) -> None:
    vault = vault_create(actor=alice, name="mine", text="a = 1", is_active=True)
    _stored_before(vault, "a = [")

    vault = vault_change(actor=alice, vault=vault, changes={"text": "a = 2\n"})

    assert layers_of([(vault.pk, vault.version)])[0].data == {"a": 2}


def test_versions_that_cannot_be_read_keep_no_other_unread(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_READ_AT_ONCE", 2)
    old = vault_create(actor=alice, name="old", text="a = 1")
    _stored_before(old, "a = 1")
    for number in range(3):
        _stored_before(vault_create(actor=alice, name=f"bad {number}", text="a = 1"), "a = [")

    assert vaults_store_data() == 1
    assert VaultVersion.objects.get(vault=old).sealed_data
