"""What requests ask for beside their body."""

import json
from collections.abc import Callable

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.tasks.api.parsers import BODY_BYTES
from apps.tasks.descriptions import description_of
from apps.tasks.models import Attempt, Task
from apps.tasks.services import task_submit
from tests.cast import Example

As = Callable[[User], APIClient]
pytestmark = pytest.mark.django_db

TASKS = "/api/v1/tasks/"


@pytest.fixture
def attempted(alice: User, example: Example) -> Task:
    """A task of alice's that was admitted once."""
    values = {"name": "t", "queue": example.dev_queue.name, "command": ["true"]}
    task = task_submit(actor=alice, description=description_of(values))
    Attempt.objects.create(
        task=task,
        generation=1,
        queue=example.dev_queue,
        policy=example.dev,
        pool=example.h100,
        allocated_at=timezone.now(),
    )
    return task


@pytest.mark.parametrize("name", ["offset", "limit", "rank", "generation"])
@pytest.mark.parametrize(
    "value",
    [
        pytest.param("0" * 20 + "9" * 20, id="larger than it looks"),
        pytest.param("9" * 5000, id="longer than Python reads"),
        pytest.param("-1", id="negative"),
        pytest.param("٣", id="not ASCII"),
    ],
)
def test_numbers_beyond_their_bounds_are_named(
    api_as: As, alice: User, attempted: Task, name: str, value: str
) -> None:
    answer = api_as(alice).get(f"{TASKS}{attempted.pk}/logs/", {name: value})

    assert (answer.status_code, list(answer.json()["fields"])) == (400, [name])


def test_a_bulk_request_takes_no_idempotency_key(api_as: As, alice: User, example: Example) -> None:
    answer = api_as(alice).post(
        f"{TASKS}bulk/", [{"name": "t"}], headers={"Idempotency-Key": "run-17"}
    )

    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["Idempotency-Key"])
    assert not Task.objects.exists()


def test_a_body_beyond_every_bound_is_named(api_as: As, alice: User, example: Example) -> None:
    body = json.dumps({"name": "n" * BODY_BYTES})

    answer = api_as(alice).generic("POST", TASKS, body, content_type="application/json")

    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert list(answer.json()["fields"]) == ["body"]
