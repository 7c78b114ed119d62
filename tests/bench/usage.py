"""Reports of usage over a year of sums, and the booking of attempts that ended."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.bench.installation import result_of


@dataclass(frozen=True, slots=True)
class Figure:
    """Median times in milliseconds: of a month's report by group, of its page and of an empty one.

    `booked_ms` is the time to book `attempts`, `updated_ms` that of one UPDATE of the same rows.
    """

    rows: int
    live: int
    report_ms: Mapping[str, float]
    page_ms: float
    empty_ms: float
    queries: int
    attempts: int
    booked_ms: float
    updated_ms: float


def measure() -> Figure:
    """All of it in one process of its own."""
    return Figure(**result_of("tests.bench.usage_installation"))
