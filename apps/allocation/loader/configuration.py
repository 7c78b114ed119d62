"""Pools, profiles, policies, queues and nodes as the engine takes them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from apps.allocation.engine.quantities import GPU, UNCOUNTED_UNLESS_LISTED, Quantities
from apps.allocation.engine.snapshot import (
    Id,
    Node,
    OverQuota,
    Policy,
    Pool,
    Preemption,
    Profile,
    Queue,
    Queueing,
    Settings,
)
from apps.core.units import MILLI, milli
from apps.nodes.models import Device, DeviceState, NodeState
from apps.nodes.models import Node as NodeRow
from apps.policies.models import LiveState, PolicyAmount, PoolLink
from apps.policies.models import Policy as PolicyRow
from apps.policies.models import Pool as PoolRow
from apps.policies.models import Profile as ProfileRow
from apps.policies.models import Queue as QueueRow


@dataclass(frozen=True, slots=True)
class Configuration:
    """What does not depend on tasks."""

    settings: Settings
    pools: tuple[Pool, ...]
    profiles: tuple[Profile, ...]
    policies: tuple[Policy, ...]
    queues: tuple[Queue, ...]


def amounts(texts: Mapping[str, str]) -> Quantities:
    """Stored texts as thousandths."""
    return Quantities.of({key: _milli(text) for key, text in texts.items()})


# The same few texts, thousands of times in every pass.
_milli = lru_cache(maxsize=4096)(milli)


def load_configuration() -> Configuration:
    """Nine queries, whatever the size.

    Queues are read first: their policies and profiles are there or were removed meanwhile.
    """
    queues = _queue_rows()
    links = list(
        PoolLink.objects.order_by("id").values_list(
            "profile_id", "pool_id", "routing_rank", "execution_rank"
        )
    )
    return Configuration(
        settings=_settings(),
        pools=_pools(links),
        profiles=_profiles(links, queues),
        policies=_policies(),
        queues=tuple(queue for queue, _ in queues),
    )


def _settings() -> Settings:
    state = LiveState.objects.get(id=1)
    return Settings(
        is_enabled=state.is_enabled,
        queueing=Queueing(state.queueing),
        preemption=Preemption(state.preemption),
        over_quota=OverQuota(state.over_quota),
        has_consolidation=state.consolidation,
    )


def _pools(links: Iterable[tuple[int, int, int, int]]) -> tuple[Pool, ...]:
    order: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for profile, pool, _, rank in links:
        order[pool].append((rank, profile))
    nodes = _nodes()
    rows = PoolRow.objects.filter(removed_at__isnull=True).values_list(
        "id", "name", "capacity", "backfill", "preemption", "paused_at"
    )
    return tuple(
        Pool(
            id=pk,
            name=name,
            capacity=served_capacity(amounts(capacity), [node.capacity for node in nodes[pk]]),
            profiles=tuple(profile for _, profile in sorted(order[pk])),
            nodes=tuple(_with_pool_keys(node, amounts(capacity)) for node in nodes[pk]),
            has_backfill=backfill,
            is_paused=paused_at is not None,
            has_server=bool(nodes[pk]),
            preemption=Preemption(level) if level else None,
        )
        for pk, name, capacity, backfill, level, paused_at in rows.order_by("id")
    )


def served_capacity(configured: Quantities, nodes: list[Quantities]) -> Quantities:
    """The smaller of what is configured and what the nodes have, for each key that nodes report."""
    reported = {key for node in nodes for key in node}
    return Quantities.of(
        {
            key: min(amount, sum(node.get(key) for node in nodes)) if key in reported else amount
            for key, amount in configured.items()
        }
    )


def _with_pool_keys(node: Node, configured: Quantities) -> Node:
    """Keys that machines do not report (a licence, say) bind the pool only, not a single node."""
    missing = {
        key: amount
        for key, amount in configured.items()
        if key not in node.capacity and key != GPU and key not in UNCOUNTED_UNLESS_LISTED
    }
    if not missing:
        return node
    return Node(
        id=node.id,
        name=node.name,
        capacity=node.capacity.plus(Quantities.of(missing)),
        model=node.model,
        gpu_indices=node.gpu_indices,
        unavailable_gpus=node.unavailable_gpus,
        is_schedulable=node.is_schedulable,
    )


def _nodes() -> dict[int, list[Node]]:
    """Per pool, the nodes that were reached at least once; silent ones take nothing new."""
    devices: dict[int, list[tuple[int, str]]] = defaultdict(list)
    known = Device.objects.filter(node__removed_at__isnull=True, node__pool__isnull=False)
    for node, index, state in known.order_by("index").values_list("node_id", "index", "state"):
        devices[node].append((index, state))
    rows = NodeRow.objects.filter(removed_at__isnull=True, pool__isnull=False).exclude(
        state=NodeState.NEW
    )
    found: dict[int, list[Node]] = defaultdict(list)
    for pk, name, pool, capacity, model, state, draining, paused in rows.order_by("id").values_list(
        "id",
        "name",
        "pool_id",
        "capacity",
        "gpu_model",
        "state",
        "is_draining",
        "paused_at",
    ):
        has = devices[pk]
        given = amounts(capacity).as_dict()
        if has:
            given[GPU] = min(given.get(GPU, len(has) * MILLI), len(has) * MILLI)
        found[pool].append(
            Node(
                id=pk,
                name=name,
                capacity=Quantities.of(given),
                model=model or None,
                gpu_indices=tuple(index for index, _ in has) if has else None,
                unavailable_gpus=tuple(
                    index for index, device in has if device != DeviceState.HEALTHY
                ),
                is_schedulable=state == NodeState.HEALTHY and not draining and paused is None,
            )
        )
    return found


def _profiles(
    links: Iterable[tuple[int, int, int, int]], queues: list[tuple[Queue, int]]
) -> tuple[Profile, ...]:
    routing: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for profile, pool, rank, _ in links:
        routing[profile].append((rank, pool))
    queuing: dict[Id, list[tuple[int, Id]]] = defaultdict(list)
    for queue, rank in queues:
        queuing[queue.profile].append((rank, queue.policy))
    rows = ProfileRow.objects.filter(removed_at__isnull=True).order_by("id")
    return tuple(
        Profile(
            id=pk,
            name=name,
            request=amounts(request),
            pools=tuple(pool for _, pool in sorted(routing[pk])),
            policies=tuple(policy for _, policy in sorted(queuing[pk], key=_rank_then_id)),
            replicas=replicas,
            models=tuple(models),
        )
        for pk, name, request, replicas, models in rows.values_list(
            "id", "name", "request", "replicas", "device_models"
        )
    )


def _rank_then_id(pair: tuple[int, Id]) -> tuple[int, str]:
    return pair[0], f"{pair[1]:>20}"


def _policies() -> tuple[Policy, ...]:
    reserved: dict[int, dict[str, int]] = defaultdict(dict)
    limit: dict[int, dict[str, int]] = defaultdict(dict)
    rows = PolicyAmount.objects.filter(policy__removed_at__isnull=True, pool__isnull=True)
    for policy, key, low, high in rows.values_list(
        "policy_id", "key", "reserved_milli", "limit_milli"
    ):
        if low is not None:
            reserved[policy][key] = low
        if high is not None:
            limit[policy][key] = high
    # Removed policies stay known while their work runs on.
    policies = PolicyRow.objects.order_by("position", "id").values_list(
        "id", "name", "parent_id", "weight", "is_strict", "paused_at", "user_limit", "removed_at"
    )
    return tuple(
        Policy(
            id=pk,
            name=name,
            rank=rank,
            parent=parent,
            reserved=Quantities.of(reserved[pk]),
            limit=Quantities.of(limit[pk]),
            user_limit=amounts(user_limit),
            weight_milli=weight * MILLI,
            queueing=Queueing.STRICT if strict else None,
            is_paused=paused is not None,
            is_removed=removed is not None,
        )
        for rank, (pk, name, parent, weight, strict, paused, user_limit, removed) in enumerate(
            policies
        )
    )


def _queue_rows() -> list[tuple[Queue, int]]:
    rows = (
        QueueRow.objects.filter(removed_at__isnull=True)
        .order_by("id")
        .values_list(
            "id",
            "policy_id",
            "profile_id",
            "allow_over_quota",
            "paused_at",
            "min_runtime_s",
            "max_preemptions",
            "queuing_rank",
        )
    )
    return [
        (
            Queue(
                id=pk,
                policy=policy,
                profile=profile,
                allows_over_quota=over,
                is_paused=paused is not None,
                min_runtime_s=min_runtime,
                max_preemptions=most,
            ),
            rank,
        )
        for pk, policy, profile, over, paused, min_runtime, most, rank in rows
    ]
