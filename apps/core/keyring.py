"""Sealing what the database must not hold in clear: secrets of tasks, passwords of registries.

The key ring is the variable RPM_SECRET_KEYS (several by commas), else the file `key-ring` in the
installation's folder, made with mode 0600 when it is first needed. The first key seals, all of them
open, so that a new one can take over while old values are still about (`manage.py keys rotate`).
"""

import hmac
import os
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from apps.core.errors import RpmError
from apps.core.weakness import key_weakness

# What pages, answers and forms show in the place of a value that is sealed.
HIDDEN = "********"


class KeyMissing(RpmError):
    """No key of the ring opens the value: it was sealed with one that is not here any more."""

    code = "key_missing"
    status = 409


def seal(plain: str) -> str:
    """The text so that only who has the key ring can read it; each time another one."""
    return _ring().encrypt(plain.encode()).decode()


def unseal(sealed: str) -> str:
    """The text that was sealed.

    Raises:
        KeyMissing: with none of the keys at hand.
    """
    try:
        return _ring().decrypt(sealed.encode()).decode()
    except InvalidToken as error:
        raise KeyMissing("The key with which this was sealed is not in the key ring.") from error


def reseal(sealed: str) -> str:
    """The same text, sealed with the first key.

    Raises:
        KeyMissing: with none of the keys at hand.
    """
    try:
        return _ring().rotate(sealed.encode()).decode()
    except InvalidToken as error:
        raise KeyMissing("The key with which this was sealed is not in the key ring.") from error


def sign(purpose: str, text: str) -> str:
    """A signature that only who has the key ring can make: 64 hexadecimal digits."""
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
    try:
        Fernet(key).decrypt(sealed.encode())
    except InvalidToken:
        return False
    return True


def keys() -> tuple[str, ...]:
    """The keys of the ring, the one that seals first.

    Raises:
        ValueError: one of them is no key, or one that somebody could guess.
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
    """A key that nobody has yet."""
    return Fernet.generate_key().decode()


def write_keys(found: tuple[str, ...]) -> None:
    """Replace the file of the key ring in one step; processes that run read it anew.

    Raises:
        ValueError: the keys come from a variable, which only whoever sets it can change.
    """
    if settings.RPM_SECRET_KEYS:
        raise ValueError("the keys come from the variable RPM_SECRET_KEYS")
    path: Path = settings.RPM_KEY_RING_FILE
    temporary = _written(path, found)
    temporary.replace(path)


@lru_cache(maxsize=64)
def _weakness(key: str) -> str:
    return key_weakness(key)


def _ring() -> MultiFernet:
    return _multi(keys())


@lru_cache(maxsize=4)
def _multi(found: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in found])


def _file() -> Path:
    """The file, made now where there is none; of two processes that make it one wins."""
    path: Path = settings.RPM_KEY_RING_FILE
    if not path.exists():
        temporary = _written(path, (new_key(),))
        with suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()
    return path


def _written(path: Path, found: tuple[str, ...]) -> Path:
    """A file beside `path`, readable for its owner alone, that survives a power cut."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as target:
        target.write("".join(f"{key}\n" for key in found))
        target.flush()
        os.fsync(target.fileno())
    return Path(name)
