"""The client of most tests of REST."""

import pytest
from rest_framework.test import APIClient

from apps.accounts.models import User
from tests.configuration.api.common import SignIn


@pytest.fixture
def admin(root: User, api_as: SignIn) -> APIClient:
    return api_as(root)
