"""Query parameters of requests."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.tasks.models import Attempt, AttemptLog, Task
from apps.tasks.selectors.attempts import MOST_LOG_BYTES
from apps.tasks.services.enqueue.idempotency import KEY_LENGTH
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import spec_of
from tests.people import Example

As = Callable[[User], APIClient]
pytestmark = pytest.mark.django_db

TASKS = "/api/v1/tasks/"


@pytest.fixture
def attempted(alice: User, example: Example) -> Task:
    """A task of alice's that was admitted once."""
    values = {"name": "t", "queue": example.dev_queue.name, "command": ["true"]}
    task = task_submit(actor=alice, spec=spec_of(values))
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


def test_an_idempotency_key_is_as_long_as_the_bound(
    api_as: As, alice: User, example: Example
) -> None:
    body = {"name": "t", "queue": example.dev_queue.name, "command": ["true"]}

    def sent(length: int) -> Any:
        headers = {"Idempotency-Key": "k" * length}
        return api_as(alice).post(TASKS, body, format="json", headers=headers)

    longest, longer = sent(KEY_LENGTH), sent(KEY_LENGTH + 1)

    assert longest.status_code == 201
    assert (longer.status_code, list(longer.json()["fields"])) == (400, ["Idempotency-Key"])


def test_a_bulk_request_takes_no_idempotency_key(api_as: As, alice: User, example: Example) -> None:
    answer = api_as(alice).post(
        f"{TASKS}bulk/", [{"name": "t"}], headers={"Idempotency-Key": "run-17"}
    )

    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["Idempotency-Key"])
    assert not Task.objects.exists()


def test_a_bulk_just_below_its_bound_is_read(api_as: As, alice: User) -> None:
    body = json.dumps([{"name": "n" * (settings.RPM_LARGEST_BODY - 100)}])

    answer = api_as(alice).generic("POST", f"{TASKS}bulk/", body, content_type="application/json")

    assert settings.RPM_LARGEST_BODY - 100 < len(body) <= settings.RPM_LARGEST_BODY
    assert answer.status_code == 200
    assert not Task.objects.exists()


def test_a_body_beyond_every_bound_is_named(api_as: As, alice: User, example: Example) -> None:
    body = json.dumps({"name": "n" * settings.RPM_USUAL_BODY})

    answer = api_as(alice).generic("POST", TASKS, body, content_type="application/json")

    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert list(answer.json()["fields"]) == ["body"]


@pytest.fixture
def coloured(attempted: Task) -> Task:
    """It wrote for a terminal."""
    AttemptLog.objects.create(
        attempt=Attempt.objects.get(task=attempted),
        offset=0,
        at=timezone.now(),
        data=b"\x1b]0;title\x07\x1b[31mbad\x1b[0m\n",
    )
    return attempted


def test_logs_are_answered_without_control_sequences_unless_asked_for(
    api_as: As, alice: User, coloured: Task
) -> None:
    def log(**parameters: str) -> object:
        answer = api_as(alice).get(f"{TASKS}{coloured.pk}/logs/", parameters)
        return answer.content if parameters.get("as") == "text" else answer.json()["text"]

    assert log() == "bad\n"
    assert log(raw="1") == "\x1b]0;title\x07\x1b[31mbad\x1b[0m\n"
    assert log(**{"as": "text"}) == b"bad\n"
    assert log(**{"as": "text", "raw": "1"}) == b"\x1b]0;title\x07\x1b[31mbad\x1b[0m\n"


def test_a_log_is_answered_up_to_the_bound(api_as: As, alice: User, attempted: Task) -> None:
    path = f"{TASKS}{attempted.pk}/logs/"
    attempt = Attempt.objects.get(task=attempted)
    AttemptLog.objects.create(
        attempt=attempt, rank=0, offset=0, at=timezone.now(), data=b"x" * (MOST_LOG_BYTES + 1)
    )

    most = api_as(alice).get(path, {"limit": MOST_LOG_BYTES})
    more = api_as(alice).get(path, {"limit": MOST_LOG_BYTES + 1})

    assert (most.status_code, len(most.json()["text"])) == (200, MOST_LOG_BYTES)
    assert (more.status_code, list(more.json()["fields"])) == (400, ["limit"])


@pytest.mark.parametrize("limit", [1, 4, 11, 16, 23, 100])
def test_a_log_read_in_pieces_is_the_log_read_at_once(
    api_as: As, alice: User, coloured: Task, limit: int
) -> None:
    text, offset, before = "", 0, -1
    while offset != before:
        path = f"{TASKS}{coloured.pk}/logs/"
        answer = api_as(alice).get(path, {"offset": offset, "limit": limit}).json()
        before, offset = offset, answer["next_offset"]
        text += answer["text"]

    assert offset == 23
    # Pieces shorter than a sequence cannot hold it back; nothing of them may get lost.
    assert text.endswith("bad\n") if limit > 10 else "bad" in text
    assert "\x1b" not in text
