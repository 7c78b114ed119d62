"""Creation and change of vaults: sealed at rest, with no content in events."""

from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command

from apps.access.services.vaults import (
    vault_change,
    vault_move,
    vault_remove,
    vault_restore,
    vault_switch,
)
from apps.access.vaults import visible_vault
from apps.accounts.models import User
from apps.core import keyring
from apps.core.errors import BadInput, Conflict, NotAllowed, Stale
from apps.core.keyring import HIDDEN
from apps.events.models import AuditEntry, Event
from apps.vaults.models import Vault, VaultVersion
from apps.vaults.selectors import effective
from apps.vaults.selectors.effective import layers_of, vault_text, vaults_applying_to
from apps.vaults.services import vaults as services
from apps.vaults.services.maintenance import KEPT_VERSIONS, vaults_remove_unused, vaults_store_data
from apps.vaults.services.vaults import vault_create

pytestmark = pytest.mark.django_db

CANARY = "canary-4711-geheim"
TEXT = f"learning_rate = 0.1\nsecrets {{ TOKEN = {CANARY} }}\n"


def test_a_vault_is_stored_sealed_only(alice: User) -> None:
    vault = vault_create(actor=alice, name="mine", text=TEXT)

    stored = str([vars(row) for row in (Vault.objects.get(), VaultVersion.objects.get())])
    assert CANARY not in stored
    assert "0.1" not in stored
    assert vault.summary == ["learning_rate", "secrets"]
    assert not vault.is_active
    assert vault_text(vault) == TEXT.replace(CANARY, f'"{HIDDEN}"')


def test_every_change_is_recorded_without_what_the_vault_holds(alice: User) -> None:
    vault = vault_create(actor=alice, name="mine", text=TEXT)
    vault_change(actor=alice, vault=vault, changes={"name": "other", "text": TEXT + "x = 17\n"})
    vault_switch(actor=alice, vault=vault, is_active=True)
    vault_remove(actor=alice, vault=vault)

    events = list(Event.objects.filter(object_type="vault").order_by("id"))
    assert [event.kind for event in events] == [
        *("vault.created", "vault.changed", "vault.enabled", "vault.removed"),
    ]
    assert {event.actor_id for event in events} == {alice.pk}
    entries = list(AuditEntry.objects.filter(object_type="vault").order_by("id"))
    assert (entries[1].before["name"], entries[1].after["name"]) == ("mine", "other")
    audited = [str(vars(row)) for row in entries]
    assert len(audited) == 4
    assert CANARY not in str([event.data for event in events]) + str(audited)
    assert "17" not in str([event.data for event in events])


def test_stars_keep_the_secret_and_a_new_value_replaces_it(alice: User) -> None:
    vault = vault_create(actor=alice, name="mine", text=TEXT)
    shown = vault_text(vault)

    changed = vault_change(actor=alice, vault=vault, changes={"text": shown.replace("0.1", "0.2")})
    (layer,) = layers_of([(changed.pk, changed.version)])
    assert layer.data == {"learning_rate": 0.2, "secrets": {"TOKEN": CANARY}}

    changed = vault_change(actor=alice, vault=changed, changes={"text": "secrets.TOKEN = new"})
    (layer,) = layers_of([(changed.pk, changed.version)])
    assert layer.data == {"secrets": {"TOKEN": "new"}}


def test_another_format_keeps_the_secrets_too(alice: User) -> None:
    vault = vault_create(actor=alice, name="mine", text=TEXT)
    text = f'learning_rate: 0.1\nsecrets:\n  TOKEN: "{HIDDEN}"\n'

    changed = vault_change(actor=alice, vault=vault, changes={"text": text, "format": "yaml"})

    (layer,) = layers_of([(changed.pk, changed.version)])
    assert layer.data == {"learning_rate": 0.1, "secrets": {"TOKEN": CANARY}}


def test_the_second_to_save_learns_who_was_first(alice: User) -> None:
    vault = vault_create(actor=alice, name="mine", text=TEXT)
    vault_change(actor=alice, vault=vault, changes={"name": "first"}, version=1)

    with pytest.raises(Stale, match="alice changed this vault"):
        vault_change(actor=alice, vault=vault, changes={"name": "second"}, version=1)

    assert Vault.objects.get().name == "first"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": ""}, "name"),
        ({"text": "a = ["}, "text"),
        ({"text": "secrets.A = 1\nsecrets.B = x"}, "text"),
        ({"text": f'secrets.A = "{HIDDEN}"'}, "text"),
        ({"format": "toml"}, "format"),
        ({"enforced": ["a"]}, "enforced"),
    ],
)
def test_what_will_not_do_is_named_and_nothing_is_stored(
    alice: User, values: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadInput) as refused:
        vault_create(actor=alice, **{"name": "mine", "text": "a = 1", **values})

    assert list(refused.value.fields) == [field]
    assert not Vault.objects.exists()


def test_names_are_unique_among_ones_own_and_among_those_of_groups(
    alice: User, bob: User, root: User, dev_group: Group, research_group: Group
) -> None:
    vault_create(actor=alice, name="mine")
    vault_create(actor=bob, name="mine")
    vault_create(actor=root, name="mine", group=dev_group)

    for actor, group in ((alice, None), (root, research_group)):
        with pytest.raises(Conflict) as refused:
            vault_create(actor=actor, name="MINE", group=group)
        assert list(refused.value.fields) == ["name"]


def test_only_administrators_make_vaults_of_groups_and_enforce(
    alice: User, root: User, dev_group: Group
) -> None:
    with pytest.raises(NotAllowed):
        vault_create(actor=alice, name="team", group=dev_group)

    vault = vault_create(actor=root, name="team", text="a.b = 1", group=dev_group, enforced=["a.b"])
    assert vault.enforced == ["a.b"]
    tries: list[dict[str, Any]] = [{"name": "x"}, {"enforced": []}]
    for changes in tries:
        with pytest.raises(NotAllowed):
            vault_change(actor=alice, vault=visible_vault(alice, vault.pk), changes=changes)
    with pytest.raises(BadInput, match="no key of the text"):
        vault_change(actor=root, vault=vault, changes={"text": "b = 1"})


def test_administrators_switch_others_vaults_off_and_never_on(alice: User, root: User) -> None:
    vault = vault_create(actor=alice, name="mine", text=TEXT, is_active=True)
    seen = visible_vault(root, vault.pk)

    vault_switch(actor=root, vault=seen, is_active=False)

    assert not Vault.objects.get().is_active
    with pytest.raises(NotAllowed):
        vault_switch(actor=root, vault=seen, is_active=True)
    with pytest.raises(NotAllowed):
        vault_change(actor=root, vault=seen, changes={"name": "x"})
    with pytest.raises(NotAllowed):
        vault_remove(actor=root, vault=seen)


def test_active_vaults_apply_in_order_with_those_of_groups_above(
    alice: User, root: User, dev_group: Group, research_group: Group
) -> None:
    low = vault_create(actor=root, name="low", group=dev_group, is_active=True)
    high = vault_create(actor=root, name="high", group=dev_group, is_active=True)
    vault_create(actor=root, name="others", group=research_group, is_active=True)
    vault_create(actor=alice, name="off")
    first = vault_create(actor=alice, name="first", is_active=True)
    second = vault_create(actor=alice, name="second", is_active=True)

    assert _names(alice) == [first.pk, second.pk, low.pk, high.pk]

    vault_move(actor=root, vault=visible_vault(root, high.pk), position=1)
    vault_move(actor=alice, vault=second, position=1)

    assert _names(alice) == [second.pk, first.pk, high.pk, low.pk]


def test_there_is_a_bound_to_the_number_of_vaults(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "MOST_PERSONAL", 1)
    vault_create(actor=alice, name="one")

    with pytest.raises(Conflict, match="1 vault"):
        vault_create(actor=alice, name="two")


def test_there_is_a_bound_to_the_number_of_vaults_of_groups(
    root: User, dev_group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "MOST_OF_GROUPS", 1)
    vault_create(actor=root, name="one", group=dev_group)

    with pytest.raises(Conflict, match="1 vault"):
        vault_create(actor=root, name="two", group=dev_group)


def test_there_is_a_bound_to_the_number_of_enforced_paths(root: User, dev_group: Group) -> None:
    paths = [f"k{number}" for number in range(services.MOST_ENFORCED + 1)]
    text = "\n".join(f"{path} = 1" for path in paths)
    vault = vault_create(actor=root, name="one", text=text, group=dev_group, enforced=paths[:-1])

    with pytest.raises(BadInput, match="has up to 100 paths"):
        vault_change(actor=root, vault=vault, changes={"enforced": paths})


@pytest.mark.parametrize("is_personal", [True, False])
def test_what_active_vaults_hold_is_bounded(
    alice: User, root: User, dev_group: Group, monkeypatch: pytest.MonkeyPatch, is_personal: bool
) -> None:
    # Counted with what an alias repeats: {"a":["x","x"]} has 15 bytes.
    monkeypatch.setattr(services, "ACTIVE_BYTES" if is_personal else "ACTIVE_BYTES_OF_GROUPS", 30)
    actor = alice if is_personal else root
    values: dict[str, Any] = {"text": "a: [&x x, *x]", "format": "yaml"}
    values["group"] = None if is_personal else dev_group
    vault_create(actor=actor, name="one", is_active=True, **values)
    vault_create(actor=actor, name="two", is_active=True, **values)
    third = vault_create(actor=actor, name="three", **values)

    with pytest.raises(BadInput) as switched:
        vault_switch(actor=actor, vault=third, is_active=True)
    with pytest.raises(BadInput) as created:
        vault_create(actor=actor, name="four", is_active=True, **values)

    assert switched.value.fields == {
        "is_active": "makes active vaults hold 45 bytes: at most 30 in all"
    }
    assert set(created.value.fields) == {"text"}
    first = Vault.objects.get(name="one")
    with pytest.raises(BadInput, match="hold 31 bytes"):
        vault_change(actor=actor, vault=first, changes={"text": "a: [&x x, x2]"})
    vault_change(actor=actor, vault=first, changes={"text": "a: x"})
    assert vault_change(actor=actor, vault=first, changes={"text": "a: y"}).version == 3


def test_a_text_is_read_when_it_is_written_and_never_again(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = vault_create(actor=alice, name="mine", text="a = 1.10, b = [x], secrets.S = s3cret")
    monkeypatch.setattr(effective, "read", None)

    (layer,) = layers_of([(vault.pk, 1)])

    assert layer.data == {"a": 1.1, "b": ["x"], "secrets": {"S": "s3cret"}}
    assert not VaultVersion.objects.filter(sealed_data__contains="s3cret").exists()


def test_versions_from_before_data_was_kept_are_read_once(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = vault_create(actor=alice, name="mine", text="a = 1")
    VaultVersion.objects.update(sealed_data="")
    Vault.objects.update(data_size=0)

    assert layers_of([(vault.pk, 1)])[0].data == {"a": 1}
    assert (vaults_store_data(), vaults_store_data()) == (1, 0)

    monkeypatch.setattr(effective, "read", None)
    assert layers_of([(vault.pk, 1)])[0].data == {"a": 1}
    assert Vault.objects.get().data_size == len('{"a":1}')


def test_old_versions_and_removed_vaults_go_when_no_task_needs_them(alice: User) -> None:
    kept = vault_create(actor=alice, name="kept", text="a = 0")
    for number in range(1, KEPT_VERSIONS + 5):
        vault_change(actor=alice, vault=kept, changes={"text": f"a = {number}"})
    gone = vault_create(actor=alice, name="gone", text=TEXT)
    vault_remove(actor=alice, vault=gone)

    vaults_remove_unused({(kept.pk, 2), (gone.pk, 1)})

    numbers = VaultVersion.objects.filter(vault=kept).values_list("version", flat=True)
    assert sorted(numbers) == [2, *range(6, KEPT_VERSIONS + 6)]
    assert layers_of([(gone.pk, 1)])

    vaults_remove_unused(set())

    assert set(VaultVersion.objects.values_list("vault", flat=True)) == {kept.pk}
    assert VaultVersion.objects.count() == KEPT_VERSIONS
    assert [vault.pk for vault in Vault.objects.all()] == [kept.pk]


def test_vaults_are_sealed_again_when_keys_are_rotated(
    alice: User, tmp_path: Any, settings: Any
) -> None:
    settings.RPM_SECRET_KEYS = []
    settings.RPM_KEY_RING_FILE = tmp_path / "key-ring"
    vault = vault_create(actor=alice, name="mine", text=TEXT)
    vault_change(actor=alice, vault=vault, changes={"name": "new"})
    before = set(VaultVersion.objects.values_list("sealed_text", flat=True))

    output = StringIO()
    call_command("keys", "rotate", stdout=output)
    call_command("keys", "prune", stdout=StringIO())

    assert "1 vault with the first key" in output.getvalue()
    assert len(keyring.keys()) == 1
    after = set(VaultVersion.objects.values_list("sealed_text", flat=True))
    assert not before & after
    assert [layer.data["secrets"] for layer in layers_of([(vault.pk, 1), (vault.pk, 2)])] == [
        {"TOKEN": CANARY}
    ] * 2


def _names(user: User) -> list[Any]:
    return [pk for pk, _ in vaults_applying_to(user.pk, tenant_id=None)]


def test_an_earlier_version_comes_back_as_a_new_one_with_its_secrets(alice: User) -> None:
    vault = vault_create(actor=alice, name="mine", text=TEXT)
    vault_change(
        actor=alice, vault=vault, changes={"name": "other", "format": "json", "text": '{"x": 17}'}
    )
    seen = visible_vault(alice, vault.pk)

    back = vault_restore(actor=alice, vault=seen, to=1, version=2)

    (layer,) = layers_of([(back.pk, back.version)])
    assert layer.data == {"learning_rate": 0.1, "secrets": {"TOKEN": CANARY}}
    assert (back.version, back.name, back.format) == (3, "other", "hocon")
    assert back.summary == ["learning_rate", "secrets"]
    entry = AuditEntry.objects.get(verb="vault.restored")
    assert entry.details["restored_version"] == 1
    assert AuditEntry.objects.filter(verb="vault.changed").count() == 2
    assert CANARY not in str([vars(row) for row in AuditEntry.objects.all()])


def test_only_what_is_kept_comes_back_and_only_for_who_may_change_it(
    alice: User, bob: User, root: User, dev_group: Group
) -> None:
    own = vault_create(actor=alice, name="mine", text=TEXT)
    team = vault_create(actor=root, name="team", text=TEXT, group=dev_group, enforced=["*"])
    vault_change(actor=root, vault=team, changes={"text": "x = 1", "enforced": []})

    for number in (1, 2):
        with pytest.raises(BadInput) as refused:
            vault_restore(actor=alice, vault=visible_vault(alice, own.pk), to=number)
        assert set(refused.value.fields) == {"to"}
    with pytest.raises(NotAllowed):
        vault_restore(actor=bob, vault=visible_vault(bob, team.pk), to=1)
    with pytest.raises(Stale):
        vault_restore(actor=root, vault=visible_vault(root, team.pk), to=1, version=1)
    back = vault_restore(actor=root, vault=visible_vault(root, team.pk), to=1, version=2)
    assert back.enforced == ["*"]
