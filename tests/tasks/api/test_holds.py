"""Holding and releasing tasks through REST."""

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


def test_a_new_task_may_be_on_hold(api_as: As, alice: User, example: Example) -> None:
    client = api_as(alice)
    assert post(client, body=wanted(example, hold=True)).json()["hold"] is True
    refused = post(client, body=wanted(example, hold="yes"))
    assert refused.status_code == 400
    assert refused.json()["fields"] == {"hold": "must be true or false, not text"}
