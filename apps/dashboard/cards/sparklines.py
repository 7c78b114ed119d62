"""Small curves in the lines of a list."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from apps.dashboard.cards.words import duration_text
from apps.usage.selectors.usage_history import HOURS

# The curve's own units, as in its template; a little is left free above and below.
WIDTH = 96
HEIGHT = 24
MARGIN = 2


def span_words(seconds: float, *, hours: int = HOURS) -> str:
    """How much time a curve covers: `24 hours`, `7 days`, or less where there is no more."""
    if seconds < hours * 3600:
        return duration_text(seconds)
    return f"{hours} hours" if hours <= HOURS else f"{hours // 24} days"


@dataclass(frozen=True, slots=True)
class Sparkline:
    """One curve: `line` and `area` are paths; nothing held is a line at the bottom."""

    pk: int
    line: str
    area: str

    @classmethod
    def of(cls, pk: int, values: Sequence[int]) -> Self:
        """Of at least two values, oldest first; the largest reaches the top."""
        highest = max(*values, 1)
        step = WIDTH / (len(values) - 1)
        height = HEIGHT - 2 * MARGIN
        points = [
            f"{at * step:.4g} {HEIGHT - MARGIN - height * value / highest:.4g}"
            for at, value in enumerate(values)
        ]
        line = f"M{'L'.join(points)}"
        return cls(pk, line, f"{line}V{HEIGHT}H0Z")
