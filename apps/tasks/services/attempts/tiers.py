"""Tiers of attempts, as they change while the attempt holds devices."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from django.db import transaction

from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, Tier
from apps.tasks.models import Attempt, PastTier

BATCH = 1000


def tiers_change(tiers: Mapping[UUID, Tier], *, at: datetime) -> int:
    """Give live attempts these tiers from `at` on, and keep the ones before.

    Args:
        tiers: by attempt; those that have the tier already, and those that have ended, stay.

    Returns:
        How many have changed.
    """
    ids, changed = sorted(tiers), 0
    for start in range(0, len(ids), BATCH):
        with transaction.atomic():
            changed += _change(tiers, ids[start : start + BATCH], at)
    return changed


def _change(tiers: Mapping[UUID, Tier], ids: list[UUID], at: datetime) -> int:
    # An attempt that is being ended is locked, and keeps its tier.
    rows = Attempt.objects.select_for_update(skip_locked=True, no_key=True)
    found = rows.filter(pk__in=ids, state__in=LIVE_ATTEMPT_STATES).order_by("pk")
    changed = [one for one in found.only("tier") if one.tier != tiers[one.pk]]
    PastTier.objects.bulk_create(
        PastTier(attempt=one, tier=one.tier, until=at) for one in changed
    )
    for tier in Tier:
        of_tier = [one.pk for one in changed if tiers[one.pk] == tier]
        Attempt.objects.filter(pk__in=of_tier).update(tier=tier)
    return len(changed)
