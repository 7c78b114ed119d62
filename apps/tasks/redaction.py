"""Values that nobody needs to read again."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

HIDDEN = "********"
PATTERNS = ("*SECRET*", "*TOKEN*", "*PASSWORD*", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_KEY")


def is_secret(name: str) -> bool:
    """Whether the value of a variable is shown to nobody."""
    return any(fnmatchcase(name.upper(), pattern) for pattern in PATTERNS)


def redacted(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables as pages, API and logs show them."""
    return {name: HIDDEN if is_secret(name) else value for name, value in environment.items()}
