"""Plan to database: conditional writes, so that what changed meanwhile is skipped."""

from apps.allocation.applier.kept_placements import has_kept_placements, kept_placements_apply
from apps.allocation.applier.plan_application import AppliedPlan, apply_plan
from apps.allocation.applier.reason_updates import apply_reasons

__all__ = [
    "AppliedPlan",
    "apply_plan",
    "apply_reasons",
    "has_kept_placements",
    "kept_placements_apply",
]
