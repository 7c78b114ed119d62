"""Settings, profiles, policies and queues as the engine takes them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import (
    Id,
    OverQuotaMode,
    PolicySnapshot,
    PoolSnapshot,
    PreemptionMode,
    ProfileSnapshot,
    QueueingMode,
    QueueSnapshot,
    SettingsSnapshot,
)
from apps.allocation.loader.pools import load_pools
from apps.core import clock
from apps.core.units import MILLI, milli
from apps.policies.budgets import BUDGET_COLUMNS, is_stopped, month_of
from apps.policies.models import LiveState, PolicyAmount, PoolLink
from apps.policies.models import Policy as PolicyRow
from apps.policies.models import Profile as ProfileRow
from apps.policies.models import Queue as QueueRow


@dataclass(frozen=True, slots=True)
class Configuration:
    """What does not depend on tasks."""

    settings: SettingsSnapshot
    pools: tuple[PoolSnapshot, ...]
    profiles: tuple[ProfileSnapshot, ...]
    policies: tuple[PolicySnapshot, ...]
    queues: tuple[QueueSnapshot, ...]


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
        pools=load_pools(links),
        profiles=_profiles(links, queues),
        policies=_policies(),
        queues=tuple(queue for queue, _ in queues),
    )


def _settings() -> SettingsSnapshot:
    state = LiveState.objects.get(id=1)
    return SettingsSnapshot(
        is_enabled=state.is_enabled,
        queueing=QueueingMode(state.queueing),
        preemption=PreemptionMode(state.preemption),
        over_quota=OverQuotaMode(state.over_quota),
        has_consolidation=state.consolidation,
    )


def _profiles(
    links: Iterable[tuple[int, int, int, int]], queues: list[tuple[QueueSnapshot, int]]
) -> tuple[ProfileSnapshot, ...]:
    routing: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for profile, pool, rank, _ in links:
        routing[profile].append((rank, pool))
    queuing: dict[Id, list[tuple[int, Id]]] = defaultdict(list)
    for queue, rank in queues:
        queuing[queue.profile].append((rank, queue.policy))
    rows = ProfileRow.objects.filter(removed_at__isnull=True).order_by("id")
    return tuple(
        ProfileSnapshot(
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


def _policies() -> tuple[PolicySnapshot, ...]:
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
    month = month_of(clock.now())
    # Removed policies stay known while their work runs on.
    policies = PolicyRow.objects.order_by("position", "id").values_list(
        *("id", "name", "parent_id", "weight", "is_strict", "paused_at", "user_limit"),
        *("removed_at", *BUDGET_COLUMNS),
    )
    return tuple(
        PolicySnapshot(
            id=pk,
            name=name,
            rank=rank,
            parent=parent,
            reserved=Quantities.of(reserved[pk]),
            limit=Quantities.of(limit[pk]),
            user_limit=amounts(user_limit),
            weight_milli=weight * MILLI,
            queueing=QueueingMode.STRICT if strict else None,
            is_paused=paused is not None,
            is_spent=is_stopped(month, budget),
            is_removed=removed is not None,
        )
        for rank, (pk, name, parent, weight, strict, paused, user_limit, removed, *budget) in (
            enumerate(policies)
        )
    )


def _queue_rows() -> list[tuple[QueueSnapshot, int]]:
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
            QueueSnapshot(
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
