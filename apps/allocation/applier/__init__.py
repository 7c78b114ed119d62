"""Plan to database: conditional writes, so that what changed meanwhile is skipped."""

from apps.allocation.applier.carrying import Applied, apply_plan
from apps.allocation.applier.waiting import apply_reasons

__all__ = ["Applied", "apply_plan", "apply_reasons"]
