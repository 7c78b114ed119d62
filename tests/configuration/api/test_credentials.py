"""Credentials through REST."""

import base64

import pytest
from rest_framework.test import APIClient

from apps.accounts.models import User
from tests.configuration.api.common import V1, SignIn, names
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_a_credential_works_until_it_is_revoked(
    api_as: SignIn, alice: User, bob: User, example: Example
) -> None:
    made = api_as(alice).post(f"{V1}/credentials/", {"label": "laptop"}).json()
    program = APIClient()
    pair = base64.b64encode(f"{made['key']}:{made['secret']}".encode()).decode()
    program.credentials(HTTP_AUTHORIZATION=f"Basic {pair}")

    works = program.get(f"{V1}/queues/")
    listed = api_as(alice).get(f"{V1}/credentials/")
    foreign = api_as(bob).delete(f"{V1}/credentials/{made['id']}/")
    revoked = api_as(alice).delete(f"{V1}/credentials/{made['id']}/")

    assert names(works) == ["dev-4xgpu"]
    assert made["secret"] not in listed.content.decode()
    assert foreign.status_code == 404
    assert revoked.status_code == 204
    assert program.get(f"{V1}/queues/").status_code == 401
