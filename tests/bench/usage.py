"""Reports of usage over a year of sums, and the booking of attempts that ended."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.bench.installation import result_of


@dataclass(frozen=True, slots=True)
class Figure:
    """Median times in milliseconds: of a month's report by group, of its page and of an empty one.

    `hour_ms` is the time to book an hour of all live attempts, `booked_ms` that to book `attempts`,
    `updated_ms` that of one UPDATE of the same rows.
    """

    rows: int
    live: int
    old_attempts: int
    samples: int
    report_ms: Mapping[str, float]
    page_ms: float
    empty_ms: float
    queries: int
    hour_ms: float
    attempts: int
    booked_ms: float
    updated_ms: float


def measure() -> Figure:
    """All of it in one process of its own."""
    return Figure(**result_of("tests.bench.usage_installation"))
