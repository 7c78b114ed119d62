"""Patterns of the images that a pool allows, and their registries; pure."""

import re
from collections.abc import Iterable
from functools import lru_cache

from apps.core.containers import IMAGE_LENGTH

REGISTRY_LENGTH = 262
# As `registry_of` answers it.
_SMALL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
REGISTRY = rf"(?=localhost\Z|[^:]*[.]|.*:){_SMALL}(?:\.{_SMALL})*(?::[0-9]{{1,5}})?"
_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@*-]*")
_HAS_VERSION = re.compile(r"[:@][^/]*$")
DEFAULT_REGISTRY = "docker.io"


def is_pattern(pattern: str) -> bool:
    """Whether it can stand in a pool's list: a star never in the registry's own name."""
    if pattern == "*":
        return True
    first, slash, _ = pattern.partition("/")
    is_closed = "*" not in first or (not slash and "*" not in pattern)
    return len(pattern) <= IMAGE_LENGTH and bool(_PATTERN.fullmatch(pattern)) and is_closed


def is_allowed(image: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns fits; without a pattern every image is allowed."""
    known = tuple(patterns)
    return not known or any(_compiled(pattern).fullmatch(image) for pattern in known)


def registry_of(image: str) -> str:
    """The host, with its port if it has one, that the image is pulled from."""
    first, slash, _ = image.partition("/")
    is_host = slash and (first == "localhost" or "." in first or ":" in first)
    return first.lower() if is_host else DEFAULT_REGISTRY


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """A name without tag and digest stands for all of them; a star for anything."""
    text = ".*".join(re.escape(part) for part in pattern.split("*"))
    if not pattern.endswith("*") and not _HAS_VERSION.search(pattern):
        text += r"(?::[^/@]+)?(?:@[^/@]+)?"
    return re.compile(text)
