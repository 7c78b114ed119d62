"""Words on a page, next to the characters that are random in each answer.

A CSRF token of 64 characters holds "Dev" on one page of 4,000, and a UUID holds a number of four
digits on one of 5,000. A test that a page does not name something must not look there.
"""

import re

# Values of CSRF tokens, nonces, request numbers and cookies.
_TOKENS = re.compile(
    r"""csrfmiddlewaretoken" value="[^"]*"|["']?(?:data-csrf|csrf|csrftoken|X-CSRFToken)["']?"""
    r"""\s*[=:]\s*["']?[\w-]+|nonce[-=]"?[\w+/=-]*|["']?(?:request_id|X-Request-ID)["']?:\s*["']?[\w-]+""",
    re.IGNORECASE,
)
# UUIDs, and digests such as the version of a card.
_KEYS = re.compile(
    r"(?<![0-9a-f])(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,})(?![0-9a-f])"
)
# No random characters hold a given word of this length in the lifetime of this repository.
_LONG = 8


def without_tokens(page: str) -> str:
    """The page without what differs between two answers to the same request."""
    return _TOKENS.sub("", page)


def without_random(page: str) -> str:
    """The page without tokens, UUIDs and digests."""
    return _KEYS.sub("", without_tokens(page))


def words_on(page: str, *words: str) -> list[str]:
    """Those of the words that the page holds; short ones outside of random characters only."""
    lasting = without_random(page)
    return [word for word in words if word in (page if len(word) >= _LONG else lasting)]
