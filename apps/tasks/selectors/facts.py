"""The facts that decide whether a queue takes a task, read from the live configuration."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from apps.core.statements import Statement
from apps.core.units import quantities_milli
from apps.nodes.models import Node, Runtime, Volume
from apps.policies.models import LiveState, Policy, PolicyAmount, Pool, Queue
from apps.policies.selectors import known_keys, may_exceed_limit
from apps.tasks.acceptance import QueueFacts
from apps.tasks.feasibility import EmptyPool, PolicyBounds

Reservations = Mapping[int, Mapping[str, int]]

MOST_CACHED = 10_000
_cached: dict[int, QueueFacts] = {}


def cached_queue_facts(queue: Queue) -> QueueFacts:
    """The facts of a queue as of the current version; a process reads them once per version.

    Everything that `queue_facts` reads changes only together with the version, except the columns
    of the queue, which come from `queue`. Not for a transaction that raises the version itself: it
    may be rolled back, and another change gets the same version.

    Args:
        queue: locked, so that its task groups are those of this version.
    """
    known = _cached.get(queue.pk)
    if known is None or known.version != live_version():
        if len(_cached) >= MOST_CACHED:
            _cached.clear()
        known = _cached[queue.pk] = queue_facts(queue)
    return replace(
        known,
        name=queue.name,
        max_priority=queue.max_priority,
        max_waiting=queue.max_waiting,
    )


def cached_facts_clear() -> None:
    """Forget all facts; for tests, whose databases begin again with the same version."""
    _cached.clear()


def queue_facts(queue: Queue) -> QueueFacts:
    """The facts of a queue, as the database has them now; a fixed number of queries.

    `version` is read first: a change meanwhile makes the facts look older than they are.
    """
    version = live_version()
    profile = queue.profile
    pools = _pools(profile.pk)
    nodes = _nodes(pools)
    return QueueFacts(
        queue_id=queue.pk,
        name=queue.name,
        policy_id=queue.policy_id,
        version=version,
        max_priority=queue.max_priority,
        max_waiting=queue.max_waiting,
        request=profile.request,
        replicas=profile.replicas,
        is_dynamic=profile.is_dynamic,
        request_min=profile.request_min,
        request_max=profile.request_max,
        keys=frozenset(known_keys() | profile.request.keys()),
        volumes=_volumes(profile.volumes),
        policy_bounds=_policy_bounds(queue.policy_id),
        empty_pools=_empty_pools(pools, nodes),
        images=tuple(tuple(pool.allowed_images) for pool in pools if pool.allowed_images),
        needs_image=any(one.runtime != Runtime.PROCESS for one in nodes),
        exceeding=frozenset(may_exceed_limit(queue.policy_id)),
    )


def live_version() -> int:
    """The version of the live configuration."""
    return next((version for (version,) in _VERSION.rows()), 0)


_VERSION = Statement(lambda: LiveState.objects.filter(id=1).values_list("version"))


def _volumes(names: list[str]) -> frozenset[str]:
    if not names:
        return frozenset()
    live = Volume.objects.filter(removed_at__isnull=True, name__in=names)
    return frozenset(live.values_list("name", flat=True))


def _policy_bounds(policy_id: int) -> tuple[PolicyBounds, ...]:
    """Of the policy and its ancestors, from the bottom up.

    A parent's reservation, for each key that it does not set, is the sum of its children's.
    """
    rows = Policy.objects.filter(removed_at__isnull=True) | Policy.objects.filter(pk=policy_id)
    policies = {pk: (parent, limit) for pk, parent, limit in _policy_rows(rows)}
    reserved: dict[int, dict[str, int]] = defaultdict(dict)
    limits: dict[int, dict[str, int]] = defaultdict(dict)
    amounts = PolicyAmount.objects.filter(pool__isnull=True)
    for pk, key, least, most in amounts.values_list(
        "policy_id", "key", "reserved_milli", "limit_milli"
    ):
        if least is not None:
            reserved[pk][key] = least
        if most is not None:
            limits[pk][key] = most
    children: dict[int, list[int]] = defaultdict(list)
    for pk, (parent, _) in policies.items():
        if parent is not None:
            children[parent].append(pk)
    policy_bounds = []
    seen: set[int] = set()
    at: int | None = policy_id
    while at is not None and at not in seen:
        seen.add(at)
        parent, user_limit = policies.get(at, (None, {}))
        policy_bounds.append(
            PolicyBounds(
                reserved=_reservation(at, reserved, children),
                limit=limits[at],
                user_limit=quantities_milli(user_limit),
            )
        )
        at = parent
    return tuple(policy_bounds)


def _policy_rows(rows: "object") -> list[tuple[int, int | None, dict[str, str]]]:
    return list(rows.values_list("pk", "parent_id", "user_limit"))  # type: ignore[attr-defined]


def _reservation(
    policy_id: int, reserved: Reservations, children: Mapping[int, list[int]]
) -> dict[str, int]:
    total: dict[str, int] = {}
    for child in children.get(policy_id, ()):
        for key, amount in _reservation(child, reserved, children).items():
            total[key] = total.get(key, 0) + amount
    return {**total, **reserved.get(policy_id, {})}


def _pools(profile_id: int) -> list[Pool]:
    """The pools that the profile links to, in routing order."""
    pools = Pool.objects.filter(links__profile_id=profile_id, removed_at__isnull=True)
    return list(pools.order_by("links__routing_rank", "pk").only("capacity", "allowed_images"))


def _nodes(pools: list[Pool]) -> list[Node]:
    live = Node.objects.filter(removed_at__isnull=True, pool__in=pools)
    return list(live.only("pool", "capacity", "runtime"))


def _empty_pools(pools: list[Pool], live: list[Node]) -> tuple[EmptyPool, ...]:
    """The pools without any task."""
    nodes: dict[int, list[dict[str, int]]] = defaultdict(list)
    for node in live:
        if node.pool_id is not None:
            nodes[node.pool_id].append(quantities_milli(node.capacity))
    return tuple(
        EmptyPool(
            capacity=quantities_milli(pool.capacity),
            # A node that has not reported yet may be large.
            nodes=tuple(nodes[pool.pk]) if nodes[pool.pk] and all(nodes[pool.pk]) else None,
        )
        for pool in pools
    )
