"""What REST answers when something below it fails."""

from collections.abc import Callable

import pytest
from django.db import OperationalError
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.tasks.api import views
from tests.cast import Example

pytestmark = pytest.mark.django_db


def test_a_database_that_is_away_is_told_as_503_with_a_time_to_ask_again(
    api_as: Callable[[User], APIClient],
    alice: User,
    example: Example,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_args: object, **_named: object) -> None:
        raise OperationalError("server closed the connection unexpectedly: 10.0.0.7")

    client = api_as(alice)
    client.raise_request_exception = False
    monkeypatch.setattr(views, "tasks_listed", fail)

    answer = client.get("/api/v1/tasks/")

    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert answer.json()["code"] == "unavailable"
    assert "10.0.0.7" not in answer.content.decode()
