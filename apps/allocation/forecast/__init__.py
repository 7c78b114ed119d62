"""When waiting work will probably start: the engine, run forward. An estimate, never a promise.

`expected_start` is pure; `history.load_lengths` reads what it goes by from the database.
"""

from apps.allocation.forecast.arrivals import Arrivals
from apps.allocation.forecast.estimating import (
    Basis,
    Estimate,
    NoEstimate,
    Why,
    expected_start,
)
from apps.allocation.forecast.lengths import Lengths

__all__ = ["Arrivals", "Basis", "Estimate", "Lengths", "NoEstimate", "Why", "expected_start"]
