"""Accounts of programs, through REST and the command line."""

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from rest_framework.test import APIClient

from apps.accounts.models import Credential, User
from apps.accounts.services.service_accounts import service_account_create
from apps.events.models import AuditEntry
from apps.tasks.models import Task
from tests.accounts.test_throttling import basic
from tests.people import Example

pytestmark = pytest.mark.django_db

As = Callable[[User], APIClient]
ACCOUNTS = "/api/v1/service-accounts/"


def signed(credential: dict[str, str]) -> APIClient:
    client = APIClient()
    header = basic(credential["key"], credential["secret"])["Authorization"]
    client.credentials(HTTP_AUTHORIZATION=header)
    return client


@pytest.fixture
def robot(root: User, api_as: As, dev_group: Group) -> dict[str, Any]:
    """What the answer to making it said."""
    answer = api_as(root).post(ACCOUNTS, {"name": "robot", "groups": [dev_group.name]})
    assert answer.status_code == 201, answer.content
    made: dict[str, Any] = answer.json()
    return made


def test_an_account_is_made_with_a_credential_that_works(
    robot: dict[str, Any], example: Example
) -> None:
    client = signed(robot["credential"])

    assert [group["name"] for group in robot["groups"]] == ["Users", "dev"]
    assert (robot["can_act_for_owners"], robot["last_active_at"]) == (False, None)
    assert robot["credential"]["scope"] == "enqueue"
    body = {"name": "train", "queue": example.dev_queue.name, "command": ["true"]}
    assert client.post("/api/v1/tasks/", body).status_code == 201
    assert client.post("/api/v1/credentials/", {}).json()["code"] == "scope"


@pytest.mark.parametrize("person", ["alice", "charlie", "quinn"])
def test_they_are_for_administrators(
    request: pytest.FixtureRequest, api_as: As, person: str, robot: dict[str, Any]
) -> None:
    client = api_as(request.getfixturevalue(person))

    for address in (ACCOUNTS, f"{ACCOUNTS}{robot['id']}/", f"{ACCOUNTS}{robot['id']}/credentials/"):
        assert client.get(address).status_code == 403
    assert client.post(ACCOUNTS, {"name": "mine"}).status_code == 403
    assert client.delete(f"{ACCOUNTS}{robot['id']}/").status_code == 403


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "robot"}, "name"),
        ({"name": "new", "groups": ["nowhere"]}, "groups"),
        ({"name": "new", "groups": "dev"}, "groups"),
        ({"name": "new", "scope": "everything"}, "scope"),
        ({"name": "new", "expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"name": "new", "is_service": False}, "is_service"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_made(
    root: User, api_as: As, robot: dict[str, Any], body: dict[str, Any], field: str
) -> None:
    answer = api_as(root).post(ACCOUNTS, body)

    assert (answer.status_code, field in answer.json()["fields"]) == (400, True), answer.content
    assert User.objects.filter(is_service=True).count() == 1


def test_a_change_is_audited_and_holds_at_once(
    root: User, api_as: As, robot: dict[str, Any], example: Example
) -> None:
    client = signed(robot["credential"])
    assert client.get("/api/v1/queues/").json()["results"]

    changed = api_as(root).patch(f"{ACCOUNTS}{robot['id']}/", {"groups": [], "name": "drone"})

    assert changed.json()["name"] == "drone"
    assert client.get("/api/v1/queues/").json()["results"] == []
    entry = AuditEntry.objects.get(verb="service_account.changed")
    assert (entry.before["groups"], entry.after["groups"]) == (["Users", "dev"], ["Users"])


def test_a_person_is_no_service_account(root: User, alice: User, api_as: As) -> None:
    client = api_as(root)

    assert client.get(ACCOUNTS).json()["results"] == []
    assert client.get(f"{ACCOUNTS}{alice.pk}/").status_code == 404
    assert client.delete(f"{ACCOUNTS}{alice.pk}/").status_code == 404


def test_a_deleted_account_is_refused_and_leaves_its_tasks_and_its_name(
    root: User, api_as: As, robot: dict[str, Any], example: Example
) -> None:
    client, admin = signed(robot["credential"]), api_as(root)
    body = {"name": "train", "queue": example.dev_queue.name, "command": ["true"]}
    task = client.post("/api/v1/tasks/", body).json()["id"]

    assert admin.delete(f"{ACCOUNTS}{robot['id']}/").status_code == 204

    assert client.get("/api/v1/tasks/").status_code == 401
    assert Task.objects.get(pk=task).state == "queued"
    assert admin.get(f"/api/v1/tasks/{task}/").json()["owner"].startswith("robot.removed-")
    assert admin.get(ACCOUNTS).json()["results"] == []
    assert admin.get(f"{ACCOUNTS}{robot['id']}/").status_code == 404
    assert admin.post(ACCOUNTS, {"name": "robot"}).status_code == 201


def test_it_gets_more_credentials_and_loses_them_one_by_one(
    root: User, api_as: As, robot: dict[str, Any]
) -> None:
    admin, place = api_as(root), f"{ACCOUNTS}{robot['id']}/credentials/"
    second = admin.post(place, {"label": "second", "scope": "read"}).json()
    assert signed(second).get("/api/v1/tasks/").status_code == 200

    assert admin.delete(f"{place}{second['id']}/").status_code == 204

    assert signed(second).get("/api/v1/tasks/").status_code == 401
    assert signed(robot["credential"]).get("/api/v1/tasks/").status_code == 200
    assert [one["label"] for one in admin.get(place).json()["results"]] == [
        "second",
        "Made with the account",
    ]
    assert admin.get(f"{ACCOUNTS}{robot['id']}/").json()["credentials"] == 1
    own = Credential.objects.create(user=root, key="ROOTS", secret_hash="x")
    assert admin.delete(f"{place}{own.pk}/").status_code == 404


def test_it_has_no_log_in_and_no_way_into_the_admin_site(
    robot: dict[str, Any], root: User, api_as: As
) -> None:
    account = User.objects.get(pk=robot["id"])

    assert not account.has_usable_password()
    api_as(root).patch(f"{ACCOUNTS}{robot['id']}/", {"groups": ["Admins"]})
    assert api_as(account).get("/admin/").status_code == 302


def test_the_list_is_filtered_and_costs_the_same_for_few_and_many(
    root: User, api_as: As, dev_group: Group, django_assert_num_queries: Any
) -> None:
    client = api_as(root)
    client.get(ACCOUNTS)
    for count in range(1, 30):
        service_account_create(actor=root, name=f"robot-{count}", groups=["dev"][: count % 2])
        if count in (2, 29):
            with django_assert_num_queries(5):
                client.get(ACCOUNTS)

    assert len(client.get(ACCOUNTS, {"q": "ROBOT-2"}).json()["results"]) == 11
    found = client.get(ACCOUNTS, {"group": "dev", "limit": "5"}).json()
    assert [one["credentials"] for one in found["results"]] == [1] * 5
    assert client.get(found["next"]).json()["results"][0]["name"] == "robot-19"


def test_the_command_line_makes_one(dev_group: Group) -> None:
    out = StringIO()

    call_command(
        "person", "add", "robot", "--service", "--group", "dev", "--scope", "read", stdout=out
    )

    key, secret = out.getvalue().split()
    client = signed({"key": key, "secret": secret})
    assert client.get("/api/v1/tasks/").status_code == 200
    assert client.post("/api/v1/tasks/", {}).json()["code"] == "scope"
    assert User.objects.get(username="robot").is_service
