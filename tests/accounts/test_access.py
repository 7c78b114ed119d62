"""Access with a credential, or with its token."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import Credential, Scope, User
from apps.accounts.services.credentials import credential_create, credential_revoke
from apps.events.models import AuditEntry, Event
from tests.accounts.test_throttling import basic
from tests.people import Example

pytestmark = pytest.mark.django_db

TASKS, TOKEN, CREDENTIALS = "/api/v1/tasks/", "/api/v1/token/", "/api/v1/credentials/"


def program(user: User, scope: Scope = Scope.ADMINISTER) -> APIClient:
    credential, secret = credential_create(user=user, label="test", scope=scope)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=basic(credential.key, secret)["Authorization"])
    return client


def bearer(client: APIClient, **body: Any) -> APIClient:
    answer = client.post(TOKEN, body)
    assert answer.status_code == 201, answer.content
    made = APIClient()
    made.credentials(HTTP_AUTHORIZATION=f"Bearer {answer.json()['token']}")
    return made


def wanted(example: Example) -> dict[str, Any]:
    return {"name": "train", "queue": example.dev_queue.name, "command": ["true"]}


def test_reading_is_all_that_a_credential_for_reading_does(alice: User, example: Example) -> None:
    client = program(alice, Scope.READ)

    refused = client.post(TASKS, wanted(example))

    assert client.get(TASKS).status_code == 200
    assert refused.status_code == 403
    assert (refused.json()["code"], refused.json()["fields"]) == ("scope", {"scope": "enqueue"})
    assert client.post(CREDENTIALS, {}).json()["fields"] == {"scope": "administer"}


def test_a_credential_for_enqueueing_does_everything_with_ones_own_tasks(
    alice: User, root: User, example: Example
) -> None:
    client = program(alice, Scope.ENQUEUE)
    theirs = program(root).post(TASKS, wanted(example)).json()["id"]

    made = client.post(TASKS, wanted(example))
    aborted = client.post(f"{TASKS}{made.json()['id']}/abort/")

    assert (made.status_code, aborted.status_code) == (201, 200)
    assert client.post(f"{TASKS}check/", wanted(example)).status_code == 200
    assert client.post(CREDENTIALS, {}).json()["code"] == "scope"
    # An administrator's, too, leaves the tasks of others alone.
    narrow = program(root, Scope.ENQUEUE)
    mine = client.post(TASKS, wanted(example)).json()["id"]
    refused = narrow.post(f"{TASKS}{mine}/abort/")
    assert (refused.status_code, refused.json()["code"]) == (403, "scope")
    assert refused.json()["fields"] == {"scope": "administer"}
    assert narrow.post(f"{TASKS}{theirs}/abort/").status_code == 200
    assert program(root).post(f"{TASKS}{mine}/abort/").status_code == 200


def test_a_scope_gives_nothing_that_the_owner_has_not(charlie: User, example: Example) -> None:
    assert program(charlie).post(TASKS, wanted(example)).status_code == 404


def test_a_token_does_what_its_credential_does_or_less(alice: User, example: Example) -> None:
    client = program(alice, Scope.ENQUEUE)

    whole, part = bearer(client), bearer(client, scope="read")

    assert whole.post(TASKS, wanted(example)).status_code == 201
    assert part.get(TASKS).status_code == 200
    assert part.post(TASKS, wanted(example)).json()["code"] == "scope"
    more = client.post(TOKEN, {"scope": "administer"})
    assert more.json()["scope"] == "enqueue"
    assert more["Cache-Control"] == "no-store"
    assert 0 < more.json()["expires_in_s"] <= 900


def test_a_token_ends_with_its_credential_at_once(alice: User) -> None:
    token = bearer(program(alice))
    assert token.get(TASKS).status_code == 200

    credential = Credential.objects.get()
    credential_revoke(credential=credential, actor=alice, is_admin=False)

    assert token.get(TASKS).status_code == 401


@pytest.mark.parametrize("change", ["expired", "shut out"])
def test_a_token_ends_with_what_it_stands_for(alice: User, change: str) -> None:
    token = bearer(program(alice))

    if change == "expired":
        Credential.objects.update(expires_at=timezone.now())
    else:
        User.objects.filter(pk=alice.pk).update(is_active=False)

    assert token.get(TASKS).status_code == 401


def test_a_token_ends_by_itself(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    token = bearer(program(alice))
    later = timezone.now().timestamp() + 901
    monkeypatch.setattr("apps.accounts.services.access.time.time", lambda: later)

    assert token.get(TASKS).status_code == 401


def test_a_token_that_somebody_changed_opens_nothing(alice: User) -> None:
    text = program(alice).post(TOKEN, {}).json()["token"]

    for forged in (text[:-1], text + "a", text.swapcase(), "a:b:c", "", "ü" * 9, "a" * 5000):
        answer = APIClient().get(TASKS, headers={"Authorization": f"Bearer {forged}"})
        assert answer.status_code == 401, forged


def test_no_token_is_made_with_a_token_or_by_a_session(alice: User, api_as: Any) -> None:
    token = bearer(program(alice))

    assert token.post(TOKEN, {}).status_code == 403
    assert api_as(alice).post(TOKEN, {}).status_code == 401


def test_a_credential_is_renamed_and_nothing_else_of_it_changes(
    alice: User, charlie: User, api_as: Any
) -> None:
    client = api_as(alice)
    made = client.post(CREDENTIALS, {"label": "old", "scope": "read"}).json()
    address = f"{CREDENTIALS}{made['id']}/"

    renamed = client.patch(address, {"label": "new"})
    widened = client.patch(address, {"scope": "administer"})

    assert renamed.json() == {k: v for k, v in made.items() if k != "secret"} | {"label": "new"}
    assert widened.status_code == 400
    assert "scope" in widened.json()["fields"]
    assert api_as(charlie).patch(address, {"label": "mine"}).status_code == 404
    assert api_as(charlie).get(address).status_code == 404
    assert client.patch(address, {"label": "x" * 101}).status_code == 400
    entry = AuditEntry.objects.get(verb="credential.changed")
    assert (entry.before, entry.after) == ({"label": "old"}, {"label": "new"})


def test_nothing_that_is_kept_or_answered_later_holds_the_secret(alice: User, api_as: Any) -> None:
    made = api_as(alice).post(CREDENTIALS, {"label": "x"})
    secret = made.json()["secret"]

    assert made["Cache-Control"] == "no-store"
    assert secret not in str(api_as(alice).get(CREDENTIALS).json())
    assert secret not in str([event.data for event in Event.objects.all()])
    assert secret not in str(list(AuditEntry.objects.values()))
    assert secret not in str(list(Credential.objects.values()))


def test_what_expires_is_refused_from_then_on(alice: User) -> None:
    client = program(alice)
    Credential.objects.update(expires_at=timezone.now() + timedelta(minutes=1))
    assert client.get(TASKS).status_code == 200

    Credential.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    assert client.get(TASKS).status_code == 401


def test_the_list_costs_the_same_for_few_and_many(
    alice: User, api_as: Any, django_assert_num_queries: Any
) -> None:
    client = api_as(alice)
    client.get(CREDENTIALS)
    for count in (1, 20):
        for _ in range(count):
            credential_create(user=alice, label="")
        with django_assert_num_queries(3):
            client.get(CREDENTIALS)


def test_a_token_makes_no_credential_that_outlives_it(alice: User) -> None:
    answer = bearer(program(alice)).post(CREDENTIALS, {"label": "for ever"})

    assert answer.status_code == 403
    assert alice.credentials.count() == 1


def test_a_credential_makes_none_that_ends_later_and_takes_those_along(alice: User) -> None:
    ends = timezone.now() + timedelta(hours=1)
    first, secret = credential_create(user=alice, label="first", expires_at=ends)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=basic(first.key, secret)["Authorization"])

    later = client.post(CREDENTIALS, {"expires_at": ends + timedelta(seconds=1)})
    second = client.post(CREDENTIALS, {"label": "second"})

    assert (later.status_code, list(later.json()["fields"])) == (400, ["expires_at"])
    child = alice.credentials.get(pk=second.json()["id"])
    assert child.expires_at == ends
    _, other = credential_create(user=alice, label="grandchild", made_with=child)
    credential_revoke(credential=first, actor=alice, is_admin=False)
    assert other
    assert not alice.credentials.filter(revoked_at=None).exists()
