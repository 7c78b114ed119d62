"""Passwords of groups at registries: stored sealed, shown to nobody, given to launches."""

from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.core import keyring
from apps.core.errors import BadInput
from apps.core.images import ImageName
from apps.core.keyring import HIDDEN
from apps.events.models import Event
from apps.policies.models import RegistryCredential
from apps.policies.selectors import registry_access
from apps.policies.services import registry_credential_save
from tests.configuration.site import form_of

pytestmark = pytest.mark.django_db

HOST = "registry.example.org:5000"
PASSWORD = 'pass "wörd" : $(x)'
LIST = reverse("admin:policies_registrycredential_changelist")
ADD = reverse("admin:policies_registrycredential_add")


def saved(group: Group, **changes: Any) -> RegistryCredential:
    values = {"registry": HOST, "username": "robot", "password": PASSWORD} | changes
    return registry_credential_save(actor=None, group=group, **values)


def page_of(row: RegistryCredential) -> str:
    return reverse("admin:policies_registrycredential_change", args=[row.pk])


def form(group: Group, **changes: str) -> dict[str, Any]:
    return {
        "group": group.pk,
        "registry": HOST,
        "username": "robot",
        "password": PASSWORD,
    } | changes


def test_a_password_is_stored_sealed_and_in_no_event(dev_group: Group, root: User) -> None:
    row = registry_credential_save(
        actor=root, group=dev_group, registry=HOST, username="robot", password=PASSWORD
    )

    assert PASSWORD not in str(vars(RegistryCredential.objects.get()))
    assert keyring.unseal(row.sealed_password, context=row.password_context) == PASSWORD
    event = Event.objects.get(kind="registry_credential.saved")
    assert (event.actor_id, event.data) == (
        root.pk,
        {"group": "dev", "registry": HOST, "username": "robot", "has_new_password": True},
    )


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"registry": "https://registry.example.org"}, "registry"),
        ({"registry": "registry.example.org/team"}, "registry"),
        ({"registry": "Registry.example.org"}, "registry"),
        ({"registry": "team"}, "registry"),
        ({"registry": "index.docker.io"}, "registry"),
        ({"registry": "registry.example.org\n"}, None),
        ({"registry": "localhost"}, None),
        ({"username": "a:b"}, "username"),
        ({"username": ""}, "username"),
        ({"password": ""}, "password"),
        ({"password": HIDDEN}, "password"),
        ({"password": "a\nb"}, "password"),
    ],
)
def test_what_will_not_do_is_named(
    dev_group: Group, changes: dict[str, Any], field: str | None
) -> None:
    if field is None:
        assert saved(dev_group, **changes).pk
        return
    with pytest.raises(BadInput) as refused:
        saved(dev_group, **changes)

    assert list(refused.value.fields) == [field]
    assert RegistryCredential.objects.count() == 0


def test_a_launch_gets_what_its_group_has_at_the_registry_of_its_image(
    dev_group: Group, research_group: Group
) -> None:
    saved(dev_group)
    image = ImageName.parse(f"{HOST}/team/train:1")

    own = registry_access(group_id=dev_group.pk, image=image)
    others = registry_access(group_id=research_group.pk, image=image)
    elsewhere = registry_access(
        group_id=dev_group.pk, image=ImageName.parse("registry.example.org/train")
    )

    assert own.credential is not None
    assert (own.credential.username, own.password(), own.is_guarded) == ("robot", PASSWORD, True)
    assert PASSWORD not in repr(own)
    assert (others.credential, others.password(), others.is_guarded) == (None, "", True)
    assert (elsewhere.credential, elsewhere.is_guarded) == (None, False)


def test_docker_hub_is_the_registry_of_names_without_a_host(dev_group: Group) -> None:
    saved(dev_group, registry="docker.io")

    for name in ("team/train:1", "index.docker.io/team/train:1"):
        access = registry_access(group_id=dev_group.pk, image=ImageName.parse(name))
        assert access.credential is not None


def test_a_password_for_another_name_of_docker_hub_guards_docker_hub(dev_group: Group) -> None:
    saved(dev_group, registry="docker.io")
    # As an earlier version took it.
    RegistryCredential.objects.update(registry="index.docker.io")

    access = registry_access(group_id=dev_group.pk, image=ImageName.parse("team/train:1"))

    assert access.credential is not None


def test_each_change_has_another_revision(dev_group: Group) -> None:
    row = saved(dev_group)
    before = registry_access(group_id=dev_group.pk, image=ImageName.parse(f"{HOST}/a")).revision

    saved(dev_group, credential=row, password="another")

    assert (
        registry_access(group_id=dev_group.pk, image=ImageName.parse(f"{HOST}/a")).revision
        != before
    )


def test_a_password_is_never_sent_to_another_registry(dev_group: Group) -> None:
    row = saved(dev_group)

    with pytest.raises(BadInput, match="given again"):
        saved(dev_group, credential=row, registry="evil.example.org", password=HIDDEN)

    assert RegistryCredential.objects.get().registry == HOST


def test_keys_are_rotated_under_passwords_too(
    dev_group: Group, tmp_path: Any, settings: Any
) -> None:
    settings.RPM_SECRET_KEYS = []
    settings.RPM_KEY_RING_FILE = tmp_path / "key-ring"
    saved(dev_group)
    (old,) = keyring.keys()

    output = StringIO()
    call_command("keys", "rotate", stdout=output)
    call_command("keys", "prune", stdout=StringIO())

    row = RegistryCredential.objects.get()
    assert "1 password of registries" in output.getvalue()
    assert not keyring.opens(old, row.sealed_password)
    assert keyring.unseal(row.sealed_password, context=row.password_context) == PASSWORD


def test_the_admin_site_stores_a_password_and_never_shows_it(
    client: Client, root: User, dev_group: Group
) -> None:
    client.force_login(root)

    assert client.post(ADD, form(dev_group)).status_code == 302

    row = RegistryCredential.objects.get()
    assert keyring.unseal(row.sealed_password, context=row.password_context) == PASSWORD
    for address in (LIST, page_of(row)):
        shown = client.get(address).content.decode()
        assert "w\xf6rd" not in shown
        assert row.sealed_password not in shown
    assert f'value="{HIDDEN}"' in shown


def test_sending_the_stars_back_keeps_the_password(
    client: Client, root: User, dev_group: Group
) -> None:
    row = saved(dev_group)
    client.force_login(root)

    shown = form_of(client, page_of(row))
    answer = client.post(page_of(row), shown | {"username": "robot2", "password": HIDDEN})

    assert answer.status_code == 302, answer.content
    row.refresh_from_db()
    assert row.username == "robot2"
    assert keyring.unseal(row.sealed_password, context=row.password_context) == PASSWORD
    event = Event.objects.filter(kind="registry_credential.saved").latest("id")
    assert event.data["has_new_password"] is False


def test_what_was_typed_is_not_sent_back_with_an_error(
    client: Client, root: User, dev_group: Group
) -> None:
    client.force_login(root)

    answer = client.post(ADD, form(dev_group, registry="no/host"))

    assert answer.status_code == 200
    assert "Use a host" in answer.content.decode()
    assert "w\xf6rd" not in answer.content.decode()


def test_a_removed_one_is_gone_and_recorded(client: Client, root: User, dev_group: Group) -> None:
    row = saved(dev_group)
    client.force_login(root)
    address = reverse("admin:policies_registrycredential_delete", args=[row.pk])

    assert client.post(address, {"post": "yes"}).status_code == 302

    assert RegistryCredential.objects.count() == 0
    assert Event.objects.get(kind="registry_credential.removed").actor_id == root.pk


def test_only_administrators_come_near_them(
    client: Client, quinn: User, charlie: User, dev_group: Group
) -> None:
    row = saved(dev_group)
    for user in (quinn, charlie):
        client.force_login(user)
        for address in (LIST, ADD, page_of(row)):
            assert client.get(address).status_code in (302, 403)
            assert client.post(address, form(dev_group)).status_code in (302, 403)
    assert RegistryCredential.objects.get().version == 1


def test_a_password_follows_its_credential_to_another_group(
    dev_group: Group, research_group: Group
) -> None:
    row = saved(dev_group)

    row = registry_credential_save(
        actor=None, group=research_group, registry=HOST, username="robot", credential=row
    )

    assert keyring.unseal(row.sealed_password, context=row.password_context) == PASSWORD


@pytest.mark.parametrize("column", ["group", "registry"])
def test_a_password_does_not_open_for_another_group_or_registry(
    dev_group: Group, research_group: Group, column: str
) -> None:
    saved(dev_group)
    value = research_group if column == "group" else "registry.example.net"
    RegistryCredential.objects.update(**{column: value})
    row = RegistryCredential.objects.get()
    image = ImageName.parse(f"{row.registry}/a")

    with pytest.raises(keyring.SealMismatch, match="password cannot be read"):
        registry_access(group_id=row.group_id, image=image).password()
