"""Why tasks wait, in the words that a reader may read: the same for REST and pages."""

from apps.allocation.explaining.expecting import ExpectedStart, expected_start
from apps.allocation.explaining.explained import (
    Explained,
    Past,
    explained,
    past_reasons,
    reasons_now,
)
from apps.allocation.explaining.names import Names
from apps.allocation.explaining.suspension import SUSPENDED, is_suspended
from apps.allocation.explaining.telling import Told, tell, tell_all

__all__ = [
    "SUSPENDED",
    "ExpectedStart",
    "Explained",
    "Names",
    "Past",
    "Told",
    "expected_start",
    "explained",
    "is_suspended",
    "past_reasons",
    "reasons_now",
    "tell",
    "tell_all",
]
