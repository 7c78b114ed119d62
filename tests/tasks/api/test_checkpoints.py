"""`POST tasks/{id}/checkpoint/`, as a task or its owner sends it."""

from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.accounts.services.credentials import credential_create
from apps.allocation.services import run_pass
from apps.tasks.models import Attempt
from tests.allocation.state import begin, enqueue, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], APIClient]


@pytest.fixture
def running(example: Example, alice: User) -> Attempt:
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue)
    run_pass()
    begin(Attempt.objects.get())
    Attempt.objects.update(started_at=timezone.now() - timedelta(hours=1))
    return Attempt.objects.get()


def address(attempt: Attempt) -> str:
    return f"/api/v1/tasks/{attempt.task_id}/checkpoint/"


def test_a_task_says_with_its_owners_credential_that_its_state_is_saved(
    running: Attempt, alice: User, api_as: SignIn
) -> None:
    credential, secret = credential_create(user=alice, label="in the task")
    client = APIClient()
    before = timezone.now()

    answer = client.post(address(running), headers={"Authorization": basic(credential.key, secret)})

    assert (answer.status_code, answer.json()["id"]) == (200, str(running.task_id))
    running.refresh_from_db()
    assert running.checkpointed_at is not None
    assert before <= running.checkpointed_at <= timezone.now()
    address_of_attempts = f"/api/v1/tasks/{running.task_id}/attempts/"
    (attempt,) = api_as(alice).get(address_of_attempts).json()
    assert parse_datetime(attempt["checkpointed_at"]) == running.checkpointed_at
    assert [one["detail"] for one in attempt["members"]] == [""]


def test_nobody_says_it_for_another(
    running: Attempt, bob: User, charlie: User, root: User, api_as: SignIn
) -> None:
    answers = [api_as(user).post(address(running)) for user in (bob, charlie, root)]
    answers.append(APIClient().post(address(running)))

    assert [answer.status_code for answer in answers] == [403, 404, 403, 401]
    running.refresh_from_db()
    assert running.checkpointed_at is None


def test_what_does_not_run_has_nothing_to_save(
    example: Example, alice: User, api_as: SignIn
) -> None:
    (task,) = enqueue(alice, example.dev_queue)

    answer = api_as(alice).post(f"/api/v1/tasks/{task.pk}/checkpoint/")

    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


def basic(key: str, secret: str) -> str:
    words = b64encode(f"{key}:{secret}".encode()).decode()
    return f"Basic {words}"
