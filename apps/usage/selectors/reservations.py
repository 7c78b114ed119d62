"""How much of what policies had reserved no task used: exact, as both are recorded."""

from collections import defaultdict
from datetime import datetime

from django.db.models import Min, OuterRef, Q, QuerySet, Subquery

from apps.core import clock
from apps.policies.models import Policy
from apps.usage.models import PolicyDay, ReservedSince
from apps.usage.selectors.bookings import to_ms
from apps.usage.selectors.periods import UsagePeriod


def reserved_in(period: UsagePeriod, is_wanted: Q) -> dict[int, int] | None:
    """Per policy what it had reserved up to now, in thousandths of GPU times milliseconds.

    None where it was not recorded yet in a part of the period.

    Args:
        is_wanted: on `policy`.
    """
    end = min(period.end, clock.now())
    first = ReservedSince.objects.aggregate(first=Min("at"))["first"]
    if first is None or first >= end:
        return None
    if first > period.start and PolicyDay.objects.filter(at__lt=period.day_of(first)).exists():
        return None
    rows = ReservedSince.objects.filter(is_wanted)
    concerned = rows.filter(at__gte=period.start, at__lt=end)
    concerned |= latest(rows.filter(at__lt=period.start))
    rows = concerned.order_by("policy", "at", "pk")
    history: defaultdict[int, list[tuple[datetime, int]]] = defaultdict(list)
    for policy, at, milli in rows.values_list("policy", "at", "milli"):
        history[policy].append((max(at, period.start), milli))
    found = {
        policy: sum(
            milli * (to_ms(until) - to_ms(at))
            for (at, milli), (until, _) in zip(changes, [*changes[1:], (end, 0)], strict=True)
        )
        for policy, changes in history.items()
    }
    return {policy: reserved for policy, reserved in found.items() if reserved}


def latest(rows: QuerySet[ReservedSince]) -> QuerySet[ReservedSince]:
    """Of each policy the last of these rows, if it has any."""
    of_policy = rows.filter(policy=OuterRef("pk")).order_by("-at", "-pk").values("pk")[:1]
    last = Policy.objects.order_by().annotate(last=Subquery(of_policy)).values("last")
    return ReservedSince.objects.filter(pk__in=last.filter(last__isnull=False))


def policies_above_others() -> dict[int, bool]:
    """The policies that have others below them, and whether nothing is above them."""
    above = Policy.objects.exclude(parent=None).values("parent")
    rows = Policy.objects.filter(pk__in=above).values_list("pk", "parent_id")
    return {pk: parent is None for pk, parent in rows}
