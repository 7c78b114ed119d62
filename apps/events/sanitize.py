"""Sanitizes values for the log: plain, of bounded length, without fields that are secret."""

import datetime as dt
import re
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.db.models import Model

from apps.core.keyring import HIDDEN

# Names of fields whose values are never kept, wherever they come from.
SECRET_NAMES = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "secrets",
    "token",
    "private_key",
    "client_secret",
    "secret_hash",
    "token_hash",
    "sealed",
    "sealed_password",
    "otp",
    "totp",
    "recovery_codes",
    "cookie",
    "session_key",
    "authorization",
    "api_key",
    "environment",
)
_SECRET = re.compile(
    r"(^|_)(passw(or)?d|passphrase|secrets?|tokens?|private_key|sealed|otp|totp|recovery_codes?|"
    r"cookies?|session_key|authorization|api_key|environment)(_|$)",
    re.IGNORECASE,
)
LONGEST_TEXT = 4000
MOST_ITEMS = 2000
DEEPEST = 12


def sanitize(value: Any) -> Any:
    """The value as JSON can hold it, for a log that is never changed."""
    return _plain(value, depth=0)


def text(value: object, *, most: int = LONGEST_TEXT) -> str:
    """A text that every database takes, cut where it is too long."""
    plain = str(value).replace("\0", "").encode("utf-8", "replace").decode()
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def is_secret(name: str) -> bool:
    """Whether a field of this name may hold a secret."""
    return _SECRET.search(name) is not None


def _plain(value: Any, *, depth: int) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if -1e15 < value < 1e15 else str(value)
    if depth >= DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return _mapping(value, depth=depth)
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
        return [_plain(one, depth=depth + 1) for one in items[:MOST_ITEMS]]
    return _text_of(value)


def _mapping(value: Mapping[Any, Any], *, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, one in list(value.items())[:MOST_ITEMS]:
        name = text(key, most=200)
        # Whether there is a secret may be recorded; never what it is.
        is_hidden = is_secret(name) and one not in (None, "", [], {}) and not isinstance(one, bool)
        plain[name] = HIDDEN if is_hidden else _plain(one, depth=depth + 1)
    return plain


def _text_of(value: Any) -> str:
    if isinstance(value, Model):
        return text(value)
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID | Decimal):
        return str(value)
    return text(value)
