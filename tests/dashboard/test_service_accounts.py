"""Pages of credentials and of service accounts, through the client."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from apps.accounts.models import Credential, Scope, User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.service_accounts import service_account_create
from tests.dashboard.conftest import ClientFor

pytestmark = pytest.mark.django_db

LIST = "/settings/service-accounts/"


@pytest.fixture
def robot(root: User, dev_group: Group) -> User:
    return service_account_create(actor=root, name="robot", groups=[dev_group.name]).account


def words(answer: Any) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", answer.content.decode()).split())


def test_a_new_credential_comes_with_what_to_copy_once(alice: User, client_for: ClientFor) -> None:
    client = client_for(alice)

    made = client.post(
        reverse("credential_list"), {"label": "nightly", "scope": "read", "lasts": "30"}
    )

    credential = Credential.objects.get()
    secret = re.search(r"RPM_SECRET=([\w-]+)", made.content.decode())
    assert secret is not None
    assert (credential.scope, credential.expires_at is not None) == (Scope.READ, True)
    assert f"RPM_URL=http://testserver RPM_KEY={credential.key}" in words(made)
    assert f"curl -u {credential.key}:{secret[1]} http://testserver/api/v1/queues/" in words(made)
    again = client.get(reverse("credential_list"))
    assert secret[1] not in again.content.decode()
    assert "nightly" in words(again)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"label": ""}, "Enter a value for “What it is for”."),
        ({"scope": "everything"}, "Select a valid choice"),
        ({"lasts": "9999"}, "Select a valid choice"),
    ],
)
def test_what_is_wrong_with_a_credential_stands_at_the_field(
    alice: User, client_for: ClientFor, changes: dict[str, str], problem: str
) -> None:
    given = {"label": "x", "scope": "read", "lasts": "", **changes}

    answer = client_for(alice).post(reverse("credential_list"), given)

    assert (answer.status_code, problem in words(answer)) == (400, True)
    assert not Credential.objects.exists()


def test_a_credential_is_renamed_and_revoked_by_its_owner_alone(
    alice: User, charlie: User, client_for: ClientFor
) -> None:
    credential, _ = credential_create(user=alice, label="old")
    rename = reverse("credential_label", args=[credential.pk])
    revoke = reverse("credential_revoke", args=[credential.pk])

    for address in (rename, revoke):
        assert client_for(charlie).get(address).status_code == 404
        assert client_for(charlie).post(address, {"label": "mine"}).status_code == 404
    client = client_for(alice)
    assert client.post(rename, {"label": ""}).status_code == 400
    assert client.post(rename, {"label": "new"}).status_code == 302
    assert "Its next request is refused" in words(client.get(revoke))
    assert client.post(revoke).status_code == 302

    credential.refresh_from_db()
    assert (credential.label, credential.revoked_at is not None) == ("new", True)
    assert client.get(revoke).status_code == 404


@pytest.mark.parametrize("person", ["alice", "quinn", "charlie"])
def test_pages_of_service_accounts_are_for_administrators(
    request: pytest.FixtureRequest, client_for: ClientFor, robot: User, person: str
) -> None:
    client = client_for(request.getfixturevalue(person))
    own = f"{LIST}{robot.pk}/"

    for address in (LIST, f"{LIST}new/", own, f"{own}edit/", f"{own}delete/"):
        assert client.get(address).status_code == 404, address
    assert client.post(f"{own}delete/").status_code == 404
    assert Client().get(LIST).status_code == 302
    assert "Service accounts" not in words(client.get("/credentials/"))


def test_an_account_is_made_changed_and_deleted(
    root: User, dev_group: Group, client_for: ClientFor
) -> None:
    client = client_for(root)
    assert "No service account yet" in words(client.get(LIST))

    made = client.post(
        f"{LIST}new/",
        {"name": "robot", "groups": [dev_group.pk], "scope": "enqueue", "lasts": "90"},
    )

    account = User.objects.get(username="robot")
    own = f"{LIST}{account.pk}/"
    assert "RPM_SECRET=" in words(made)
    assert "robot" in words(client.get(LIST))
    assert "Not allowed" in words(client.get(own))
    assert "RPM_SECRET=" not in words(client.get(own))
    client.post(f"{own}edit/", {"name": "drone", "can_act_for_owners": "on"})
    account.refresh_from_db()
    assert (account.username, account.can_act_for_owners) == ("drone", True)
    assert list(account.groups.values_list("name", flat=True)) == ["Users"]
    more = client.post(own, {"label": "second", "scope": "read", "lasts": ""})
    assert "“second” is ready" in words(more)
    assert "2 credentials are refused" in words(client.get(f"{own}delete/"))
    assert client.post(f"{own}delete/").status_code == 302
    assert client.get(own).status_code == 404
    assert not account.credentials.filter(revoked_at__isnull=True).exists()


def test_a_name_that_is_taken_is_said_at_the_field(
    root: User, robot: User, client_for: ClientFor
) -> None:
    given = {"name": "robot", "scope": "read", "lasts": ""}

    answer = client_for(root).post(f"{LIST}new/", given)

    assert (answer.status_code, "already exists" in words(answer)) == (400, True)


def test_the_list_is_filtered_and_costs_the_same_for_few_and_many(
    root: User, client_for: ClientFor, dev_group: Group, django_assert_num_queries: Any
) -> None:
    client = client_for(root)
    service_account_create(actor=root, name="robot-1", groups=["dev"])
    client.get(LIST)
    with django_assert_num_queries(6):
        client.get(LIST)
    for number in range(2, 108):
        service_account_create(actor=root, name=f"robot-{number}", groups=["dev"][: number % 2])
    with django_assert_num_queries(6):
        first = client.get(LIST)

    assert "robot-99" not in words(first)
    following = re.search(r'href="(\?[^"]*after=[^"]*)"', first.content.decode())
    assert following is not None
    assert "robot-99" in words(client.get(LIST + following[1].replace("&amp;", "&")))
    assert "robot-2 " not in words(client.get(LIST, {"group": "dev"}))
    assert "No service account matches" in words(client.get(LIST, {"q": "nothing"}))
