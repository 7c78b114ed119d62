"""Preferences of people."""

import re
from collections.abc import Sequence
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import BadInput
from apps.core.recorders import event_record

PATTERNS = 20
PATTERN_LENGTH = 64
PATTERN_STARS = 2
# The most removed and added patterns in an audit entry, which is never removed.
MOST_LISTED = 10
_PATTERN = re.compile(r"[A-Za-z0-9_*?]+")


def preferences_change(*, user: User, redacted_variables: list[str]) -> User:
    """Change which variables of the user's tasks are shown to nobody: at once, in old tasks too.

    Output that was stored before stays as it is.

    Raises:
        BadInput: naming the field.
    """
    before = user.redacted_variables
    patterns = patterns_clean(redacted_variables, stored=before)
    if patterns == before:
        return user
    with transaction.atomic():
        User.objects.filter(pk=user.pk).update(redacted_variables=patterns)
        event_record(
            "person.preferences",
            actor=user,
            object_type="user",
            object_id=user.pk,
            data={
                "name": user.username,
                "before": {"redacted_variables": _only_in(before, without=patterns)},
                "after": {"redacted_variables": _only_in(patterns, without=before)},
            },
        )
    user.redacted_variables = patterns
    return user


def _only_in(patterns: list[str], *, without: list[str]) -> list[str]:
    """The first of those that the other list does not have, and how many more there are."""
    others = set(without)
    found = [one for one in patterns if one not in others]
    more = len(found) - MOST_LISTED
    return [*found[:MOST_LISTED], *([f"and {more} more"] if more > 0 else [])]


def patterns_clean(given: Any, *, stored: Sequence[str] = ()) -> list[str]:
    """The patterns, each once.

    Args:
        stored: the stored ones. They may be older than the bounds, and are kept as they are.

    Raises:
        BadInput: it is no list of patterns, or of too many.
    """
    words = (
        f"up to {PATTERNS} names of variables of up to {PATTERN_LENGTH} characters; "
        f"* (at most {PATTERN_STARS} in each) and ? stand for others"
    )
    is_list = isinstance(given, list) and len(given) <= max(PATTERNS, len(stored))
    if not is_list or not all(one in stored or _is_pattern(one) for one in given):
        raise BadInput(f"redacted_variables: {words}.", fields={"redacted_variables": words})
    return list(dict.fromkeys(given))


def _is_pattern(given: object) -> bool:
    return (
        isinstance(given, str)
        and len(given) <= PATTERN_LENGTH
        and given.count("*") <= PATTERN_STARS
        and bool(_PATTERN.fullmatch(given))
    )
