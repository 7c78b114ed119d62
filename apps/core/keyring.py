"""Seals what the database must not hold in clear: secrets of tasks, passwords of registries.

The key ring is the variable RPM_SECRET_KEYS (several by commas), else the file `key-ring` in the
installation's folder, made with mode 0600 when it is first needed. The first key seals, all of them
open, so that a new one can take over while old values are still about (`manage.py keys rotate`).

A value is sealed for one place (`SealContext`) and opens there only: with write access to the
database but no key, an attacker gains nothing by moving a value to a row that they may read.
"""

import hmac
import json
import os
import tempfile
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from apps.core.errors import RpmError
from apps.core.weakness import key_weakness

# What pages, answers and forms show in the place of a value that is sealed.
HIDDEN = "********"
# Begins every sealed value; behind it base64 of key id, nonce and ciphertext.
_FORM = "rpm2."
# Version and time stamp, as Fernet of the form before begins.
_EARLIER_FORM = "gAAAA"
_ID_BYTES = 4
_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class SealContext:
    """The one place where a value opens.

    Args:
        purpose: the column, such as `tasks.task.secrets`; each purpose has keys of its own.
        row: what names the row, and whose it is; known before the row is stored.
        name: of the value, where the column holds several.
    """

    purpose: str
    row: tuple[str | int, ...] = ()
    name: str = ""

    def __str__(self) -> str:
        return f"{self.purpose} {self.name}".rstrip()

    def error(self, kind: "type[CannotUnseal]", words: str) -> "CannotUnseal":
        """The error for a value that cannot be opened; it names the field only."""
        column = self.purpose.rpartition(".")[2]
        field = f"{column}.{self.name}" if self.name else column
        return kind(f"{self} cannot be read: {words}.", fields={field: f"cannot be read: {words}"})


class CannotUnseal(RpmError):
    """A sealed value cannot be opened."""

    code = "cannot_unseal"
    status = 409


class KeyMissing(CannotUnseal):
    """The key that sealed the value is not in the key ring."""

    code = "key_missing"


class SealMismatch(CannotUnseal):
    """The value was sealed for another place, was changed, or is not a sealed value."""

    code = "seal_mismatch"


def seal(plain: str, *, context: SealContext) -> str:
    """Seal the text with the key ring for one place; equal texts give different results."""
    return _seal(keys()[0], plain, context)


def unseal(sealed: object, *, context: SealContext) -> str:
    """The text that was sealed for this place; a JSON column may hold anything.

    Raises:
        KeyMissing: with none of the keys at hand.
        SealMismatch: it was sealed for another place, by an earlier version, or was changed.
    """
    if is_earlier_form(sealed):
        raise context.error(
            SealMismatch, "it is in the form of an earlier version, see `manage.py keys bind`"
        )
    key_id, nonce, closed = _parts(sealed, context)
    for key in (key for key in keys() if _key_id(key) == key_id):
        with suppress(InvalidTag):
            plain = _cipher(key, context.purpose).decrypt(nonce, closed, _bound_to(context))
            return plain.decode()
    if key_id not in map(_key_id, keys()):
        raise context.error(KeyMissing, "the key with which it was sealed is not in the key ring")
    raise _mismatch(context)


def reseal(sealed: str, *, context: SealContext, to: SealContext | None = None) -> str:
    """The same text, sealed with the first key; for another place where one is named.

    Raises:
        CannotUnseal: it cannot be opened.
    """
    return seal(unseal(sealed, context=context), context=to or context)


def is_earlier_form(sealed: object) -> bool:
    """Whether a version without contexts sealed it: it may have come from anywhere."""
    return isinstance(sealed, str) and sealed.startswith(_EARLIER_FORM)


def bind(sealed: str, *, context: SealContext) -> str:
    """The text of a value in the form before, sealed for the place in which it is now.

    Raises:
        KeyMissing: with none of the keys at hand.
    """
    try:
        plain = MultiFernet([Fernet(key) for key in keys()]).decrypt(sealed.encode()).decode()
    except InvalidToken as error:
        words = "the key with which it was sealed is not in the key ring"
        raise context.error(KeyMissing, words) from error
    return seal(plain, context=context)


def _seal(key: str, plain: str, context: SealContext) -> str:
    nonce = os.urandom(_NONCE_BYTES)
    closed = _cipher(key, context.purpose).encrypt(nonce, plain.encode(), _bound_to(context))
    return _FORM + urlsafe_b64encode(_key_id(key) + nonce + closed).decode()


def _parts(sealed: object, context: SealContext) -> tuple[bytes, bytes, bytes]:
    """Key id, nonce and ciphertext."""
    if not isinstance(sealed, str) or not sealed.startswith(_FORM):
        raise _mismatch(context)
    try:
        raw = urlsafe_b64decode(sealed.removeprefix(_FORM).encode())
    except ValueError as error:
        raise _mismatch(context) from error
    if len(raw) <= _ID_BYTES + _NONCE_BYTES:
        raise _mismatch(context)
    return raw[:_ID_BYTES], raw[_ID_BYTES:][:_NONCE_BYTES], raw[_ID_BYTES + _NONCE_BYTES :]


def _mismatch(context: SealContext) -> CannotUnseal:
    return context.error(SealMismatch, "it was sealed for another place, or was changed")


def _bound_to(context: SealContext) -> bytes:
    # JSON, so that no two contexts are written alike, wherever their parts begin and end.
    return json.dumps([context.purpose, list(map(str, context.row)), context.name]).encode()


# Deriving takes longer than sealing: once per process, key and purpose.
@lru_cache(maxsize=256)
def _cipher(key: str, purpose: str) -> AESGCM:
    return AESGCM(_derive(key, f"rpm seal {purpose}", 32))


@lru_cache(maxsize=64)
def _key_id(key: str) -> bytes:
    """Names a key in what it has sealed, and reveals nothing of it."""
    return _derive(key, "rpm seal key id", _ID_BYTES)


def _derive(key: str, info: str, length: int) -> bytes:
    return HKDF(SHA256(), length, salt=None, info=info.encode()).derive(key.encode())


def sign(purpose: str, text: str) -> str:
    """A signature that needs the key ring: 64 hexadecimal digits."""
    return _signature(keys()[0], purpose, text)


def is_signed(purpose: str, text: str, signature: str) -> bool:
    """Whether a key of the ring has signed this text for this purpose."""
    given = signature.encode(errors="replace")
    return any(hmac.compare_digest(_signature(k, purpose, text).encode(), given) for k in keys())


def _signature(key: str, purpose: str, text: str) -> str:
    derived = hmac.digest(key.encode(), f"rpm {purpose}".encode(), "sha256")
    return hmac.digest(derived, text.encode(), "sha256").hex()


def opens(key: str, sealed: str) -> bool:
    """Whether the value was sealed with this key."""
    return urlsafe_b64decode(sealed.removeprefix(_FORM).encode()).startswith(_key_id(key))


def keys() -> tuple[str, ...]:
    """The keys of the ring, the one that seals first.

    Raises:
        ValueError: one of them is no key, or is easy to guess.
    """
    given: tuple[str, ...] = tuple(settings.RPM_SECRET_KEYS)
    found = given or tuple(_file().read_text(encoding="utf-8").split())
    if not found:
        raise ValueError(f"{settings.RPM_KEY_RING_FILE} holds no key")
    for number, key in enumerate(found, start=1):
        weakness = _weakness(key)
        if weakness:
            raise ValueError(f"key {number} of {len(found)} {weakness}")
    return found


def new_key() -> str:
    """A new random key."""
    return Fernet.generate_key().decode()


def write_keys(found: tuple[str, ...]) -> None:
    """Replace the file of the key ring in one step; running processes read it again.

    Raises:
        ValueError: the keys come from a variable, which this process cannot change.
    """
    if settings.RPM_SECRET_KEYS:
        raise ValueError("the keys come from the variable RPM_SECRET_KEYS")
    path: Path = settings.RPM_KEY_RING_FILE
    temporary = _write(path, found)
    temporary.replace(path)


@lru_cache(maxsize=64)
def _weakness(key: str) -> str:
    return key_weakness(key)


def _file() -> Path:
    """The file, created if missing; of two processes that create it, one wins."""
    path: Path = settings.RPM_KEY_RING_FILE
    if not path.exists():
        temporary = _write(path, (new_key(),))
        with suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()
    return path


def _write(path: Path, found: tuple[str, ...]) -> Path:
    """A file next to `path`, readable for its owner alone, that survives a power cut."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as target:
        target.write("".join(f"{key}\n" for key in found))
        target.flush()
        os.fsync(target.fileno())
    return Path(name)
