"""One action on many tasks through REST."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.accounts.models import Scope, User
from apps.accounts.services.credentials import credential_create
from apps.tasks.api import bulk_actions
from tests.accounts.test_throttling import basic
from tests.allocation.state import enqueue, states
from tests.people import Example
from tests.tasks.api.test_tasks import TASKS, As, post

pytestmark = pytest.mark.django_db
PATH = f"{TASKS}bulk-actions/"


def test_tasks_are_named_by_id(api_as: As, alice: User, charlie: User, example: Example) -> None:
    first, second = enqueue(alice, example.dev_queue, 2)
    (foreign,) = enqueue(charlie, example.research_queue)
    ids = [str(task.pk) for task in (first, foreign)]

    answer = post(api_as(alice), PATH, {"action": "hold", "tasks": ids})

    assert answer.status_code == 200, answer.content
    found = answer.json()
    assert (found["done"], found["failed"], found["is_more"]) == (1, 1, False)
    done, refused = found["results"]
    assert (done["task"], done["state"], done["status"], done["error"]) == (
        ids[0],
        "queued",
        200,
        None,
    )
    assert (refused["name"], refused["status"]) == (None, 404)
    assert refused["error"]["code"] == "not_found"
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.is_held, second.is_held) == (True, False)


def test_a_filter_takes_what_the_list_shows(
    api_as: As,
    alice: User,
    charlie: User,
    example: Example,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = enqueue(alice, example.dev_queue, 3)
    foreign = enqueue(charlie, example.research_queue)
    monkeypatch.setattr(bulk_actions, "MOST_TASKS", 2)
    body = {"action": "abort", "filter": {"state": "queued", "q": "DEV"}}

    first = post(api_as(alice), PATH, body).json()

    assert (first["done"], first["is_more"]) == (2, True)
    assert states(tasks) == ["queued", "aborted", "aborted"]
    rest = post(api_as(alice), PATH, body).json()
    assert (rest["done"], rest["is_more"]) == (1, False)
    assert states(foreign) == ["queued"]


def test_a_filter_goes_on_before_the_last_result(
    api_as: As, alice: User, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = enqueue(alice, example.dev_queue, 3)
    monkeypatch.setattr(bulk_actions, "MOST_TASKS", 2)
    body = {"action": "hold", "filter": {"queue": example.dev_queue.name}}

    first = post(api_as(alice), PATH, body).json()
    rest = post(api_as(alice), PATH, {**body, "before": first["results"][-1]["task"]}).json()

    newest = [str(task.pk) for task in reversed(tasks)]
    assert [one["task"] for one in first["results"] + rest["results"]] == newest
    assert (first["is_more"], rest["is_more"]) == (True, False)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "action"),
        ({"action": "remove", "tasks": []}, "action"),
        ({"action": "abort"}, "tasks"),
        ({"action": "abort", "tasks": [], "filter": {"q": "a"}}, "tasks"),
        ({"action": "abort", "tasks": ["x"]}, "tasks.0"),
        ({"action": "abort", "filter": {}}, "filter"),
        ({"action": "abort", "filter": {"q": " "}}, "filter"),
        ({"action": "abort", "filter": {"queues": "x"}}, "queues"),
        ({"action": "abort", "filter": {"state": "gone"}}, "state"),
        ({"action": "priority", "tasks": []}, "priority"),
        ({"action": "abort", "tasks": [], "more": 1}, "more"),
    ],
)
def test_bad_requests_are_refused_with_the_field(
    api_as: As, alice: User, body: dict[str, Any], field: str
) -> None:
    answer = post(api_as(alice), PATH, body)

    assert answer.status_code == 400
    assert list(answer.json()["fields"]) == [field]


def test_a_credential_that_only_enqueues_reaches_its_own_tasks_only(
    alice: User, root: User, example: Example
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    body = {"action": "abort", "tasks": [str(task.pk)]}
    credential, secret = credential_create(user=root, label="", scope=Scope.ENQUEUE)
    client = APIClient(headers=basic(credential.key, secret))

    answer = post(client, PATH, body)

    assert answer.json()["results"][0]["error"]["code"] == "scope"
    assert states([task]) == ["queued"]
