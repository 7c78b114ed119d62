"""GPUs that policies held in the last hours and days.

Up to a day from the attempts themselves, in fine steps; longer times from the sums of each hour.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet, Sum

from apps.policies.models import Policy
from apps.tasks.models import Attempt, PastTier
from apps.usage.models import PolicyHour
from apps.usage.selectors.bookings import MS, bookings_of, hour_of
from apps.usage.selectors.current_usage import GPU
from apps.usage.selectors.labels import UsageGroup

HOURS = 24
HOUR = timedelta(hours=1)
# What the overview and the page of a policy offer.
SPANS = (3, HOURS, 7 * 24, 30 * 24)
STEPS = 96
# A line is at least this long, however young the installation is.
LEAST = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class UsageHistory:
    """Means of equal stretches of time, oldest first; `at` are their ends, the last one is now.

    Thousandths of GPU. `mean` is that of the whole time, `highest` the largest of `values`.
    """

    began: datetime
    at: tuple[datetime, ...]
    values: tuple[int, ...]

    @property
    def mean(self) -> int:
        return round(sum(self.values) / len(self.values))

    @property
    def highest(self) -> int:
        return max(self.values)


@dataclass(frozen=True, slots=True)
class SplitHistory:
    """The same, split: `values` by policy, pool or tier, each as long as `at`."""

    began: datetime
    at: tuple[datetime, ...]
    values: Mapping[Any, tuple[int, ...]]


def usage_history(
    policy_ids: Iterable[int], *, until: datetime, hours: int, steps: int = STEPS
) -> UsageHistory:
    """What these policies held together in the last `hours`."""
    began = history_start(until=until, hours=hours)
    own = usage_history_by(
        UsageGroup.POLICY, policy_ids, until=until, hours=hours, steps=steps
    ).values
    return UsageHistory(
        began=began,
        at=step_ends(began, until, steps),
        values=tuple(round(sum(values)) for values in zip([0] * steps, *own.values(), strict=True)),
    )


def usage_history_by(
    by: UsageGroup,
    policy_ids: Iterable[int],
    *,
    until: datetime,
    hours: int,
    steps: int = STEPS,
) -> SplitHistory:
    """What these policies held in the last `hours`, in two to six queries.

    Args:
        by: `POLICY` (each itself, without those below it), `POOL` or `TIER`.
    """
    began = history_start(until=until, hours=hours)
    rows = overlapping_attempts(policy_ids, began=began, until=until)
    stretches: Iterable[Stretch]
    if hours > HOURS:
        stretches = _hour_stretches(by, policy_ids, began=began, until=until)
    elif by is UsageGroup.TIER:
        stretches = _tier_stretches(rows, began)
    else:
        column = "pool" if by is UsageGroup.POOL else "policy"
        stretches = rows.values_list(
            column, "request", "replicas", "allocated_at", "ended_at"
        ).iterator()
    sums = stretch_sums(stretches, began=began, until=until, steps=steps)
    values = {key: tuple(round(one) for one in values) for key, values in sums.items()}
    return SplitHistory(began, step_ends(began, until, steps), values)


def step_ends(began: datetime, until: datetime, steps: int) -> tuple[datetime, ...]:
    return tuple(began + (until - began) * (step + 1) / steps for step in range(steps))


def history_start(*, until: datetime, hours: int) -> datetime:
    """`hours` ago, or when the first attempt of all began: of the time before, nothing is known."""
    # Their ids are in the order in which attempts were made.
    first = Attempt.objects.order_by("pk").values_list("allocated_at", flat=True).first()
    longest = until - timedelta(hours=hours)
    return longest if first is None else max(longest, min(first, until - LEAST))


def usage_of_each(
    policy_ids: Iterable[int], *, until: datetime, hours: int, steps: int
) -> dict[int, list[int]]:
    """What each of these policies held together with those below it.

    Returns:
        Thousandths of GPU as means of equal stretches of time, oldest first.
    """
    parents = dict(Policy.objects.filter(removed_at__isnull=True).values_list("pk", "parent_id"))
    sums = {pk: [0] * steps for pk in policy_ids}
    own = usage_history_by(UsageGroup.POLICY, parents, until=until, hours=hours, steps=steps)
    for pk, values in own.values.items():
        at: int | None = pk
        while at is not None:
            if at in sums:
                sums[at] = [a + b for a, b in zip(sums[at], values, strict=True)]
            at = parents.get(at)
    return sums


def overlapping_attempts(
    policy_ids: Iterable[int], *, began: datetime, until: datetime
) -> QuerySet[Attempt]:
    """What held something between the two moments."""
    return Attempt.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=began),
        policy__in=list(policy_ids),
        allocated_at__lt=until,
    ).order_by()


# Key, request, replicas, and from when until when; None: it goes on.
Stretch = tuple[Any, Mapping[str, float], int, datetime, datetime | None]


def _hour_stretches(
    by: UsageGroup, policy_ids: Iterable[int], *, began: datetime, until: datetime
) -> Iterator[Stretch]:
    """The mean of each hour: as it is summed up, and of what is not summed up yet."""
    policies, first = list(policy_ids), hour_of(began)
    hours = PolicyHour.objects.filter(policy__in=policies, at__gte=first, at__lt=until)
    sums = hours.order_by().values_list(by.value, "at").annotate(Sum("held"))
    unbooked = overlapping_attempts(policies, began=began, until=until).filter(is_booked=False)
    bookings = (one for attempt in bookings_of(unbooked, until=until) for one in attempt.bookings)
    more = ((getattr(one, by.value), one.at, one.sums.get("held", 0)) for one in bookings)
    for key, at, held in (*sums, *more):
        if first <= at < until:
            end = min(at + HOUR, until)
            yield key, {GPU: held / max((end - at) / MS, 1)}, 1, at, end


def _tier_stretches(rows: QuerySet[Attempt], began: datetime) -> Iterator[Stretch]:
    """Each attempt once per tier that it had."""
    past: dict[Any, list[tuple[str, datetime]]] = defaultdict(list)
    changes = PastTier.objects.filter(attempt__in=rows, until__gt=began).order_by("until", "pk")
    for attempt, tier, until in changes.values_list("attempt", "tier", "until"):
        past[attempt].append((tier, until))
    found = rows.values_list("pk", "tier", "request", "replicas", "allocated_at", "ended_at")
    for pk, last, request, replicas, allocated, ended in found.iterator():
        at = allocated
        for tier, until in past.get(pk, ()):
            if until > at:
                yield tier, request, replicas, at, until
                at = until
        yield last, request, replicas, at, ended


def stretch_sums(
    stretches: Iterable[Stretch], *, began: datetime, until: datetime, steps: int
) -> dict[Any, list[float]]:
    """Means of thousandths of GPU by key, in equal stretches of time."""
    step_s = (until - began).total_seconds() / steps
    sums: dict[Any, list[float]] = defaultdict(lambda: [0.0] * steps)
    for key, request, replicas, allocated, ended in stretches:
        gpu = request.get(GPU, 0) * replicas
        if gpu:
            start = max((allocated - began).total_seconds(), 0.0) / step_s
            stop = min(((ended or until) - began).total_seconds() / step_s, float(steps))
            _add(sums[key], gpu, start, stop)
    return sums


def _add(sums: list[float], gpu: float, start: float, stop: float) -> None:
    """Book `gpu` from `start` to `stop`, both counted in steps."""
    first, last = int(start), min(int(stop), len(sums) - 1)
    for step in range(first, last + 1):
        sums[step] += gpu * max(min(stop, step + 1) - max(start, step), 0.0)


def as_gpu(values: Sequence[int]) -> list[float]:
    """Thousandths as numbers for a plot."""
    return [one / 1000 for one in values]
