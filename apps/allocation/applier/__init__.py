"""Plan to database: conditional writes, so that what changed meanwhile is skipped."""

from apps.allocation.applier.placing import Applied, apply_places
from apps.allocation.applier.waiting import apply_reasons

__all__ = ["Applied", "apply_places", "apply_reasons"]
