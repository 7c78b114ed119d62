"""Creates, checks, renames and revokes credentials."""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import CharField, DateTimeField, Q, QuerySet
from django.utils import timezone

from apps.accounts.models import Credential, Scope, User
from apps.core.errors import BadInput, Conflict, NotAllowed
from apps.core.model_errors import from_model_error
from apps.core.recorders import event_record
from apps.core.statements import Parameter, Statement

KEY_BYTES = 10
SECRET_BYTES = 32
# `last_used_at` is for people to read: one write per credential and minute is enough.
LAST_USED_EVERY = timedelta(minutes=1)
# The most valid credentials of one account.
MOST_CREDENTIALS = 1_000


@transaction.atomic
def credential_create(
    *,
    user: User,
    label: str,
    expires_at: datetime | None = None,
    scope: Scope = Scope.ADMINISTER,
    actor: User | None = None,
    made_with: Credential | None = None,
) -> tuple[Credential, str]:
    """A new credential and its secret, which is shown once and kept nowhere.

    Args:
        actor: who creates it, if that is not its owner.
        made_with: the credential of the request: the new one ends no later, and is revoked with it.

    Raises:
        BadInput: naming the field.
        NotAllowed: the credential that asks was revoked meanwhile.
        Conflict: the account has as many as it may have.
    """
    if made_with is not None and not _unrevoked(credentials_valid().filter(pk=made_with.pk)):
        raise NotAllowed("The credential that asks was revoked.")
    if credentials_valid().filter(user=user).count() >= MOST_CREDENTIALS:
        raise Conflict(
            f"{user.username} has {MOST_CREDENTIALS} credentials, the most there may be: "
            "revoke those that nobody uses."
        )
    expires_at = _within_maker(made_with, expires_at)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    credential = Credential(
        user=user,
        key=base64.b32encode(secrets.token_bytes(KEY_BYTES)).decode().rstrip("="),
        secret_hash=secret_hash(secret),
        label=label,
        scope=scope,
        expires_at=expires_at,
        made_with=made_with,
    )
    _usable_credential(credential)
    credential.save()
    _note("credential.created", credential, actor or user, after=_facts(credential))
    return credential, secret


@transaction.atomic
def credential_change(*, credential: Credential, actor: User, label: str) -> Credential:
    """Change its label; its scope and expiry never change.

    Raises:
        BadInput: naming the field.
    """
    before = _facts(credential)
    credential.label = label
    _usable_credential(credential)
    if before != _facts(credential):
        credential.save(update_fields=["label"])
        _note("credential.changed", credential, actor, before=before, after=_facts(credential))
    return credential


def credential_revoke(*, credential: Credential, actor: User, is_admin: bool) -> None:
    """From the next request on, the credential is refused, and its open sockets close.

    Raises:
        NotAllowed: it belongs to another user, and `actor` does not administer.
    """
    if credential.user_id != actor.pk and not is_admin:
        raise NotAllowed("This credential is not yours.")
    _revoke(Credential.objects.filter(pk=credential.pk), actor)


def credentials_revoke_all(*, user: User, actor: User | None) -> int:
    """Revoke all credentials of this account; how many there were."""
    return _revoke(Credential.objects.filter(user=user), actor)


@transaction.atomic
def _revoke(credentials: QuerySet[Credential], actor: User | None) -> int:
    """Revoke them with all credentials made with them, however long the chain is."""
    count = None
    while found := _unrevoked(credentials):
        for credential in found:
            Credential.objects.filter(pk=credential.pk).update(revoked_at=timezone.now())
            _note("credential.revoked", credential, actor, before=_facts(credential))
        count = len(found) if count is None else count
        credentials = Credential.objects.filter(made_with__in=found)
    return count or 0


def _unrevoked(credentials: QuerySet[Credential]) -> list[Credential]:
    """Those of them that are not revoked, locked."""
    known = credentials.filter(revoked_at__isnull=True).select_related("user")
    return list(known.select_for_update(of=("self",)))


def credential_user(header: str) -> User | None:
    """The user of a `Basic` authorization header; None if it is not valid."""
    pair = basic_pair(header)
    credential = credential_by_pair(*pair) if pair else None
    return credential.user if credential else None


def credential_by_pair(key: str, secret: str) -> Credential | None:
    """The credential with this key and secret; None where they are not valid.

    One indexed query; the secret is compared in constant time, and the comparison is made also
    for unknown keys.
    """
    credential = _BY_KEY.first(key=key, now=timezone.now())
    kept = credential.secret_hash if credential else ""
    if not hmac.compare_digest(kept, secret_hash(secret)) or credential is None:
        return None
    credential_use_note(credential)
    return credential


def credentials_valid(at: datetime | Parameter | None = None) -> QuerySet[Credential]:
    """Credentials that authenticate their user, at this moment or now."""
    in_time = Q(expires_at__isnull=True) | Q(expires_at__gt=at or timezone.now())
    return Credential.objects.filter(in_time, revoked_at__isnull=True, user__is_active=True)


_BY_KEY = Statement(
    lambda: (
        credentials_valid(Parameter("now", DateTimeField()))
        .select_related("user")
        .filter(key=Parameter("key", CharField()))
        .order_by()
    )
)


def credential_use_note(credential: Credential) -> None:
    """Note it as used now, at most once a minute."""
    now = timezone.now()
    if credential.last_used_at is None or credential.last_used_at < now - LAST_USED_EVERY:
        Credential.objects.filter(pk=credential.pk).update(last_used_at=now)


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


def _within_maker(made_with: Credential | None, expires_at: datetime | None) -> datetime | None:
    """When a new credential ends: by default with the credential of the request."""
    last = made_with.expires_at if made_with is not None else None
    if last is not None and expires_at is not None and expires_at > last:
        problem = f"must be {last.isoformat()} at the latest, when the credential that asks ends"
        raise BadInput(f"expires_at {problem}.", fields={"expires_at": problem})
    return expires_at or last


def _usable_credential(credential: Credential) -> None:
    try:
        credential.full_clean()
    except ValidationError as error:
        raise from_model_error(error) from error


def _facts(credential: Credential) -> dict[str, Any]:
    """What events and the audit log record of it; never its secret."""
    ends = credential.expires_at
    return {
        "key": credential.key,
        "owner": credential.user.username,
        "label": credential.label,
        "scope": str(credential.scope),
        "expires_at": ends.isoformat() if ends else None,
    }


def _note(
    kind: str,
    credential: Credential,
    actor: User | None,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    owner = credential.user
    event_record(
        kind,
        actor=actor,
        object_type="credential",
        object_id=credential.pk,
        data={
            "name": credential.label or credential.key,
            "before": before,
            "after": after,
            "others": [{"type": "user", "id": str(owner.pk), "name": owner.username}],
        },
        topics=[f"credential.{credential.pk}"],
    )
