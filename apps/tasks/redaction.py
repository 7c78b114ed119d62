"""Redaction of secret values of variables."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

from django.conf import settings

from apps.core.keyring import HIDDEN
from apps.core.wildcards import Wildcards


def is_secret(name: str, own: Iterable[str]) -> bool:
    """Whether the value of a variable is hidden from every reader.

    Args:
        own: patterns of the task's owner, in addition to those of the installation.
    """
    return bool(secret_names([name], own))


def secret_names(names: Iterable[str], own: Iterable[str]) -> frozenset[str]:
    """The variables whose values are hidden; `own` as in `is_secret`."""
    return _secret_names(tuple(names), _patterns(own))


def redact(environment: Mapping[str, str], own: Iterable[str]) -> dict[str, str]:
    """Variables as pages, REST and logs show them to every reader; `own` as in `is_secret`."""
    secret = secret_names(environment, own)
    return {name: HIDDEN if name in secret else value for name, value in environment.items()}


def hide_values(secrets: Mapping[str, str]) -> dict[str, str]:
    """The names of secrets, with hidden values."""
    return dict.fromkeys(secrets, HIDDEN)


def keep_hidden_values(given: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """The given values, with the stored one wherever a hidden value is sent back."""
    return {
        name: stored[name] if value == HIDDEN and name in stored else value
        for name, value in given.items()
    }


def _patterns(own: Iterable[str]) -> tuple[str, ...]:
    patterns = (*settings.RPM_REDACTED_VARIABLES, *own)
    return tuple(sorted({pattern.upper() for pattern in patterns}))


@lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...]) -> Wildcards:
    return Wildcards(patterns)


# The log of a running task is masked piece by piece, with the same variables each time. Only names
# are cached, never values.
@lru_cache(maxsize=64)
def _secret_names(names: tuple[str, ...], patterns: tuple[str, ...]) -> frozenset[str]:
    # Only patterns of the installation may hold sets such as [AB].
    sets = [pattern for pattern in patterns if "[" in pattern]
    plain = _compiled(tuple(pattern for pattern in patterns if "[" not in pattern))
    return frozenset(
        name
        for name in names
        if plain.match(name.upper()) or any(fnmatchcase(name.upper(), one) for one in sets)
    )
