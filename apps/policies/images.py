"""Names of images, and the patterns of those that a pool allows; pure.

The node checks names by the same grammar (`apps/execution/node/checks.py`).
"""

import re
from collections.abc import Iterable
from functools import lru_cache

LENGTH = 500
REGISTRY_LENGTH = 262
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_NAME = re.compile(
    rf"(?:{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
# As `registry_of` answers it.
_SMALL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
REGISTRY = rf"(?=localhost\Z|[^:]*[.]|.*:){_SMALL}(?:\.{_SMALL})*(?::[0-9]{{1,5}})?"
# What a runtime takes for an image that it knows by its number: it would pass by every pattern.
_NUMBER = re.compile(r"(?:sha256:)?[0-9a-f]{64}")
_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@*-]*")
_HAS_VERSION = re.compile(r"[:@][^/]*$")
DEFAULT_REGISTRY = "docker.io"


def is_image(name: str) -> bool:
    """Whether it is `[host[:port]/]path[:tag][@sha256:digest]`, and no file or number."""
    return len(name) <= LENGTH and bool(_NAME.fullmatch(name)) and not _NUMBER.fullmatch(name)


def is_pattern(pattern: str) -> bool:
    """Whether it can stand in a pool's list: a star never in the registry's own name."""
    if pattern == "*":
        return True
    first, slash, _ = pattern.partition("/")
    is_closed = "*" not in first or (not slash and "*" not in pattern)
    return len(pattern) <= LENGTH and bool(_PATTERN.fullmatch(pattern)) and is_closed


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
