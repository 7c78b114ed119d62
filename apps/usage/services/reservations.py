"""Records how much policies reserve, whenever that has changed."""

from collections.abc import Collection
from datetime import datetime

from apps.core import clock
from apps.usage.models import ReservedSince
from apps.usage.selectors.current_usage import GPU, amounts_of, reservations_of
from apps.usage.selectors.reservations import latest


def reservations_record(
    *, now: datetime | None = None, policies: Collection[int] | None = None
) -> int:
    """Compare reservations with what was recorded last. Returns how many have changed.

    Args:
        policies: only these; None: all, also those that were removed and reserve nothing now.
    """
    if now is None and clock.is_in_doubt():
        return 0
    at = now or clock.now()
    current = {
        policy: amounts.get(GPU, 0)
        for policy, amounts in reservations_of(amounts_of(policies)).items()
    }
    rows = ReservedSince.objects.all()
    if policies is not None:
        rows = rows.filter(policy__in=policies)
    # Of a clock that was ahead.
    rows.filter(at__gt=at + clock.MOST_AHEAD).delete()
    known = dict(latest(rows).values_list("policy", "milli"))
    made = [
        ReservedSince(policy_id=policy, at=at, milli=current.get(policy, 0))
        for policy in sorted({*current, *known})
        if current.get(policy, 0) != known.get(policy, 0)
    ]
    return len(ReservedSince.objects.bulk_create(made))
