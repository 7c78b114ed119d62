"""What is held for reservations where nothing can be preempted, from the rule."""

from __future__ import annotations

from apps.allocation.engine.model.snapshot import Id, PreemptionMode, QueuedGroup
from tests.allocation.engine.oracle import ServingKey, World

Part = dict[str, int]


def holds_of(world: World) -> dict[Id, list[tuple[Id, Part]]]:
    """By pool: waiting task and what it holds per key, in the order across pools."""
    empty = World(world.snapshot, [], set())
    found: dict[Id, list[tuple[Id, Part]]] = {}
    unused: dict[tuple[Id, str], int] = {}
    for key_of, queued in _across_pools(world):
        fitting = [
            pool for pool in world.profile_of(queued).pools if empty.fits(queued, world.pools[pool])
        ]
        if not fitting or not _alone_reserved(world, queued) or not world.within_limits(queued):
            continue
        if world.level(fitting[0]) is PreemptionMode.NONE:
            before = found.setdefault(fitting[0], [])
            before.append((key_of[-1], _part(world, queued, fitting[0], before, unused)))
    return found


def held_against(
    holds: dict[Id, list[tuple[Id, Part]]], pool: Id, task: Id, *, is_over: bool
) -> Part:
    """What `task` may not use in `pool`: only over-quota work minds the claims of others."""
    held: Part = {}
    for holder, part in holds.get(pool, []) if is_over else []:
        if holder != task:
            for key, amount in part.items():
                held[key] = held.get(key, 0) + amount
    return held


def _part(
    world: World,
    queued: QueuedGroup,
    pool: Id,
    before: list[tuple[Id, Part]],
    unused: dict[tuple[Id, str], int],
) -> Part:
    part: Part = {}
    for key, amount in queued.request.items():
        free = world.free(world.pools[pool], key)
        naming = [
            policy
            for policy in world.chain(world.policy_of(queued))
            if key in world.reserved(policy)
        ]
        if amount <= 0 or free is None or not naming:
            continue
        for policy in naming:
            left = world.reserved(policy)[key] - world.usage(policy, key)
            unused.setdefault((policy, key), left)
        others = sum(one.get(key, 0) for _, one in before)
        least = min(unused[policy, key] for policy in naming)
        part[key] = max(0, min(amount * queued.replicas, free - others, least))
        for policy in naming:
            unused[policy, key] -= part[key]
    return part


def _across_pools(world: World) -> list[tuple[ServingKey, QueuedGroup]]:
    line = []
    for queued in world.snapshot.queued_groups:
        pools = world.profile_of(queued).pools
        if pools and not world.is_excluded(queued):
            line += [
                (world.serving_key(queued, one, pools[0]), queued) for one in world.waiting(queued)
            ]
    return sorted(line, key=lambda entry: entry[0])


def _alone_reserved(world: World, queued: QueuedGroup) -> bool:
    for policy in world.chain(world.policy_of(queued)):
        reserved = world.reserved(policy)
        asked = {key: one * queued.replicas for key, one in queued.request.items() if one > 0}
        named = [key for key in asked if key in reserved]
        if not named or any(asked[key] > reserved[key] for key in named):
            return False
    return True
