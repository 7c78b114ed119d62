"""Patterns of the images that a pool allows; pure."""

import re
from collections.abc import Iterable
from functools import lru_cache

from apps.core.images import IMAGE_LENGTH, REGISTRY_ALIASES, ImageName, split_registry

REGISTRY_LENGTH = 262
# As `ImageName.registry` has it.
_SMALL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ALIASES = "|".join(map(re.escape, REGISTRY_ALIASES))
REGISTRY = (
    rf"(?!(?:{_ALIASES})\Z)(?=localhost\Z|[^:]*[.]|.*:)"
    rf"{_SMALL}(?:\.{_SMALL})*(?::[0-9]{{1,5}})?"
)
_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@*-]*")
_HAS_VERSION = re.compile(r"[:@][^/]*$")
_TAG_OF_DIGEST = re.compile(r":[^/@]*@")


def is_pattern(pattern: str) -> bool:
    """Whether a pool's list may contain it: a star is never in the registry's own name."""
    if pattern == "*":
        return True
    first, slash, _ = pattern.partition("/")
    is_closed = "*" not in first or (not slash and "*" not in pattern)
    return len(pattern) <= IMAGE_LENGTH and bool(_PATTERN.fullmatch(pattern)) and is_closed


def is_allowed(image: ImageName, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns fits; without a pattern every image is allowed."""
    known = tuple(patterns)
    return not known or any(_compile(pattern).fullmatch(str(image)) for pattern in known)


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> re.Pattern[str]:
    """A name without tag and digest matches all of them; a star matches anything.

    Qualified as names of images are.
    """
    qualified = pattern if pattern == "*" else "/".join(split_registry(pattern))
    qualified = _TAG_OF_DIGEST.sub("@", qualified)
    text = ".*".join(re.escape(part) for part in qualified.split("*"))
    if not pattern.endswith("*") and not _HAS_VERSION.search(pattern):
        text += r"(?::[^/@]+)?(?:@[^/@]+)?"
    return re.compile(text)
