"""Suggestions for unknown names."""

import difflib
from collections.abc import Iterable

# The cost of comparing grows with the name, and an error need not repeat a long one whole.
NAME_CHARS = 100
# Between 0 and 1, as difflib has it: below, a suggestion only misleads.
ALIKE = 0.5


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one; empty where none is like it."""
    near = difflib.get_close_matches(name[:NAME_CHARS], list(known), n=1, cutoff=ALIKE)
    return near[0] if near else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name; empty where none is like it."""
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def shorten(name: str, *, most: int = NAME_CHARS) -> str:
    """A name from a request, as an error repeats it."""
    return name if len(name) <= most else f"{name[: most - 3]}..."
