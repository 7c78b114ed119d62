"""What applies to every noun of REST: visibility, bad bodies, cursors, queries."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.people import user_create
from apps.policies.models import Queue
from tests.configuration.api.common import V1, SignIn
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"{", 400, id="half a body"),
        pytest.param(b'{"name": NaN}', 400, id="NaN is no JSON"),
        pytest.param(b'{"name": "\xff"}', 400, id="not UTF-8"),
        pytest.param(b"[" * 100_000, 400, id="nested too deeply"),
        pytest.param(b'{"limit": ' + b"9" * 10_000 + b"}", 400, id="a number of 10,000 digits"),
        pytest.param(b'"' + b"x" * 2_000_000 + b'"', 413, id="two megabytes"),
        pytest.param(b"null", 400, id="nothing"),
        pytest.param(b"[]", 400, id="a list"),
    ],
)
@pytest.mark.parametrize("path", ["policies/", "queues/reorder/"])
def test_a_body_that_is_no_object_is_refused(
    admin: APIClient, example: Example, path: str, body: bytes, status: int
) -> None:
    answer = admin.post(f"{V1}/{path}", body, content_type="application/json")

    assert answer.status_code == status
    assert answer.json()["detail"]


@pytest.mark.parametrize("noun", ["pools", "profiles", "policies", "queues", "nodes", "volumes"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("limit", "x", id="a limit that is no number"),
        pytest.param("limit", "0", id="a limit of nothing"),
        pytest.param("limit", "501", id="a limit above the most"),
        pytest.param("cursor", "x", id="a cursor that is no base64"),
        pytest.param("cursor", "cD0lMDA=", id="a cursor with a NUL"),
        pytest.param("cursor", "bz0tMQ==", id="a cursor with a negative offset"),
    ],
)
def test_invalid_cursors_and_limits_are_named(
    admin: APIClient, example: Example, noun: str, name: str, value: str
) -> None:
    answer = admin.get(f"{V1}/{noun}/", {name: value})

    assert (answer.status_code, list(answer.json()["fields"])) == (400, [name])


def test_a_cursor_with_a_letter_in_place_of_an_id_is_named(
    admin: APIClient, example: Example
) -> None:
    answer = admin.get(f"{V1}/policies/", {"cursor": "cD1h"})

    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["cursor"])


def test_people_learn_nothing_of_pools_and_of_other_teams(
    api_as: SignIn, alice: User, example: Example
) -> None:
    client = api_as(alice)

    texts = [
        client.get(f"{V1}/{path}").content.decode()
        for path in (
            "policies/",
            "profiles/",
            "queues/",
            f"policies/{example.dev.pk}/profiles/",
            f"profiles/{example.profile.pk}/",
        )
    ]

    for text in texts:
        for secret in ("H100", "Bare Metal", "Research", "research", "rank"):
            assert secret not in text


def test_who_sees_and_may_not_gets_403_and_who_does_not_see_404(
    api_as: SignIn, alice: User, charlie: User, example: Example
) -> None:
    policy, queue = f"{V1}/policies/{example.dev.pk}/", f"{V1}/queues/dev-4xgpu/"
    for person, want in ((alice, 403), (charlie, 404)):
        client = api_as(person)
        assert client.patch(policy, {"weight": 2}).status_code == want
        assert client.delete(policy).status_code == want
        assert client.post(f"{policy}pause/", {}).status_code == want
        assert client.post(f"{policy}profiles/", {"profile": "2xGPU"}).status_code == want
        assert client.delete(f"{policy}profiles/{example.profile.pk}/").status_code == want
        assert client.patch(queue, {"name": "mine"}).status_code == want
        assert client.delete(queue).status_code == want
        assert client.post(f"{queue}pause/", {}).status_code == want
    assert api_as(alice).post(f"{V1}/policies/", {}).status_code == 403
    assert api_as(alice).post(f"{V1}/queues/reorder/", {}).status_code == 403
    assert Queue.objects.filter(name="dev-4xgpu", paused_at=None, removed_at=None).exists()


def test_pools_and_policies_are_paused_with_a_reason(admin: APIClient, example: Example) -> None:
    for path in (f"pools/{example.h100.pk}", f"policies/{example.dev.pk}", "queues/dev-4xgpu"):
        paused = admin.post(f"{V1}/{path}/pause/", {"reason": "New cables."}).json()
        resumed = admin.post(f"{V1}/{path}/resume/").json()

        assert (paused["is_paused"], paused["pause_reason"]) == (True, "New cables.")
        assert (resumed["is_paused"], resumed["pause_reason"]) == (False, "")


@pytest.mark.parametrize("is_admin", [True, False], ids=["administrator", "member"])
@pytest.mark.parametrize(
    "noun", ["pools", "profiles", "policies", "queues", "nodes", "volumes", "credentials"]
)
def test_a_list_takes_as_many_queries_however_long_it_is(
    root: User, alice: User, api_as: SignIn, example: Example, noun: str, is_admin: bool
) -> None:
    person = root if is_admin else alice
    if noun in {"nodes", "volumes"} and not is_admin:
        return
    client = api_as(person)
    one = _queries(client, noun)
    _more(api_as(root), person)

    many = _queries(client, noun)

    assert many == one
    # What these hold now takes up to five more.
    assert many <= {"pools": 9, "policies": 10}.get(noun, 8)


def _queries(client: APIClient, noun: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(f"{V1}/{noun}/").status_code == 200
    return len(queries)


def _more(admin: APIClient, person: User) -> None:
    for number in range(3):
        body = {"name": f"p{number}", "group": "dev", "reserved": 1, "limit": 16}
        policy = admin.post(f"{V1}/policies/", body, format="json").json()["id"]
        for profile in ("2xGPU", "4xGPU"):
            admin.post(f"{V1}/policies/{policy}/profiles/", {"profile": profile})
        admin.post(f"{V1}/volumes/", {"name": f"v{number}", "path": "/data"})
        credential_create(user=person, label=f"c{number}")
    user_create(username="one-more", password=None, groups=["dev"])
