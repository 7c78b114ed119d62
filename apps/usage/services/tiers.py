"""Keeps the tiers of live attempts as pages label them, with the time of each change."""

from apps.core import clock
from apps.tasks.services.attempts.tiers import attempt_tiers_set
from apps.usage.selectors.current_usage import amounts_of, live_attempts, tiers_of


def tiers_refresh() -> int:
    """Record what has changed since the last run. Returns how many attempts changed."""
    return attempt_tiers_set(tiers_of(live_attempts(), amounts_of()), at=clock.now())
