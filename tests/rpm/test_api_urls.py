"""Addresses of REST that do not exist."""

import pytest
from django.test import Client


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["", "nothing", "tasks/a/b/c/", "tasks/..%2Fqueues/"])
def test_an_address_that_does_not_exist_answers_in_the_shape_of_errors(
    client: Client, method: str, path: str
) -> None:
    answer = client.generic(method, f"/api/v1/{path}")

    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"
    assert answer.json()["request_id"] == answer["X-Request-ID"]
