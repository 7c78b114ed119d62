"""Changes to the user's own account, and when users were last active."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.accounts.services.people import user_create
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
    form = {"form": "profile", "first_name": "Ada", "last_name": "", "time_zone": "Europe/Berlin"}

    refused = client.post("/settings/account/", form | {"redacted_variables": "NOT A NAME"})
    ada.refresh_from_db()
    assert (refused.status_code, ada.first_name) == (400, "")
    done = client.post("/settings/account/", form | {"redacted_variables": "WANDB_*\nHF_*\n"})

    ada.refresh_from_db()
    assert done.status_code == 302
    assert (ada.first_name, ada.time_zone) == ("Ada", "Europe/Berlin")
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
