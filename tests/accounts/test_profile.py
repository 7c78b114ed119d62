"""Changes to the user's own account, and when users were last active."""

from datetime import timedelta

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import (
    ADMINS,
    IdentityGroup,
    IdentityProvider,
    Protocol,
    Scope,
    User,
)
from apps.accounts.services.people import user_create
from apps.accounts.services.profile import MOST_FORMER_NAMES
from apps.accounts.services.service_accounts import service_account_create
from apps.events.models import AuditEntry
from tests.accounts.test_throttling import basic
from tests.configuration.api.common import V1, SignIn

pytestmark = pytest.mark.django_db

PASSWORD = "Correct-horse-7-battery"


@pytest.fixture
def ada(db: None) -> User:
    return user_create(username="ada", password=PASSWORD, email="ada@example.org")


def signed_in() -> Client:
    client = Client()
    assert client.login(username="ada", password=PASSWORD)
    return client


def test_a_profile_is_saved_whole_or_not_at_all(ada: User) -> None:
    client = signed_in()
    form = {"form": "profile", "username": "lovelace", "first_name": "Ada", "last_name": ""}
    form["time_zone"] = "Europe/Berlin"

    refused = client.post("/settings/account/", form | {"redacted_variables": "NOT A NAME"})
    ada.refresh_from_db()
    assert (refused.status_code, ada.first_name) == (400, "")
    done = client.post("/settings/account/", form | {"redacted_variables": "WANDB_*\nHF_*\n"})

    ada.refresh_from_db()
    assert done.status_code == 302
    assert (ada.first_name, ada.time_zone) == ("Ada", "Europe/Berlin")
    assert ada.username == "lovelace"
    assert ada.redacted_variables == ["WANDB_*", "HF_*"]
    assert 'data-time-zone="Europe/Berlin"' in client.get("/settings/account/").content.decode()


def test_another_address_needs_the_password(ada: User) -> None:
    client = signed_in()
    form = {"form": "address", "email": "new@example.org"}

    wrong = client.post("/settings/account/", form | {"current_password": "wrong"})
    none = client.post("/settings/account/", form)
    right = client.post("/settings/account/", form | {"current_password": PASSWORD})

    assert [wrong.status_code, none.status_code, right.status_code] == [400, 400, 302]
    assert User.objects.get(pk=ada.pk).email == "new@example.org"


def test_another_password_ends_every_session_but_this_one(ada: User) -> None:
    here, there = signed_in(), signed_in()
    form = {"form": "password", "new_password": "Another-horse-8-battery"}

    wrong = here.post("/settings/account/", form | {"current_password": "wrong"})
    done = here.post("/settings/account/", form | {"current_password": PASSWORD})

    assert (wrong.status_code, done.status_code) == (400, 302)
    assert here.get("/settings/account/").status_code == 200
    assert there.get("/settings/account/").status_code == 302


def test_rest_tells_and_changes_ones_own_account_alone(ada: User, api_as: SignIn) -> None:
    client = api_as(ada)

    wrong = client.patch(f"{V1}/account/", {"time_zone": "Mars/Base"})
    address = client.patch(f"{V1}/account/", {"email": "x@example.org"})
    unknown = client.patch(f"{V1}/account/", {"is_active": False})
    right = client.patch(f"{V1}/account/", {"time_zone": "Asia/Tokyo", "last_name": "L."})

    assert set(wrong.json()["fields"]) == {"time_zone"}
    assert set(address.json()["fields"]) == {"current_password"}
    assert unknown.status_code == 400
    assert right.json()["time_zone"] == "Asia/Tokyo"
    assert client.get(f"{V1}/account/").json()["last_name"] == "L."
    assert APIClient().get(f"{V1}/account/").status_code == 401


def test_who_is_here_is_noted_once_a_minute(ada: User) -> None:
    client = signed_in()
    long_ago = timezone.now() - timedelta(hours=1)
    User.objects.filter(pk=ada.pk).update(last_active_at=long_ago)

    with CaptureQueriesContext(connection) as first:
        client.get("/settings/account/")
    with CaptureQueriesContext(connection) as second:
        client.get("/settings/account/")

    ada.refresh_from_db()
    assert ada.last_active_at is not None
    assert ada.last_active_at > long_ago + timedelta(minutes=50)
    assert sum("UPDATE" in one["sql"] for one in first) == 1
    assert not any("UPDATE" in one["sql"] for one in second)


@pytest.mark.parametrize("name", ["", "two words", "bob", "a" * 151])
def test_an_own_user_name_follows_the_rules_of_a_new_one(
    ada: User, bob: User, api_as: SignIn, name: str
) -> None:
    answer = api_as(ada).patch(f"{V1}/account/", {"username": name})

    assert answer.status_code == 400
    assert "username" in answer.json()["fields"]


def test_another_user_name_is_recorded(ada: User, api_as: SignIn) -> None:
    answer = api_as(ada).patch(f"{V1}/account/", {"username": "lovelace"})

    assert answer.json()["username"] == "lovelace"
    entry = AuditEntry.objects.latest("id")
    assert (entry.verb, entry.before, entry.after) == (
        "person.changed",
        {"username": "ada"},
        {"username": "lovelace"},
    )


def test_a_service_account_keeps_its_name(root: User) -> None:
    made = service_account_create(actor=root, name="robot", groups=[], scope=Scope.ADMINISTER)
    client = APIClient(headers=basic(made.credential.key, made.secret))

    assert client.patch(f"{V1}/account/", {"username": "root2"}).status_code == 400


def test_people_leave_a_group_themselves(ada: User, alice: User, api_as: SignIn) -> None:
    client, dev = api_as(alice), Group.objects.get(name="dev")

    left = client.post(f"{V1}/account/leave-group/", {"group": "dev"})
    again = client.post(f"{V1}/account/leave-group/", {"group": "dev"})

    assert [group["name"] for group in left.json()["groups"]] == ["Users"]
    assert (again.status_code, list(again.json()["fields"])) == (400, ["group"])
    entry = AuditEntry.objects.latest("id")
    assert (entry.verb, entry.actor, entry.object_id) == ("group.left", "alice", str(dev.pk))


def test_nobody_leaves_users_or_as_the_last_administrator(
    root: User, alice: User, api_as: SignIn
) -> None:
    for user, name in ((alice, "Users"), (root, ADMINS)):
        answer = api_as(user).post(f"{V1}/account/leave-group/", {"group": name})
        assert answer.status_code == 409, name
        assert user.groups.filter(name=name).exists()


def test_a_group_that_a_provider_gives_is_left_there(alice: User, api_as: SignIn) -> None:
    dev = Group.objects.get(name="dev")
    provider = IdentityProvider.objects.create(
        slug="corp", name="Corp", protocol=Protocol.OIDC, preset="oidc", syncs_groups=True
    )
    IdentityGroup.objects.create(provider=provider, external_name="developers", group=dev)
    SocialAccount.objects.create(user=alice, provider="corp", uid="1")

    answer = api_as(alice).post(f"{V1}/account/leave-group/", {"group": "dev"})

    assert answer.status_code == 409
    assert answer.json()["detail"].startswith("Corp gives you group dev")


def test_the_page_of_the_account_has_a_button_to_leave(alice: User) -> None:
    client, dev = Client(), Group.objects.get(name="dev")
    client.force_login(alice)

    shown = client.get("/settings/account/").content.decode()
    left = client.post("/settings/account/", {"form": "leave", "group": dev.pk}, follow=True)
    wrong = client.post("/settings/account/", {"form": "leave", "group": "x"}, follow=True)

    assert "Leave group dev" in shown
    assert "You have left group dev." in left.content.decode()
    assert "You are not in that group." in wrong.content.decode()


@pytest.mark.parametrize("name", ["ada", "Ada", "\u0430da"])
def test_nobody_takes_the_former_name_of_another(ada: User, api_as: SignIn, name: str) -> None:
    eve = user_create(username="eve", password=PASSWORD)
    assert api_as(ada).patch(f"{V1}/account/", {"username": "lovelace"}).status_code == 200

    taken = api_as(eve).patch(f"{V1}/account/", {"username": name})
    alike = api_as(eve).patch(f"{V1}/account/", {"username": "love-lace"})
    mixed = api_as(eve).patch(f"{V1}/account/", {"username": "l\u043evelace"})
    back = api_as(ada).patch(f"{V1}/account/", {"username": "ada"})

    refused = [taken.status_code, alike.status_code, mixed.status_code]
    assert (refused, back.status_code) == ([400] * 3, 200)
    assert "username" in taken.json()["fields"]


def test_users_change_their_name_a_bounded_number_of_times(ada: User, api_as: SignIn) -> None:
    answers = [
        api_as(ada).patch(f"{V1}/account/", {"username": f"ada-{number}"}).status_code
        for number in range(MOST_FORMER_NAMES + 1)
    ]

    assert answers == [200] * MOST_FORMER_NAMES + [400]
