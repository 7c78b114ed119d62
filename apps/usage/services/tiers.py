"""Keeps the tiers of live attempts as pages label them, with the time of each change."""

from apps.core import clock
from apps.tasks.services.attempts.tiers import tiers_change
from apps.usage.selectors.current_usage import amounts_of, live_attempts, tiers_of


def tiers_update() -> int:
    """Record what has changed since the last run. Returns how many attempts changed."""
    return tiers_change(tiers_of(live_attempts(), amounts_of()), at=clock.now())
