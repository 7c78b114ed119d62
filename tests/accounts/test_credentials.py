"""Keys and secrets, as a header carries them."""

import base64
import inspect
import sys

import pytest

from apps.accounts.models import Credential, User
from apps.accounts.services import credentials
from apps.accounts.services.credentials import (
    basic_pair,
    credential_create,
    credential_revoke,
    credential_user,
)
from apps.core.errors import Conflict, NotAllowed

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


def test_the_credentials_of_an_account_are_bounded(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "MOST_CREDENTIALS", 2)
    first, _ = credential_create(user=alice, label="first")
    credential_create(user=alice, label="second")

    with pytest.raises(Conflict, match="has 2 credentials"):
        credential_create(user=alice, label="third")

    credential_revoke(credential=first, actor=alice, is_admin=False)
    credential_create(user=alice, label="third")


def test_a_revoked_credential_makes_no_other(alice: User) -> None:
    """It was valid when its request came in."""
    maker, _ = credential_create(user=alice, label="maker")
    asked_with = Credential.objects.get(pk=maker.pk)
    credential_revoke(credential=maker, actor=alice, is_admin=False)

    with pytest.raises(NotAllowed, match="was revoked"):
        credential_create(user=alice, label="child", made_with=asked_with)


def test_a_chain_of_credentials_is_revoked_however_long_it_is(alice: User) -> None:
    first, _ = credential_create(user=alice, label="0")
    last = first
    for step in range(1, 300):
        last = Credential.objects.create(
            user=alice, key=f"K{step}", secret_hash="", label=str(step), made_with=last
        )
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 150)
    try:
        credential_revoke(credential=first, actor=alice, is_admin=False)
    finally:
        sys.setrecursionlimit(limit)

    assert not alice.credentials.filter(revoked_at=None).exists()
