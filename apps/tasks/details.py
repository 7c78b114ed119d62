"""Words about tasks and attempts, as long as their columns hold."""

DETAIL_CHARS = 2000
CUT = " [...] "


def shortened(words: str) -> str:
    """At most DETAIL_CHARS characters of it.

    Cut in the middle: what it is about stands at the beginning, and the cause, where a program
    wrote it, at the end.
    """
    if len(words) <= DETAIL_CHARS:
        return words
    beginning = DETAIL_CHARS // 2
    end = DETAIL_CHARS - beginning - len(CUT)
    return words[:beginning] + CUT + words[-end:]
