"""What pools have, what of it is there, and what is used."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from apps.core.units import milli
from apps.dashboard.selectors.use import GPU, Use, use_by
from apps.dashboard.selectors.work import Work
from apps.nodes.models import Device, DeviceState, Node, NodeState
from apps.policies.models import Pool


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """Thousandths of GPU: `usable` is the smaller of configured and what healthy nodes have."""

    pool: Pool
    configured: int
    usable: int
    reported: int
    use: Use
    nodes: int
    healthy: int
    is_simulated: bool
    missing: int
    occupied: int

    @property
    def idle(self) -> int:
        return max(self.usable - self.use.total, 0)

    @property
    def unavailable(self) -> int:
        return max(self.configured - self.usable, 0)

    @property
    def has_drift(self) -> bool:
        return self.nodes > 0 and self.reported != self.configured


def simulated_pools() -> frozenset[int]:
    """Pools whose GPUs are made up: they are marked wherever they are named."""
    nodes = Node.objects.filter(is_simulated=True, removed_at__isnull=True, pool__isnull=False)
    return frozenset(pk or 0 for pk in nodes.values_list("pool_id", flat=True))


def pool_facts(pools: Iterable[Pool], work: Work) -> list[PoolFacts]:
    """In two queries beside `work`; a pool without nodes has nothing that is usable.

    Args:
        work: of all, because what counts as over quota depends on all that a policy holds.
    """
    every = list(pools)
    ids = [pool.pk for pool in every]
    uses = use_by(work.held, work.over, of="pool_id")
    nodes: defaultdict[int, list[Node]] = defaultdict(list)
    for node in Node.objects.filter(pool__in=ids, removed_at__isnull=True):
        nodes[node.pool_id or 0].append(node)
    wrong: defaultdict[tuple[int, str], int] = defaultdict(int)
    bad = Device.objects.filter(node__pool__in=ids).exclude(state=DeviceState.HEALTHY)
    for pool, state in bad.values_list("node__pool_id", "state"):
        wrong[pool or 0, state] += 1
    return [
        _facts(
            pool,
            nodes[pool.pk],
            uses[pool.pk],
            missing=wrong[pool.pk, DeviceState.MISSING],
            occupied=wrong[pool.pk, DeviceState.OCCUPIED],
        )
        for pool in every
    ]


def _facts(pool: Pool, nodes: list[Node], use: Use, *, missing: int, occupied: int) -> PoolFacts:
    configured = milli(pool.capacity.get(GPU, "0"))
    healthy = [node for node in nodes if node.state == NodeState.HEALTHY]
    reported = sum(milli(node.capacity.get(GPU, "0")) for node in healthy)
    there = max(reported - (missing + occupied) * 1000, 0)
    return PoolFacts(
        pool=pool,
        configured=configured,
        usable=min(configured, there),
        reported=reported,
        use=use,
        nodes=len(nodes),
        healthy=len(healthy),
        is_simulated=any(node.is_simulated for node in nodes),
        missing=missing,
        occupied=occupied,
    )
