"""The admin site, signed in to."""

from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import User


@pytest.fixture
def site_as() -> Callable[[User], Client]:
    def sign_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def site(root: User, site_as: Callable[[User], Client]) -> Client:
    return site_as(root)
