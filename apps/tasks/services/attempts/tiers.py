"""Tiers of attempts, as they change while the attempt holds devices."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, AttemptTier
from apps.tasks.models import Attempt, PastTier

BATCH = 1000


def attempt_tiers_set(tiers: Mapping[UUID, AttemptTier], *, at: datetime) -> int:
    """Give live attempts these tiers from `at` on, and keep the ones before.

    Args:
        tiers: by task; attempts that have the tier already, and those that have ended, stay.

    Returns:
        How many have changed.
    """
    tasks, changed = sorted(tiers), 0
    for start in range(0, len(tasks), BATCH):
        with transaction.atomic():
            changed += _change(tiers, tasks[start : start + BATCH], at)
    return changed


def _change(tiers: Mapping[UUID, AttemptTier], tasks: list[UUID], at: datetime) -> int:
    rows = Attempt.objects.filter(task__in=tasks, state__in=LIVE_ATTEMPT_STATES).order_by("pk")
    wrong = [pk for pk, task, tier in rows.values_list("pk", "task", "tier") if tier != tiers[task]]
    # An attempt that is being ended is locked, and keeps its tier.
    has_locks = connection.features.has_select_for_update_skip_locked
    locked = rows.select_for_update(skip_locked=True, no_key=True) if has_locks else rows
    found = locked.filter(pk__in=wrong).only("task_id", "tier", "booked_until")
    # Another run may have been faster.
    changed = [one for one in found if one.tier != tiers[one.task_id]]
    PastTier.objects.bulk_create(
        # What is summed up keeps its tier, whatever the clock says.
        PastTier(attempt=one, tier=one.tier, until=max(at, one.booked_until or at))
        for one in changed
    )
    for tier in AttemptTier:
        of_tier = [one.pk for one in changed if tiers[one.task_id] == tier]
        Attempt.objects.filter(pk__in=of_tier).update(tier=tier)
    return len(changed)
