"""Every response carries the id of its lines in the logs."""

import pytest
from django.test import Client


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [
        pytest.param("proxy-0123456789", True, id="an id that a proxy set"),
        pytest.param("short", False, id="too short"),
        pytest.param("x" * 65, False, id="too long"),
        pytest.param("line\u2028break-0123", False, id="signs that could forge a line"),
    ],
)
def test_a_request_id_is_kept_only_if_safe(
    given: str, is_kept: bool
) -> None:  # a column of the table
    answer = Client().get("/healthz", headers={"X-Request-ID": given})

    assert (answer["X-Request-ID"] == given) is is_kept


@pytest.mark.django_db
def test_an_error_of_the_api_names_its_request() -> None:
    answer = Client().get("/api/v1/tasks/", headers={"X-Request-ID": "proxy-0123456789"})

    assert answer.status_code == 401
    assert answer.json()["request_id"] == "proxy-0123456789"
