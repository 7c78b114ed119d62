"""Why a task waits, as REST says it to those who see it."""

from collections.abc import Callable

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.tasks.descriptions import description_of
from apps.tasks.models import Run, Task
from apps.tasks.services import task_submit
from tests.cast import Example

As = Callable[[User], APIClient]
pytestmark = pytest.mark.django_db


def submitted(actor: User, queue: str) -> Task:
    values = {"name": "t", "queue": queue, "command": ["true"]}
    return task_submit(actor=actor, description=description_of(values))


def test_ids_of_other_teams_are_left_out_and_numbers_stay(
    api_as: As, alice: User, charlie: User, root: User, example: Example
) -> None:
    own, foreign = (
        submitted(alice, example.dev_queue.name),
        submitted(charlie, example.research_queue.name),
    )
    detail = {
        "pool": example.h100.pk,
        "policy": example.research.pk,
        "policies": [example.dev.pk, example.research.pk],
        "queue": example.dev_queue.pk,
        "user": charlie.pk,
        "tasks": [str(own.pk), str(foreign.pk)],
        "needed": 4000,
    }
    reasons = [{"code": "held", "details": [detail]}]
    Run.objects.filter(head_id=None, queue=example.dev_queue).update(
        head_id=own.pk, reason_code="held", reason={"reasons": reasons}, reason_at=timezone.now()
    )

    told = api_as(alice).get(f"/api/v1/tasks/{own.pk}/explain/").json()["reasons"]

    want = {
        "pool": None,
        "policy": None,
        "policies": [example.dev.pk],
        "queue": example.dev_queue.pk,
        "user": None,
        "tasks": [str(own.pk)],
        "needed": 4000,
    }
    assert told == [{"code": "held", "details": [want]}]
    assert api_as(root).get(f"/api/v1/tasks/{own.pk}/explain/").json()["reasons"] == reasons
