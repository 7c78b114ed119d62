"""What somebody may have meant, for names that are not known."""

import difflib
from collections.abc import Iterable

# Comparing grows with the name, and nobody needs to read a whole one back.
NAME_CHARS = 100


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one; empty where none is known."""
    near = difflib.get_close_matches(name[:NAME_CHARS], list(known), n=1, cutoff=0.0)
    return near[0] if near else ""


def shortened(name: str, *, most: int = NAME_CHARS) -> str:
    """A name that somebody sent, as an error repeats it."""
    return name if len(name) <= most else f"{name[: most - 3]}..."
