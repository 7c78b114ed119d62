"""A deactivated person cannot sign in anywhere; nobody is ever deleted."""

import base64

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from pytest_django import DjangoCaptureOnCommitCallbacks

from apps.accounts.models import ADMINS, Credential, User
from apps.accounts.services.credentials import credential_create, credential_user
from apps.accounts.services.groups import group_members_remove, group_save, user_groups_set
from apps.accounts.services.invitations import person_invite
from apps.accounts.services.people import user_create
from apps.accounts.services.people_changes import (
    person_activate,
    person_change,
    person_deactivate,
)
from apps.core.errors import BadInput, Conflict
from apps.events.models import Event

pytestmark = pytest.mark.django_db

PASSWORD = "Correct-horse-7-battery"


def basic(key: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{key}:{secret}".encode()).decode()


def test_sessions_and_credentials_of_a_deactivated_person_end_at_once_and_for_ever(
    root: User, client: Client
) -> None:
    ada = user_create(username="ada", password=PASSWORD)
    assert client.login(username="ada", password=PASSWORD)
    credential, secret = credential_create(user=ada, label="nightly")
    assert client.get("/tasks/").status_code == 200

    person_deactivate(actor=root, user=ada)

    assert client.get("/tasks/").status_code == 302
    assert credential_user(basic(credential.key, secret)) is None
    revoked = Event.objects.get(kind="credential.revoked")
    assert (revoked.object_id, revoked.actor) == (str(credential.pk), root)
    assert not Client().login(username="ada", password=PASSWORD)
    person_activate(actor=root, user=ada)
    assert client.get("/tasks/").status_code == 302
    assert credential_user(basic(credential.key, secret)) is None
    assert Client().login(username="ada", password=PASSWORD)


def test_sockets_of_a_deactivated_person_close(
    root: User,
    alice: User,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    notified: list[str] = []
    monkeypatch.setattr(
        "apps.core.notifications._notifier.notify", lambda *, topics, **_: notified.extend(topics)
    )

    with django_capture_on_commit_callbacks(execute=True):
        person_deactivate(actor=root, user=alice)

    assert f"user.{alice.pk}" in notified


def test_the_last_administrator_stays_by_every_way(root: User) -> None:
    admins = Group.objects.get(name=ADMINS)
    other = user_create(username="other", password=None, groups=[ADMINS])
    person_deactivate(actor=root, user=other)
    person_invite(actor=root, address=str, username="pending", groups=[admins])

    with pytest.raises(Conflict):
        person_deactivate(actor=root, user=root)
    with pytest.raises(Conflict):
        user_groups_set(actor=root, user=root, groups=[])
    with pytest.raises(Conflict):
        group_members_remove(actor=root, group=admins, users=[root])
    with pytest.raises(Conflict):
        group_save(actor=root, group=admins, description="", members=[other])

    assert User.objects.get(pk=root.pk).is_active
    assert admins.user_set.filter(pk=root.pk).exists()


def test_a_person_is_deactivated_once(root: User, alice: User) -> None:
    credential_create(user=alice, label="nightly")
    first = person_deactivate(actor=root, user=alice)

    second = person_deactivate(actor=root, user=alice)

    assert first.session_nonce == second.session_nonce
    assert Credential.objects.get().revoked_at is not None


def test_names_groups_and_address_of_a_person_are_changed_together(
    root: User, alice: User, research_group: Group
) -> None:
    person_change(
        actor=root,
        user=alice,
        changes={"first_name": "Alice", "email": "alice@example.org"},
        groups=[research_group],
    )

    alice.refresh_from_db()
    assert (str(alice), alice.email) == ("Alice", "alice@example.org")
    assert sorted(group.name for group in alice.groups.all()) == ["Users", "research"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"email": "Bob@example.org"}, "email", id="another's address"),
        pytest.param({"email": "bob"}, "email", id="no address"),
        pytest.param({"username": "bob"}, "username", id="another's name"),
        pytest.param({"is_active": "0"}, "is_active", id="a column that is none of these"),
    ],
)
def test_what_cannot_be_changed_so_is_named(
    root: User, alice: User, bob: User, changes: dict[str, str], field: str
) -> None:
    User.objects.filter(pk=bob.pk).update(email="bob@example.org")

    with pytest.raises(BadInput) as refused:
        person_change(actor=root, user=alice, changes=changes)

    assert set(refused.value.fields) == {field}
