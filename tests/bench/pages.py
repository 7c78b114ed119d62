"""The overview with 200 policies and 100,000 tasks, compared with a page with nothing on it."""

from dataclasses import dataclass

from tests.bench.installation import result_of


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
    return Figure(**result_of("tests.bench.pages_installation"))
