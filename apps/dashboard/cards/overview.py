"""The overview: the whole and each pool for those who see pools, one's own share for others."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from apps.access.selectors import policies_visible_to, pools_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.dashboard.cards.bars import Gauge, Segment, UsageBar, parts
from apps.dashboard.cards.policies import PolicyRow, policy_rows
from apps.dashboard.cards.restore_banner import RestoreBanner, restore_banner
from apps.dashboard.live import Sharing, card, topics_of
from apps.dashboard.selectors.current_tasks import current_tasks_visible_to
from apps.dashboard.selectors.pools import PoolFacts, first_pools, pool_facts
from apps.policies.models import Queue
from apps.tasks.lifecycle.states import ADMITTED_STATES
from apps.tasks.models import Task
from apps.tasks.selectors.eligibility import WAITING
from apps.usage.selectors.current_usage import Usage
from apps.usage.selectors.policy_use import PolicyGpuUse, policy_use, use_threshold
from apps.usage.selectors.waiting_tasks import WaitingTasks, waiting_sum

# Of more policies the overview shows the busiest.
MOST_POLICIES = 40


@dataclass(frozen=True, slots=True)
class PoolCard:
    facts: PoolFacts
    gauge: Gauge
    waiting: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Thousandths of GPU over the pools that the person sees."""

    configured: int
    usage: Usage
    idle: int
    unavailable: int
    segments: tuple[Segment, ...]

    @property
    def label(self) -> str:
        return "GPUs in use within reservations, over quota, free and unavailable"


@dataclass(frozen=True, slots=True)
class OverviewPolicy:
    """A policy, and how it uses what it holds; `is_low`: less than the threshold."""

    row: PolicyRow
    use: PolicyGpuUse
    is_low: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """`totals` is None for those who see no pool.

    `share` and `own_waiting` and `own_running` then say what their policies and they hold.
    """

    totals: Totals | None
    pools: tuple[PoolCard, ...]
    policies: tuple[OverviewPolicy, ...]
    threshold: int | None
    more_policies: int
    share: UsageBar
    usage: Usage
    free: int | None
    waiting: WaitingTasks
    own_running: int
    own_waiting: int
    restore_banner: RestoreBanner | None
    is_admin: bool
    topics: tuple[str, ...]
    announce: str


@card("overview", Sharing.ADMINS)
def load_overview(user: User, _key: str) -> Overview:
    """What the person may see of the whole."""
    pools = list(pools_visible_to(user))
    current = current_tasks_visible_to(user) if pools else None
    facts = pool_facts(pools, current) if current is not None else []
    rows = policy_rows(policies_visible_to(user).select_related("group"), current)
    top = [row for row in rows if row.depth == 0]
    usage = _sum(row.usage for row in top)
    waiting = waiting_sum(row.waiting for row in top)
    limits = [row.limit for row in top]
    limit = None if None in limits else sum(one or 0 for one in limits)
    reserved = sum(row.reserved for row in top)
    states = Task.objects.none() if facts else Task.objects.filter(owner=user)
    threshold = use_threshold()
    policies = _policies(_busiest(rows), threshold)
    return Overview(
        totals=_totals(facts) if facts else None,
        pools=_pool_cards(facts, current.waiting) if current is not None else (),
        policies=policies,
        threshold=threshold,
        more_policies=len(rows) - len(policies),
        share=UsageBar.of(
            used=usage.total, reserved=reserved, limit=limit, over_quota=usage.over_quota
        ),
        usage=usage,
        free=None if limit is None else max(limit - usage.total, 0),
        waiting=waiting,
        own_running=states.filter(state__in=ADMITTED_STATES).count(),
        own_waiting=states.filter(WAITING).count(),
        restore_banner=restore_banner() if is_admin(user) else None,
        is_admin=is_admin(user),
        topics=(
            "overview",
            *topics_of("policy", [row.policy.pk for row in rows]),
            *topics_of("pool", [one.pool.pk for one in facts]),
        ),
        announce=f"{usage.tasks} running, {waiting.count} waiting",
    )


def _policies(rows: tuple[PolicyRow, ...], threshold: int | None) -> tuple[OverviewPolicy, ...]:
    uses = policy_use([row.policy.pk for row in rows]) if rows else {}

    def is_low(percent: int | None) -> bool:
        return None not in {percent, threshold} and (percent or 0) < (threshold or 0)

    return tuple(
        OverviewPolicy(row, use := uses[row.policy.pk], is_low(use.percent)) for row in rows
    )


def _busiest(rows: list[PolicyRow]) -> tuple[PolicyRow, ...]:
    """In the order of the tree; a policy uses at least what those below it use."""
    if len(rows) <= MOST_POLICIES:
        return tuple(rows)
    order = sorted(rows, key=lambda row: (-row.usage.total, -row.waiting.count))
    shown = {row.policy.pk for row in order[:MOST_POLICIES]}
    return tuple(row for row in rows if row.policy.pk in shown)


def _pool_cards(
    facts: list[PoolFacts], waiting_in: Mapping[int, WaitingTasks]
) -> tuple[PoolCard, ...]:
    waiting = _waiting_by_pool(waiting_in)
    return tuple(
        PoolCard(
            facts=one,
            gauge=Gauge.of(
                reserved_usage=one.usage.reserved,
                over_quota=one.usage.over_quota,
                usable=one.usable,
                configured=one.configured,
            ),
            waiting=waiting[one.pool.pk],
        )
        for one in facts
    )


def _waiting_by_pool(waiting: Mapping[int, WaitingTasks]) -> defaultdict[int, int]:
    """Waiting tasks in the first pool of their routing order, so that each counts once."""
    first = first_pools()
    found: defaultdict[int, int] = defaultdict(int)
    queues = Queue.objects.filter(pk__in=list(waiting)).values_list("pk", "profile_id")
    for queue, profile in queues:
        if profile in first:
            found[first[profile]] += waiting[queue].count
    return found


def _totals(facts: list[PoolFacts]) -> Totals:
    usage = _sum(one.usage for one in facts)
    idle = sum(one.idle for one in facts)
    unavailable = sum(one.unavailable for one in facts)
    return Totals(
        configured=sum(one.configured for one in facts),
        usage=usage,
        idle=idle,
        unavailable=unavailable,
        segments=parts(
            [
                ("res", usage.reserved),
                ("over", usage.over_quota),
                ("free", idle),
                ("warn", unavailable),
            ]
        ),
    )


def _sum(usages: Iterable[Usage]) -> Usage:
    total = Usage()
    for usage in usages:
        total = total.plus(usage)
    return total
