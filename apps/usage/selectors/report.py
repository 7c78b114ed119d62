"""Usage of a period, as far as a user may see it, next to the period before."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Q, Sum

from apps.access.selectors import policies_managed_by, policies_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core import clock
from apps.policies.models import Queue
from apps.tasks.lifecycle.states import AttemptTier
from apps.tasks.models import Attempt, DeviceUse
from apps.usage.models import (
    MEASURES,
    WAIT_BUCKETS,
    Measures,
    OwnerDay,
    PolicyDay,
    PolicyHour,
    QueueDay,
)
from apps.usage.selectors.bookings import Booking, bookings_of
from apps.usage.selectors.labels import Labels, UsageGroup, labels_of
from apps.usage.selectors.periods import DAY, UsagePeriod, bad_query
from apps.usage.selectors.rates import currency
from apps.usage.selectors.reservations import policies_above_others, reserved_in
from apps.usage.selectors.use_bookings import bookings_of_uses

HOUR = timedelta(hours=1)
# Shorter periods are shown by hour.
HOURLY_DAYS = 2
MOST_LINES = 1000
# Measures count thousandths of a GPU times milliseconds: so many are one GPU second or hour.
PER_GPU_S = 1_000_000
PER_GPU_H = 3600 * PER_GPU_S
# Usage that counts for something whose name the reader may not see.
OTHERS = 0
OTHER_OWNERS = "Other users"
HIDDEN = "Not visible to you"


_TABLES: Mapping[UsageGroup, type[Measures]] = {
    UsageGroup.PROFILE: QueueDay,
    UsageGroup.QUEUE: QueueDay,
    UsageGroup.OWNER: OwnerDay,
}


@dataclass(slots=True)
class UsageSums:
    """Measures by name, and what was held by tier and by step: the beginning of a day or hour."""

    measures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MEASURES, 0))
    tiers: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    steps: defaultdict[datetime, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, tier: str, measures: Mapping[str, int]) -> None:
        for name, value in measures.items():
            self.measures[name] += value
        self.tiers[tier] += measures.get("held", 0)

    def add_all(self, other: "UsageSums", *, sign: int = 1) -> None:
        pairs: tuple[tuple[dict[Any, int], Mapping[Any, int]], ...] = (
            (self.measures, other.measures),
            (self.tiers, other.tiers),
            (self.steps, other.steps),
        )
        for mine, theirs in pairs:
            for key, value in theirs.items():
                mine[key] = mine.get(key, 0) + sign * value

    def __getitem__(self, measure: str) -> int:
        return self.measures[measure]

    @property
    def waited_s(self) -> float | None:
        """The mean of the placements; none without any."""
        admitted = self["admitted"]
        return self["waited_ms"] / 1000 / admitted if admitted else None

    def waited_at_most_s(self, share: float) -> float | None:
        """The bound of the bucket within which this share of the placements had waited."""
        wanted, counted = self["admitted"] * share, 0
        for name, most_s in WAIT_BUCKETS.items():
            counted += self[name]
            if counted and counted >= wanted:
                return most_s
        return None


@dataclass(frozen=True, slots=True)
class Reserved:
    """What a policy had reserved, and how much of it no task held; units of `Measures`."""

    held: int
    unused: int


@dataclass(slots=True)
class UsageLine:
    """One line: `key` identifies what it is for, `depth` is that of a policy below others.

    `reserved` is known of policies without others below them, and of topmost ones as a whole.
    """

    key: Any
    label: str
    sums: UsageSums
    before: UsageSums
    parent: Any = None
    depth: int = 0
    reserved: Reserved | None = None


@dataclass(frozen=True, slots=True)
class UsageReport:
    """A report; `total` is that of all lines, each counted once, `step` a day or an hour.

    `currency` is that of costs; empty where nothing has a price. `reserved` is that of all lines.
    """

    period: UsagePeriod
    by: UsageGroup
    step: timedelta
    lines: tuple[UsageLine, ...]
    total: UsageSums
    before: UsageSums
    currency: str = ""
    reserved: Reserved | None = None


def usage_report(
    viewer: User, period: UsagePeriod, by: UsageGroup, *, pool: int | None = None
) -> UsageReport:
    """What the policies that the viewer sees used; administrators see removed ones, too.

    Users who do not manage a policy see their own line of it, and one line for all others.

    Args:
        pool: only this pool; not by profile, queue and owner, whose sums are over all pools.

    Raises:
        BadInput: a pool by profile, queue or owner.
    """
    if pool is not None and not by.has_pools:
        raise bad_query("pool", f"there are no sums of single pools by {by.value}")
    with _consistent_reads():
        scope = _Scope.of(viewer)
        now = _sums_by_key(period, by, scope, pool, has_steps=True)
        before = _sums_by_key(period.before, by, scope, pool, has_steps=False)
        is_by_policy = by is UsageGroup.POLICY and pool is None
        reserved = reserved_in(period, scope.filter()) if is_by_policy else None
        labels = labels_of(by, viewer, {*now, *before, *(reserved or ())})
    total, total_before = _sum_of(now.values()), _sum_of(before.values())
    lines = _lines(now, before, labels, others=OTHER_OWNERS if by is UsageGroup.OWNER else HIDDEN)
    if by is UsageGroup.POLICY:
        lines = _tree(lines)
    everything = _set_reserved(lines, reserved, scope) if reserved is not None else None
    step = _step(period, by)
    return UsageReport(period, by, step, tuple(lines), total, total_before, currency(), everything)


def _set_reserved(
    lines: list[UsageLine], reserved: Mapping[int, int], scope: "_Scope"
) -> Reserved | None:
    """Complete the lines whose whole family the viewer sees; the sum of those on top of others."""
    above, counted = policies_above_others(), dict[Any, Reserved]()
    for line in lines:
        if line.key in above and (scope.policies is not None or not above[line.key]):
            continue
        held = reserved.get(line.key, 0)
        covered = line.sums.tiers[AttemptTier.RESERVED]
        if line.key in above:
            # What the policies below it borrow, its own reservation covers.
            covered += line.sums.tiers[AttemptTier.BORROWED]
        line.reserved = Reserved(held, max(held - covered, 0))
        if line.depth == 0 or scope.policies is not None:
            counted[line.key] = line.reserved
    if not any(one.held for one in counted.values()):
        return None
    return Reserved(
        sum(one.held for one in counted.values()), sum(one.unused for one in counted.values())
    )


def costs_of(policies: Iterable[int], period: UsagePeriod, now: datetime) -> Counter[int]:
    """What each of these policies cost by itself up to now, in millionths of the currency."""
    is_wanted = Q(policy__in=list(policies))
    costs: Counter[int] = Counter()
    with _consistent_reads():
        rows = PolicyDay.objects.filter(is_wanted, at__gte=period.start, at__lt=period.end)
        for policy, cost in rows.values_list("policy").annotate(Sum("cost")).order_by():
            costs[policy] += cost
        for one in _unbooked_attempts(period, is_wanted, now):
            costs[one.policy] += one.sums.get("cost", 0)
    return costs


@dataclass(frozen=True, slots=True)
class _Scope:
    """`policies`: whose usage the viewer sees; `managed`: whose owners have a line each.

    None: all.
    """

    viewer: int
    policies: frozenset[int] | None
    managed: frozenset[int] | None

    @classmethod
    def of(cls, viewer: User) -> "_Scope":
        if is_admin(viewer):
            return cls(viewer.pk, None, None)
        visible = policies_visible_to(viewer).values_list("pk", flat=True)
        managed = policies_managed_by(viewer).values_list("pk", flat=True)
        return cls(viewer.pk, frozenset(visible), frozenset(managed))

    def filter(self) -> Q:
        return Q() if self.policies is None else Q(policy__in=self.policies)

    def owner_key(self, policy: int, owner: int) -> int:
        if self.managed is None or policy in self.managed or owner == self.viewer:
            return owner
        return OTHERS


@contextmanager
def _consistent_reads() -> Iterator[None]:
    """All statements see the same sums, though attempts are booked meanwhile.

    With SQLite a transaction would keep others from writing: an hour that is booked between two
    statements is missing for a moment there.
    """
    if connection.vendor != "postgresql" or connection.in_atomic_block:
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def _sums_by_key(
    period: UsagePeriod, by: UsageGroup, scope: _Scope, pool: int | None, *, has_steps: bool
) -> dict[Any, UsageSums]:
    found: defaultdict[Any, UsageSums] = defaultdict(UsageSums)
    is_wanted = scope.filter() & (Q() if pool is None else Q(pool=pool))
    rows = _table(period, by)._default_manager.filter(
        is_wanted, at__gte=period.start, at__lt=period.end
    )
    of_policy = ("policy",) if by is UsageGroup.OWNER and scope.managed is not None else ()
    keys = tuple(dict.fromkeys((by.column, *of_policy)))

    def sums_of(row: Mapping[str, Any]) -> UsageSums:
        key = row[by.column]
        return found[scope.owner_key(row["policy"], key) if of_policy else key]

    tiers = ("tier",) if by.has_pools else ()
    measures = {f"sum_{name}": Sum(name) for name in MEASURES}
    for row in rows.values(*dict.fromkeys((*keys, *tiers))).annotate(**measures).order_by():
        sums_of(row).add(row.get("tier", ""), {name: row[f"sum_{name}"] for name in MEASURES})
    if has_steps:
        for row in rows.values(*keys, "at").annotate(sum=Sum("held")).order_by():
            sums_of(row).steps[row["at"]] += row["sum"]
    unbooked = list(_unbooked(period, is_wanted))
    profiles = _profiles(one.queue for one in unbooked) if by is UsageGroup.PROFILE else {}
    for one in unbooked:
        key = profiles[one.queue] if by is UsageGroup.PROFILE else getattr(one, by.value)
        sums = sums_of({"policy": one.policy, by.column: key})
        sums.add(one.tier if by.has_pools else "", one.sums)
        at = one.at if _step(period, by) == HOUR else one.at.replace(hour=0)
        sums.steps[at] += one.sums.get("held", 0)
    return dict(found)


def _profiles(queues: Iterable[int]) -> dict[int, int]:
    """The profile of each queue."""
    return dict(Queue.objects.filter(pk__in=set(queues)).values_list("pk", "profile_id"))


def _step(period: UsagePeriod, by: UsageGroup) -> timedelta:
    """Sums of queues and owners are kept by day only."""
    return HOUR if period.days <= HOURLY_DAYS and by not in _TABLES else DAY


def _table(period: UsagePeriod, by: UsageGroup) -> type[Measures]:
    return _TABLES.get(by, PolicyHour if _step(period, by) == HOUR else PolicyDay)


def _unbooked(period: UsagePeriod, is_wanted: Q) -> Iterator[Booking]:
    """What is not in the sums yet: of attempts, and how GPUs were used."""
    yield from _unbooked_attempts(period, is_wanted, clock.now())
    uses = DeviceUse.objects.filter(is_booked=False, at__gte=period.start, at__lt=period.end)
    yield from bookings_of_uses(
        uses.filter(held__member__attempt__in=Attempt.objects.filter(is_wanted).values("pk"))
    )


def _unbooked_attempts(period: UsagePeriod, is_wanted: Q, now: datetime) -> Iterator[Booking]:
    """What live attempts hold since the last whole hour, and ends of the last minute."""
    # What ended before only counts where more than that is booked.
    is_concerned = (
        Q(ended_at__isnull=True) | Q(ended_at__gte=period.start) | Q(booked_until__gt=period.start)
    )
    attempts = Attempt.objects.filter(
        is_wanted, is_concerned, is_booked=False, allocated_at__lt=period.end
    )
    for attempt in bookings_of(attempts, until=min(now, period.end)):
        yield from (one for one in attempt.bookings if period.start <= one.at < period.end)


def _sum_of(sums: Iterable[UsageSums]) -> UsageSums:
    total = UsageSums()
    for one in sums:
        total.add_all(one)
    return total


def _lines(
    now: Mapping[Any, UsageSums], before: Mapping[Any, UsageSums], labels: Labels, *, others: str
) -> list[UsageLine]:
    """The most first; all that has no label is one line at the end."""
    lines = {
        key: UsageLine(key, label, UsageSums(), UsageSums(), parent)
        for key, (label, parent) in labels.items()
    }
    for key in {*now, *before}:
        own = key if key in labels else OTHERS
        line = lines.setdefault(own, UsageLine(own, others, UsageSums(), UsageSums()))
        line.sums.add_all(now.get(key, UsageSums()))
        line.before.add_all(before.get(key, UsageSums()))
    found = sorted(lines.values(), key=_order)
    if len(found) > MOST_LINES:
        rest = UsageLine(OTHERS, "All smaller ones", UsageSums(), UsageSums())
        for line in found[MOST_LINES:]:
            rest.sums.add_all(line.sums)
            rest.before.add_all(line.before)
        found[MOST_LINES:] = [rest]
    return found


def _order(line: UsageLine) -> tuple[bool, int, str]:
    return line.key == OTHERS, -line.sums["held"], line.label


def _tree(lines: Iterable[UsageLine]) -> list[UsageLine]:
    """Each policy with those below it, whose usage it contains."""
    by_key = {one.key: one for one in lines}
    children: defaultdict[Any, list[UsageLine]] = defaultdict(list)
    for one in by_key.values():
        children[one.parent if one.parent in by_key else None].append(one)

    def gather(line: UsageLine, depth: int) -> list[UsageLine]:
        below = [gather(child, depth + 1) for child in children[line.key]]
        for child, *_ in below:
            line.sums.add_all(child.sums)
            line.before.add_all(child.before)
        line.depth = depth
        return [line, *_flat(sorted(below, key=lambda found: _order(found[0])))]

    return _flat(
        sorted((gather(one, 0) for one in children[None]), key=lambda found: _order(found[0]))
    )


def _flat(parts: Iterable[list[UsageLine]]) -> list[UsageLine]:
    return [one for part in parts for one in part]
