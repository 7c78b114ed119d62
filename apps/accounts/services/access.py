"""Authenticates an `Authorization` header: key and secret of a credential, or its token.

A token is signed and stored nowhere. It names the credential, which every request checks, so that
its tokens end with it.
"""

import time
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.core import signing

from apps.accounts.models import Scope, User
from apps.accounts.services.credentials import (
    basic_pair,
    credential_by_pair,
    credential_use_note,
    credentials_valid,
)
from apps.accounts.services.throttling import guesser_check, wrong_secret_note
from apps.core.errors import RpmError

# A service account sends the id of a task, to act for its owner.
ACT_FOR: Final = "X-RPM-Act-For"
_SALT: Final = "accounts.token"
_LONGEST: Final = 1000


class WrongSecret(RpmError):
    """The key and secret are unknown, expired or revoked."""

    code = "authentication_failed"
    status = 401


@dataclass(frozen=True, slots=True)
class CredentialAccess:
    """The user of a request, the credential, and what it may be used for.

    Args:
        until: seconds since the epoch at which a token ends; None for key and secret.
    """

    user: User
    credential_id: int
    scope: Scope
    until: float | None = None


@dataclass(frozen=True, slots=True)
class CredentialToken:
    """A signed text that represents a credential for a while."""

    text: str
    scope: Scope
    expires_in_s: int


def access_by_header(header: str, *, address: str) -> CredentialAccess | None:
    """The access that the header gives; None if its scheme is not supported.

    Raises:
        WrongSecret: it gives none.
        TooMany: too many wrong ones came from this address, or for this key.
    """
    scheme = header.partition(" ")[0].lower()
    if scheme not in {"basic", "bearer"}:
        return None
    guesser_check(address)
    if scheme == "bearer":
        return _access_by_token(header.partition(" ")[2].strip(), address=address)
    pair = basic_pair(header)
    credential = credential_by_pair(*pair) if pair else None
    if credential is None:
        wrong_secret_note(address=address, key=pair[0] if pair else "")
        raise WrongSecret("Key or secret is wrong, expired or revoked.")
    return CredentialAccess(credential.user, credential.pk, Scope(credential.scope))


def access_holds(access: CredentialAccess) -> bool:
    """Whether it is still valid, for connections that stay open."""
    is_over = access.until is not None and access.until <= time.time()
    return not is_over and credentials_valid().filter(pk=access.credential_id).exists()


def token_make(*, access: CredentialAccess, scope: Scope | None = None) -> CredentialToken:
    """A token for the credential of `access`, for as much as it may do or for less."""
    allowed = access.scope if scope is None else scope.at_most(access.scope)
    seconds: int = settings.RPM_TOKEN_S
    facts = [access.credential_id, allowed.value, int(time.time()) + seconds]
    return CredentialToken(signing.dumps(facts, key=_key(), salt=_SALT), allowed, seconds)


def _access_by_token(text: str, *, address: str) -> CredentialAccess:
    try:
        if len(text) > _LONGEST:
            raise signing.BadSignature
        credential_id, scope, until = signing.loads(text, key=_key(), salt=_SALT)
    except (signing.BadSignature, ValueError, TypeError) as error:
        wrong_secret_note(address=address, key="")
        raise WrongSecret("This token is not one that was made here.") from error
    credential = credentials_valid().select_related("user").filter(pk=credential_id).first()
    if credential is None or until <= time.time():
        raise WrongSecret("This token expired, or its credential did: make another.")
    credential_use_note(credential)
    allowed = Scope(scope).at_most(Scope(credential.scope))
    return CredentialAccess(credential.user, credential.pk, allowed, until)


def _key() -> str:
    key: str = settings.RPM_CREDENTIAL_KEY
    return key
