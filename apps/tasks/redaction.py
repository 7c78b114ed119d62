"""Values that nobody needs to read again."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from django.conf import settings

from apps.core.keyring import HIDDEN


def is_secret(name: str, own: Iterable[str]) -> bool:
    """Whether the value of a variable is shown to nobody.

    Args:
        own: patterns of the task's owner, beside those of the installation.
    """
    patterns: list[str] = [*settings.RPM_REDACTED_VARIABLES, *own]
    return any(fnmatchcase(name.upper(), pattern.upper()) for pattern in patterns)


def redacted(environment: Mapping[str, str], own: Iterable[str]) -> dict[str, str]:
    """Variables as pages, API and logs show them, whoever looks; `own` as of `is_secret`."""
    return {name: HIDDEN if is_secret(name, own) else value for name, value in environment.items()}


def hidden(secrets: Mapping[str, str]) -> dict[str, str]:
    """The names of secrets; their values are shown to nobody."""
    return dict.fromkeys(secrets, HIDDEN)


def unhidden(given: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """What somebody sends who read hidden values: those stay as they are stored."""
    return {
        name: stored[name] if value == HIDDEN and name in stored else value
        for name, value in given.items()
    }
