"""Tables that the compiled configuration consists of: chains, children, reservations, places."""

from __future__ import annotations

from apps.allocation.engine.model.quantities import GPU, Quantities
from apps.allocation.engine.model.snapshot import (
    Id,
    PolicySnapshot,
    PoolSnapshot,
    ProfileSnapshot,
    Snapshot,
)

ByKey = dict[int, int]


def configured_keys(snapshot: Snapshot) -> set[str]:
    """Every key that the configuration names."""
    keys = {GPU}
    for pool in snapshot.pools:
        keys.update(pool.capacity)
        for node in pool.nodes:
            keys.update(node.capacity)
    for policy in snapshot.policies:
        keys.update(policy.reserved)
        keys.update(policy.limit)
        keys.update(policy.user_limit)
    return keys


def requested_keys(snapshot: Snapshot) -> set[str]:
    """Every key that waiting or running work requests."""
    requested = {queued.request.pairs for queued in snapshot.queued_groups}
    requested.update(group.request.pairs for group in snapshot.running)
    return {key for pairs in requested for key, _ in pairs}


def indexed(amounts: Quantities, key_index: dict[str, int]) -> ByKey:
    return {key_index[key]: amount for key, amount in amounts.pairs if key in key_index}


def chains_of(
    policies: tuple[PolicySnapshot, ...], index: dict[Id, int]
) -> tuple[tuple[int, ...], ...]:
    """For each policy the path from its top ancestor down to itself."""
    return tuple(_chain(policy, policies, index) for policy in policies)


def _chain(
    policy: PolicySnapshot, policies: tuple[PolicySnapshot, ...], index: dict[Id, int]
) -> tuple[int, ...]:
    chain = [index[policy.id]]
    parent = policy.parent
    while parent is not None and parent in index:
        chain.append(index[parent])
        parent = policies[index[parent]].parent
    return tuple(reversed(chain))


def children_of(
    policies: tuple[PolicySnapshot, ...], index: dict[Id, int]
) -> tuple[tuple[int, ...], ...]:
    found: list[list[int]] = [[] for _ in policies]
    for number, policy in enumerate(policies):
        if policy.parent is not None and policy.parent in index:
            found[index[policy.parent]].append(number)
    return tuple(tuple(one) for one in found)


def reservations_of(
    policies: tuple[PolicySnapshot, ...],
    key_index: dict[str, int],
    chains: tuple[tuple[int, ...], ...],
    children: tuple[tuple[int, ...], ...],
) -> tuple[ByKey, ...]:
    """By key index. Of a parent, for each key that it does not set, the sum of its children's."""
    found = [
        {} if policy.is_removed else indexed(policy.reserved, key_index) for policy in policies
    ]
    deepest_first = sorted(range(len(found)), key=lambda number: -len(chains[number]))
    for number in deepest_first:
        if policies[number].is_removed:
            continue
        total: ByKey = {}
        for child in children[number]:
            for key, amount in found[child].items():
                total[key] = total.get(key, 0) + amount
        found[number] = total | found[number]
    return tuple(found)


def profile_places(pools: tuple[PoolSnapshot, ...]) -> dict[tuple[int, Id], int]:
    """The place of each profile in each pool (by index) that lists it."""
    return {
        (number, profile): place
        for number, pool in enumerate(pools)
        for place, profile in enumerate(pool.profiles)
    }


def policy_places(profiles: tuple[ProfileSnapshot, ...]) -> dict[tuple[Id, Id], int]:
    """The place of each policy in each profile (both by id) that lists it."""
    return {
        (profile.id, policy): place
        for profile in profiles
        for place, policy in enumerate(profile.policies)
    }
