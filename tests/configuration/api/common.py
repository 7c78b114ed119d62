"""Helpers of the tests of REST."""

from collections.abc import Callable
from typing import Any

from rest_framework.test import APIClient

from apps.accounts.models import User

SignIn = Callable[[User], APIClient]
V1 = "/api/v1"


def names(answer: Any) -> list[str]:
    """Names of the rows of a list, in its order."""
    return [row["name"] for row in answer.json()["results"]]
