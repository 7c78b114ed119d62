"""What pools have, what of it is there, and what is used."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.dashboard.selectors.current_tasks import CurrentTasks
from apps.nodes.capacity import PoolCapacity
from apps.nodes.models import Node
from apps.nodes.selectors import ShareEnforcement, capacity_by_pool, enforcement_by_pool
from apps.policies.models import Pool, PoolLink
from apps.usage.selectors.current_usage import GPU, Usage, usage_by


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """A pool, what its nodes make of it, and what is used; thousandths of GPU.

    `shares` is None for a pool without devices; `elsewhere` is held by other tenants, and
    counts with what is not available.
    """

    pool: Pool
    served: PoolCapacity
    shares: ShareEnforcement | None
    usage: Usage
    is_simulated: bool
    elsewhere: int = 0

    @property
    def configured(self) -> int:
        return self.served.configured.get(GPU, 0)

    @property
    def usable(self) -> int:
        """The smaller of what is configured and what healthy nodes can give."""
        return max(self.served.usable_gpu - self.elsewhere, 0)

    @property
    def nodes(self) -> int:
        return self.served.nodes

    @property
    def healthy(self) -> int:
        return self.served.healthy

    @property
    def idle(self) -> int:
        return max(self.usable - self.usage.total, 0)

    @property
    def unavailable(self) -> int:
        return max(self.configured - self.usable, 0)


def simulated_pools() -> frozenset[int]:
    """Pools whose GPUs are made up: they are marked wherever they are named."""
    nodes = Node.objects.filter(is_simulated=True, removed_at__isnull=True, pool__isnull=False)
    return frozenset(pk or 0 for pk in nodes.values_list("pool_id", flat=True))


def first_pools() -> dict[int, int]:
    """The first pool of the routing order per profile: a waiting task counts in that one only."""
    links = PoolLink.objects.filter(pool__removed_at__isnull=True)
    # Of several pools of a profile the last one stays, which is the first choice.
    worst_first = links.order_by("-routing_rank", "-pk")
    return dict(worst_first.values_list("profile_id", "pool_id"))


def pool_facts(pools: Iterable[Pool], current: CurrentTasks) -> list[PoolFacts]:
    """In four queries, given `current`; a pool without nodes has no usable capacity.

    Args:
        current: all tasks, because over quota depends on everything that a policy holds.
    """
    every = list(pools)
    usages = usage_by(current.attempts, current.over_quota, of="pool_id")
    served, shares, simulated = capacity_by_pool(every), enforcement_by_pool(), simulated_pools()
    return [
        PoolFacts(
            pool=pool,
            served=served[pool.pk],
            shares=shares.get(pool.pk),
            usage=usages[pool.pk],
            is_simulated=pool.pk in simulated,
            elsewhere=current.elsewhere.get((pool.pk, GPU), 0),
        )
        for pool in every
    ]
