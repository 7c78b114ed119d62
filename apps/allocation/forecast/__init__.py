"""When waiting work will probably start: the engine, run forward. An estimate, never a promise.

`expected_start` is pure; `history.load_run_times` reads its basis from the database.
"""

from apps.allocation.forecast.arrivals import Arrivals
from apps.allocation.forecast.estimates import (
    Basis,
    Estimate,
    NoEstimate,
    NoEstimateReason,
    expected_start,
)
from apps.allocation.forecast.run_times import RunTimes

__all__ = [
    "Arrivals",
    "Basis",
    "Estimate",
    "NoEstimate",
    "NoEstimateReason",
    "RunTimes",
    "expected_start",
]
