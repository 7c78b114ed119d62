"""What charts of GPUs held over time are about, as far as a reader may see it."""

from collections.abc import Sequence

from apps.access.selectors import policies_visible_to, pools_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core.units import milli
from apps.dashboard.cards.history_chart import HistorySubject
from apps.nodes.models import Node, NodeState
from apps.nodes.selectors import capacity_by_pool
from apps.policies.models import Policy, Pool, Queue
from apps.policies.selectors import policy_family
from apps.usage.selectors.current_usage import GPU
from apps.usage.selectors.labels import UsageGroup
from apps.usage.selectors.usage_history import HistoryScope


def overview_subject(user: User) -> HistorySubject:
    """All policies and pools that the reader sees."""
    pools = list(pools_visible_to(user))
    groups = (UsageGroup.POLICY, UsageGroup.TIER, *_pool_group(pools))
    capacity = sum(one.usable_gpu for one in capacity_by_pool(pools).values()) if pools else None
    return HistorySubject(HistoryScope(_policies(user)), groups, capacity)


def policy_subject(user: User, policy: Policy) -> HistorySubject:
    """A policy with all below it, as its other figures are; not all of that has a name here."""
    groups = (UsageGroup.POLICY, UsageGroup.TIER, *_pool_group(list(pools_visible_to(user)[:1])))
    return HistorySubject(HistoryScope(policy_family(policy.pk)), groups)


def queue_subject(user: User, queue: Queue) -> HistorySubject:
    """A queue, without what the tasks of other policies held before it had its policy."""
    policies = {*_policies(user), queue.policy_id}
    return HistorySubject(HistoryScope(policies, queue=queue.pk), (UsageGroup.QUEUE,))


def pool_subject(user: User, pool: Pool) -> HistorySubject:
    """What the policies that the reader sees hold in a pool, and all that the pool has."""
    [capacity] = capacity_by_pool([pool]).values()
    scope = HistoryScope(_policies(user), pool=pool.pk)
    return HistorySubject(scope, (UsageGroup.POLICY, UsageGroup.TIER), capacity.usable_gpu)


def node_subject(user: User, node: Node) -> HistorySubject:
    """A node, for those who see nodes."""
    is_healthy = node.state == NodeState.HEALTHY
    capacity = milli(node.capacity.get(GPU, "0")) if is_healthy else 0
    scope = HistoryScope(_policies(user), node=node.pk)
    return HistorySubject(scope, (UsageGroup.POLICY, UsageGroup.TIER), capacity)


def _policies(user: User) -> list[int]:
    """Administrators see what removed policies held, too."""
    seen = Policy.objects.all() if is_admin(user) else policies_visible_to(user)
    return list(seen.order_by().values_list("pk", flat=True))


def _pool_group(pools: Sequence[Pool]) -> tuple[UsageGroup, ...]:
    return (UsageGroup.POOL,) if pools else ()
