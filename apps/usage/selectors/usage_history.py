"""GPUs that policies held in the last hours and days, all of them or those in one place.

Up to a day from the attempts themselves, in fine steps; longer times from the sums of each hour or,
of a queue, of each day.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Min, Q, QuerySet, Sum, Value

from apps.policies.models import Policy
from apps.tasks.models import Attempt, PastTier
from apps.usage.models import Measures, PolicyHour, QueueDay
from apps.usage.selectors.bookings import MS, bookings_of, hour_of
from apps.usage.selectors.current_usage import GPU
from apps.usage.selectors.labels import UsageGroup

HOURS = 24
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
# What charts offer.
SPANS = (3, HOURS, 7 * 24, 30 * 24)
STEPS = 96
# A line is at least this long, however young the installation is.
LEAST = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class HistoryScope:
    """What these policies hold: all of it, or what is in one pool, queue or node."""

    policies: Collection[int]
    pool: int | None = None
    queue: int | None = None
    node: int | None = None

    @property
    def spans(self) -> tuple[int, ...]:
        """In hours. There are no sums of nodes, and attempts are removed sooner or later."""
        return SPANS if self.node is None else SPANS[:2]

    def condition(self, path: str = "", node: str = "members__node") -> Q:
        """On attempts, or on what `path` leads from to them and `node` to the node."""
        wanted = {f"{path}policy__in": self.policies}
        places = {f"{path}pool": self.pool, f"{path}queue": self.queue, node: self.node}
        return Q(**wanted, **{name: pk for name, pk in places.items() if pk is not None})

    def sums(self) -> "QuerySet[Any]":
        """Its hours, or its days."""
        whole = replace(self, node=None)
        return self.table._default_manager.filter(whole.condition()).order_by()

    @property
    def table(self) -> type[Measures]:
        """Queues are summed up by day only."""
        return PolicyHour if self.queue is None else QueueDay

    def start_of(self, at: datetime) -> datetime:
        """The beginning of the row of sums that contains a moment."""
        return hour_of(at) if self.queue is None else hour_of(at).replace(hour=0)

    @property
    def step(self) -> timedelta:
        """What a row of sums stands for."""
        return HOUR if self.queue is None else DAY

    def overlapping(self, *, began: datetime, until: datetime) -> QuerySet[Attempt]:
        """What held something there between two moments: on a node, once for each member."""
        rows = overlapping_attempts(self.policies, began=began, until=until)
        return rows.filter(self.condition())

    @property
    def replicas(self) -> Any:
        """How many members each of those rows stands for."""
        return F("replicas") if self.node is None else Value(1)


@dataclass(frozen=True, slots=True)
class SplitHistory:
    """Means of equal stretches of time, oldest first; `at` are their ends, the last one is now.

    `values` are thousandths of GPU by policy, pool, tier or queue, each as long as `at`.
    """

    began: datetime
    at: tuple[datetime, ...]
    values: Mapping[Any, tuple[int, ...]]


def usage_history(
    by: UsageGroup,
    scope: HistoryScope,
    *,
    until: datetime,
    hours: int,
    steps: int = STEPS,
    began: datetime | None = None,
) -> SplitHistory:
    """What was held in the last `hours`, in two to seven queries.

    Args:
        by: `POLICY` (each itself, without those below it), `POOL`, `TIER` or `QUEUE`. Longer times
            of a queue are known by `POLICY` and `QUEUE` only, other ones not by `QUEUE`.
        hours: one of the scope's `spans`.
        began: where it begins; None: where `history_start` says.
    """
    began = began or history_start(scope, until=until, hours=hours)
    rows = scope.overlapping(began=began, until=until)
    stretches: Iterable[Stretch]
    if hours > HOURS:
        stretches = _summed_stretches(by, scope, began=began, until=until)
    elif by is UsageGroup.TIER:
        stretches = _tier_stretches(rows, scope, began)
    else:
        stretches = rows.values_list(
            by.value, "request", scope.replicas, "allocated_at", "ended_at"
        ).iterator()
    sums = stretch_sums(stretches, began=began, until=until, steps=steps)
    values = {key: tuple(round(one) for one in values) for key, values in sums.items()}
    return SplitHistory(began, step_ends(began, until, steps), values)


def step_ends(began: datetime, until: datetime, steps: int) -> tuple[datetime, ...]:
    return tuple(began + (until - began) * (step + 1) / steps for step in range(steps))


def history_start(scope: HistoryScope, *, until: datetime, hours: int) -> datetime:
    """`hours` ago, or when the first of it began: of the time before, nothing is known.

    That others began earlier is not for everyone to know.
    """
    longest = until - timedelta(hours=hours)
    if scope.sums().filter(at__lt=scope.start_of(longest)).exists():
        return longest
    rows = scope.overlapping(began=longest, until=until)
    first = rows.aggregate(first=Min("allocated_at"))["first"]
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
    began = history_start(HistoryScope(list(sums)), until=until, hours=hours)
    own = usage_history(
        UsageGroup.POLICY,
        HistoryScope(list(parents)),
        until=until,
        hours=hours,
        steps=steps,
        began=began,
    )
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


def _summed_stretches(
    by: UsageGroup, scope: HistoryScope, *, began: datetime, until: datetime
) -> Iterator[Stretch]:
    """The mean of each hour or day: as it is summed up, and of what is not summed up yet."""
    first = scope.start_of(began)
    sums = scope.sums().filter(at__gte=first, at__lt=until).values_list(by.value, "at")
    unbooked = scope.overlapping(began=began, until=until).filter(is_booked=False)
    bookings = (one for attempt in bookings_of(unbooked, until=until) for one in attempt.bookings)
    more = (
        (getattr(one, by.value), scope.start_of(one.at), one.sums.get("held", 0))
        for one in bookings
    )
    for key, at, held in (*sums.annotate(Sum("held")), *more):
        if first <= at < until:
            end = min(at + scope.step, until)
            yield key, {GPU: held / max((end - at) / MS, 1)}, 1, at, end


def _tier_stretches(
    rows: QuerySet[Attempt], scope: HistoryScope, began: datetime
) -> Iterator[Stretch]:
    """Each attempt once per tier that it had."""
    past: dict[Any, list[tuple[str, datetime]]] = defaultdict(list)
    changes = PastTier.objects.filter(attempt__in=rows.values("pk"), until__gt=began)
    for attempt, tier, until in changes.order_by("until", "pk").values_list(
        "attempt", "tier", "until"
    ):
        past[attempt].append((tier, until))
    found = rows.values_list("pk", "tier", "request", scope.replicas, "allocated_at", "ended_at")
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
