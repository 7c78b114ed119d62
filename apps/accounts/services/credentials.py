"""Making, checking and revoking credentials."""

import base64
import binascii
import hashlib
import hmac
import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import Credential, User
from apps.core.errors import NotAllowed

KEY_BYTES = 10
SECRET_BYTES = 32
# `last_used_at` is a hint for people: one write per credential and minute is enough.
LAST_USED_EVERY = timedelta(minutes=1)


def credential_create(
    *, user: User, label: str, expires_at: datetime | None = None
) -> tuple[Credential, str]:
    """A new credential and its secret, which is shown once and kept nowhere."""
    secret = secrets.token_urlsafe(SECRET_BYTES)
    credential = Credential(
        user=user,
        key=base64.b32encode(secrets.token_bytes(KEY_BYTES)).decode().rstrip("="),
        secret_hash=secret_hash(secret),
        label=label,
        expires_at=expires_at,
    )
    credential.full_clean()
    credential.save()
    return credential, secret


def credential_revoke(*, credential: Credential, actor: User, is_admin: bool) -> None:
    """From the next request on, the credential is refused.

    Raises:
        NotAllowed: it is somebody else's, and `actor` does not administer.
    """
    if credential.user_id != actor.pk and not is_admin:
        raise NotAllowed("This credential is not yours.")
    Credential.objects.filter(pk=credential.pk, revoked_at__isnull=True).update(
        revoked_at=timezone.now()
    )


def credential_user(header: str) -> User | None:
    """Who a `Basic` authorization header speaks for; None where it is not valid.

    One indexed query; the secret is compared in constant time, and the comparison is made also
    for unknown keys.
    """
    pair = basic_pair(header)
    if pair is None:
        return None
    key, secret = pair
    now = timezone.now()
    credential = (
        Credential.objects.select_related("user")
        .filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now))
        .filter(key=key, revoked_at__isnull=True, user__is_active=True)
        .first()
    )
    kept = credential.secret_hash if credential else ""
    if not hmac.compare_digest(kept, secret_hash(secret)) or credential is None:
        return None
    if credential.last_used_at is None or credential.last_used_at < now - LAST_USED_EVERY:
        Credential.objects.filter(pk=credential.pk).update(last_used_at=now)
    return credential.user


def secret_hash(secret: str) -> str:
    """Keyed hash of a secret of 256 random bits; a slow hash would add nothing here."""
    key: str = settings.RPM_CREDENTIAL_KEY
    return hmac.new(key.encode(), secret.encode(), hashlib.sha256).hexdigest()


def basic_pair(header: str) -> tuple[str, str] | None:
    """Key and secret of a `Basic` authorization header; None where it is none."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        key, colon, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    # PostgreSQL cannot even look for a text with a NUL.
    return (key, secret) if colon and "\0" not in key else None
