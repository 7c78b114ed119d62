"""The overview with 200 policies and 100,000 tasks, beside a page with nothing on it."""

from dataclasses import dataclass

from tests.bench.installed import answer_of


@dataclass(frozen=True, slots=True)
class Figure:
    """Median answer times in milliseconds, and queries of the overview."""

    policies: int
    tasks: int
    overview_ms: float
    empty_ms: float
    few: int
    many: int


def measure() -> Figure:
    """Ask both pages in turns."""
    return Figure(**answer_of("tests.bench.pages_installation"))
