"""The order of waiting tasks, and moving them, through REST."""

from datetime import datetime

import pytest
from rest_framework.request import Request

from apps.accounts.models import User
from apps.configuration.services.queues import profile_connect
from apps.policies.models import Profile
from apps.tasks.api import views
from apps.tasks.api.query_parameters import check_version
from apps.tasks.models import Task
from apps.tasks.selectors.queue_order import tasks_in_order
from apps.tasks.services.queue_order import task_reorder
from tests.people import Example
from tests.tasks.api.test_tasks import TASKS, As, post, wanted

pytestmark = pytest.mark.django_db


@pytest.fixture
def first(api_as: As, alice: User, example: Example) -> Task:
    """The first of two that wait in Dev's queue."""
    answers = [post(api_as(alice), body=wanted(example, name=name)) for name in ("a", "b")]
    return Task.objects.get(pk=answers[0].json()["id"])


def test_who_manages_a_queue_sets_its_order(
    api_as: As, alice: User, charlie: User, root: User, example: Example, first: Task
) -> None:
    path = f"{TASKS}{first.pk}/reorder/"
    since = first.submitted_at

    assert post(api_as(charlie), path, {"move": "down"}).status_code == 404
    assert post(api_as(alice), path, {"move": "down"}).status_code == 403
    answer = post(api_as(root), path, {"move": "down"})

    assert answer.status_code == 200, answer.content
    assert [task.name for task in tasks_in_order(example.dev_queue.pk)] == ["b", "a"]
    # The payload holds the time of submission, whatever the position.
    first.refresh_from_db()
    assert first.waits_since == since
    assert answer.json()["submitted_at"] == post_time(since)


_MOVES = "one of top, up, down, bottom, before, after"


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ({}, {"move": f"is missing: give {_MOVES}"}),
        ({"move": "sideways"}, {"move": f"must be {_MOVES}"}),
        ({"move": 1}, {"move": f"must be {_MOVES}"}),
        ({"move": "before"}, {"other": "names the other task of the move"}),
        ({"move": "after", "other": "b"}, {"other": "must be the id of a task"}),
    ],
)
def test_a_move_that_is_none_is_refused_with_those_that_there_are(
    api_as: As, root: User, first: Task, body: dict[str, str], want: dict[str, str]
) -> None:
    answer = post(api_as(root), f"{TASKS}{first.pk}/reorder/", body)

    assert (answer.status_code, answer.json()["fields"]) == (400, want)


def test_a_task_moves_to_another_queue(
    api_as: As, alice: User, root: User, example: Example, first: Task
) -> None:
    profile = Profile.objects.get(name="2xGPU")
    other = profile_connect(actor=root, policy=example.dev, profile=profile)
    path = f"{TASKS}{first.pk}/change-queue/"

    assert post(api_as(alice), path, {"queue": example.research_queue.name}).status_code == 404
    answer = post(api_as(alice), path, {"queue": other.name})

    assert answer.status_code == 200, answer.content
    assert answer.json()["queue"] == other.name
    assert post(api_as(alice), path, {"queue": other.name}).status_code == 409


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("change-queue", {"queue": "dev-2xgpu"}),
        ("priority", {"priority": -1}),
        ("reorder", {"move": "down"}),
    ],
)
def test_a_waiting_task_that_changed_since_it_was_read_is_left_as_it_is(
    api_as: As, root: User, example: Example, first: Task, action: str, body: dict[str, object]
) -> None:
    profile = Profile.objects.get(name="2xGPU")
    profile_connect(actor=root, policy=example.dev, profile=profile, queue_name="dev-2xgpu")
    client, path = api_as(root), f"{TASKS}{first.pk}/"
    read = client.get(path)["ETag"]
    changed = post(client, f"{path}priority/", {"priority": -3})

    stale = post(client, f"{path}{action}/", body, **{"If-Match": read})

    assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    assert client.get(path).json() == changed.json()
    current = post(client, f"{path}{action}/", body, **{"If-Match": changed["ETag"]})
    assert current.status_code == 200, current.content


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("change-queue", {"queue": "dev-2xgpu"}),
        ("priority", {"priority": -1}),
        ("reorder", {"move": "down"}),
    ],
)
def test_a_change_while_the_version_is_compared_counts_too(
    monkeypatch: pytest.MonkeyPatch,
    api_as: As,
    root: User,
    example: Example,
    first: Task,
    action: str,
    body: dict[str, object],
) -> None:
    """The task is read before it is locked: another change may come between the two."""
    profile = Profile.objects.get(name="2xGPU")
    profile_connect(actor=root, policy=example.dev, profile=profile, queue_name="dev-2xgpu")
    client, path = api_as(root), f"{TASKS}{first.pk}/"
    read = client.get(path)["ETag"]

    def compare_and_change(request: Request, task: Task) -> datetime | None:
        found = check_version(request, task)
        task_reorder(actor=root, task=task, move="bottom")
        return found

    monkeypatch.setattr(views, "check_version", compare_and_change)

    stale = post(client, f"{path}{action}/", body, **{"If-Match": read})

    assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    first.refresh_from_db()
    assert (first.priority, first.queue) == (0, example.dev_queue)


def post_time(at: object) -> str:
    """A moment as REST writes it."""
    return str(at).replace(" ", "T").replace("+00:00", "Z")
