"""The overview: the whole and each pool for those who see pools, one's own share for others."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.dashboard.cards.bars import Gauge, Segment, UseBar, parts
from apps.dashboard.cards.policies import PolicyRow, policy_rows
from apps.dashboard.cards.restored import Restored, restored_banner
from apps.dashboard.live import Sharing, card, topics_of
from apps.dashboard.selectors.pools import PoolFacts, first_pools, pool_facts
from apps.dashboard.selectors.use import Use
from apps.dashboard.selectors.waiting import Waiting, summed
from apps.dashboard.selectors.work import work_seen_by
from apps.policies.models import Queue
from apps.policies.selectors import policies_visible_to, pools_visible_to
from apps.tasks.models import Task
from apps.tasks.states import HOLDING_STATES, TaskState


@dataclass(frozen=True, slots=True)
class PoolCard:
    facts: PoolFacts
    gauge: Gauge
    waiting: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Thousandths of GPU over the pools that the person sees."""

    configured: int
    use: Use
    idle: int
    unavailable: int
    segments: tuple[Segment, ...]

    @property
    def label(self) -> str:
        return "GPUs in use within reservations, over quota, idle and unavailable"


@dataclass(frozen=True, slots=True)
class Overview:
    """`totals` is None for those who see no pool; `share` then says what their policies hold."""

    totals: Totals | None
    pools: tuple[PoolCard, ...]
    policies: tuple[PolicyRow, ...]
    share: UseBar
    use: Use
    free: int | None
    waiting: Waiting
    own_running: int
    own_waiting: int
    restored: Restored | None
    is_admin: bool
    topics: tuple[str, ...]
    announce: str


@card("overview", Sharing.ADMINS)
def load_overview(user: User, _key: str) -> Overview:
    """What the person may see of the whole."""
    pools = list(pools_visible_to(user))
    work = work_seen_by(user) if pools else None
    facts = pool_facts(pools, work) if work is not None else []
    rows = policy_rows(policies_visible_to(user).select_related("group"), work)
    top = [row for row in rows if row.depth == 0]
    use = _sum(row.use for row in top)
    waiting = summed(row.waiting for row in top)
    limits = [row.limit for row in top]
    limit = None if None in limits else sum(one or 0 for one in limits)
    reserved = sum(row.reserved for row in top)
    states = Task.objects.filter(owner=user)
    return Overview(
        totals=_totals(facts) if facts else None,
        pools=_pool_cards(facts, work.waiting) if work is not None else (),
        policies=tuple(rows),
        share=UseBar.of(used=use.total, reserved=reserved, limit=limit, over=use.over),
        use=use,
        free=None if limit is None else max(limit - use.total, 0),
        waiting=waiting,
        own_running=states.filter(state__in=HOLDING_STATES).count(),
        own_waiting=states.filter(state=TaskState.QUEUED).count(),
        restored=restored_banner() if is_admin(user) else None,
        is_admin=is_admin(user),
        topics=(
            "overview",
            *topics_of("policy", [row.policy.pk for row in rows]),
            *topics_of("pool", [one.pool.pk for one in facts]),
        ),
        announce=f"{use.tasks} running, {waiting.count} waiting",
    )


def _pool_cards(facts: list[PoolFacts], waiting_in: Mapping[int, Waiting]) -> tuple[PoolCard, ...]:
    waiting = _waiting_by_pool(waiting_in)
    return tuple(
        PoolCard(
            facts=one,
            gauge=Gauge.of(
                reserved_use=one.use.reserved,
                over=one.use.over,
                usable=one.usable,
                configured=one.configured,
            ),
            waiting=waiting[one.pool.pk],
        )
        for one in facts
    )


def _waiting_by_pool(waiting: Mapping[int, Waiting]) -> defaultdict[int, int]:
    """Waiting tasks in the first pool of their routing order, so that each counts once."""
    first = first_pools()
    found: defaultdict[int, int] = defaultdict(int)
    queues = Queue.objects.filter(pk__in=list(waiting)).values_list("pk", "profile_id")
    for queue, profile in queues:
        if profile in first:
            found[first[profile]] += waiting[queue].count
    return found


def _totals(facts: list[PoolFacts]) -> Totals:
    use = _sum(one.use for one in facts)
    idle = sum(one.idle for one in facts)
    unavailable = sum(one.unavailable for one in facts)
    return Totals(
        configured=sum(one.configured for one in facts),
        use=use,
        idle=idle,
        unavailable=unavailable,
        segments=parts(
            [("res", use.reserved), ("over", use.over), ("free", idle), ("warn", unavailable)]
        ),
    )


def _sum(uses: Iterable[Use]) -> Use:
    total = Use()
    for use in uses:
        total = total.plus(use)
    return total
