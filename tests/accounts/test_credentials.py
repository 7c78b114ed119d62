"""Keys and secrets, as a header carries them."""

import base64

import pytest

from apps.accounts.models import User
from apps.accounts.services.credentials import basic_pair, credential_create, credential_user

pytestmark = pytest.mark.django_db


def basic(pair: bytes) -> str:
    return "Basic " + base64.b64encode(pair).decode()


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("", id="nothing"),
        pytest.param("Bearer abc", id="another scheme"),
        pytest.param("Basic ???", id="not base64"),
        pytest.param(basic(b"no colon"), id="no secret"),
        pytest.param(basic(b"\xff:x"), id="not text"),
        pytest.param(basic(b"a\0b:x"), id="a NUL, which PostgreSQL cannot look for"),
    ],
)
def test_a_header_that_is_no_credential_speaks_for_nobody(header: str) -> None:
    assert basic_pair(header) is None
    assert credential_user(header) is None


def test_a_credential_speaks_for_its_owner_while_they_are_active(alice: User) -> None:
    credential, secret = credential_create(user=alice, label="")
    header = basic(f"{credential.key}:{secret}".encode())

    assert credential_user(header) == alice
    assert credential_user(basic(f"{credential.key}:{secret}x".encode())) is None

    User.objects.filter(pk=alice.pk).update(is_active=False)

    assert credential_user(header) is None
