"""Holding and releasing tasks through REST."""

from typing import Any

import pytest

from apps.accounts.models import User
from tests.people import Example
from tests.tasks.api.test_tasks import TASKS, As, post, wanted

pytestmark = pytest.mark.django_db


def test_a_task_is_held_and_released_by_its_owner(
    api_as: As, alice: User, bob: User, charlie: User, example: Example
) -> None:
    client = api_as(alice)
    task = post(client, body=wanted(example)).json()
    path = f"{TASKS}{task['id']}/"
    assert task["hold"] is False

    assert post(api_as(charlie), f"{path}hold/").status_code == 404
    assert post(api_as(bob), f"{path}hold/").status_code == 403
    held = post(client, f"{path}hold/").json()
    assert (held["state"], held["hold"]) == ("queued", True)
    explained = client.get(f"{path}explain/").json()
    assert (explained["code"], explained["position"]) == ("on_hold", 1)
    assert post(client, f"{path}release/").json()["hold"] is False


def test_a_task_waits_for_others_as_its_owner_says(
    api_as: As, alice: User, bob: User, charlie: User, example: Example
) -> None:
    client = api_as(alice)
    first, second = (post(client, body=wanted(example)).json()["id"] for _ in range(2))
    path, after = f"{TASKS}{second}/dependencies/", [{"task": first, "when": "any"}]

    def put(who: User, body: object) -> Any:
        return api_as(who).put(path, body, format="json")

    assert [put(who, {"after": after}).status_code for who in (alice, bob, charlie)] == [
        200,
        403,
        404,
    ]
    (row,) = client.get(path).json()
    assert (row["task"], row["state"], row["when"], row["outcome"]) == (
        first,
        "queued",
        "any",
        "waiting",
    )
    assert client.get(f"{TASKS}{second}/explain/").json()["code"] == "dependency"
    bad = put(alice, {"after": [{"task": first, "when": "soon"}]})
    assert list(bad.json()["fields"]) == ["after.0.when"]
    itself = put(alice, {"after": [{"task": second}]})
    assert itself.json()["fields"] == {"after.0.task": "is this task itself"}
    assert put(alice, {"after": []}).json() == []


def test_a_new_task_may_be_on_hold(api_as: As, alice: User, example: Example) -> None:
    client = api_as(alice)
    assert post(client, body=wanted(example, hold=True)).json()["hold"] is True
    refused = post(client, body=wanted(example, hold="yes"))
    assert refused.status_code == 400
    assert refused.json()["fields"] == {"hold": "must be true or false, not text"}
