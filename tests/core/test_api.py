"""What REST answers when something below it fails."""

from collections.abc import Callable

import pytest
from django.db import OperationalError
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.core.api import DETAIL_CHARS, error_body
from apps.core.errors import MOST_PROBLEMS, BadInput
from apps.core.serializers import MOST_SUGGESTIONS
from apps.core.suggestions import NAME_CHARS, nearest
from apps.tasks.api import views
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_of_very_many_unknown_fields_only_the_first_are_answered(
    api_as: Callable[[User], APIClient], alice: User
) -> None:
    sent = {f"last_name{number}": number for number in range(5_000)}

    answer = api_as(alice).patch("/api/v1/account/", sent, format="json")
    long = api_as(alice).patch("/api/v1/account/", {"x" * 200: 1}, format="json")

    fields = answer.json()["fields"]
    assert answer.status_code == 400
    assert len(answer.content) < 10_000
    assert len(fields) == MOST_PROBLEMS
    assert [len(name) for name in long.json()["fields"]] == [NAME_CHARS]
    assert sum("Did you mean" in problem for problem in fields.values()) == MOST_SUGGESTIONS


def test_an_error_is_answered_with_a_bounded_number_of_problems_of_bounded_length() -> None:
    wrong = {f"field{number}{'x' * 1000}": "y" * 20_000 for number in range(100)}

    body = error_body(BadInput("z" * 20_000, fields=wrong))

    assert len(body["fields"]) == MOST_PROBLEMS
    assert {len(name) for name in body["fields"]} == {2 * NAME_CHARS}
    assert {len(one) for one in [body["detail"], *body["fields"].values()]} == {DETAIL_CHARS}


def test_a_name_of_a_megabyte_is_compared_by_its_beginning() -> None:
    assert nearest("pass" * 250_000, ["pass" * 20, "language"]) == "pass" * 20
    assert nearest("nosuch", ["password", "language"]) == ""


def test_a_database_that_is_away_is_reported_as_503_with_a_time_to_ask_again(
    api_as: Callable[[User], APIClient],
    alice: User,
    example: Example,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_args: object, **_named: object) -> None:
        raise OperationalError("server closed the connection unexpectedly: 10.0.0.7")

    client = api_as(alice)
    client.raise_request_exception = False
    monkeypatch.setattr(views, "tasks_matching_filters", fail)

    answer = client.get("/api/v1/tasks/")

    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert answer.json()["code"] == "unavailable"
    assert "10.0.0.7" not in answer.content.decode()
