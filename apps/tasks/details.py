"""Details of tasks and attempts, shortened to their columns."""

DETAIL_CHARS = 2000
CUT = " [...] "


def shorten(words: str) -> str:
    """At most DETAIL_CHARS characters of it.

    Cut in the middle: the subject is at the beginning, and the cause, where a program wrote it, at
    the end.
    """
    if len(words) <= DETAIL_CHARS:
        return words
    beginning = DETAIL_CHARS // 2
    end = DETAIL_CHARS - beginning - len(CUT)
    return words[:beginning] + CUT + words[-end:]
