"""Which task may preempt which, read from docs/allocation.md, "Preemption"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from apps.allocation.engine.model.snapshot import (
    Id,
    OverQuotaMode,
    PreemptionMode,
    QueuedGroup,
    QueuedTask,
)
from tests.allocation.engine.laws.history import SECOND
from tests.allocation.engine.oracle import OPTIONAL, Entry, World

Share = tuple[bool, Fraction]
FIRST, SECOND_CHOICE = 0, 1


@dataclass(frozen=True, slots=True)
class Taker:
    """A waiting task that asks for capacity in a pool."""

    queued: QueuedGroup
    head: QueuedTask
    pool: Id


def is_protected(world: World, entry: Entry) -> bool:
    """Whether it may not be preempted: not preemptible, stopping, too new, or stopped too often."""
    if not entry.is_preemptible or entry.is_stopping:
        return True
    if any(one.stops_for == entry.task for one in world.entries):
        return True
    queue = world.queues.get(entry.queue) if entry.queue is not None else None
    if queue is None:
        return False
    if queue.max_preemptions is not None and entry.preemptions >= queue.max_preemptions:
        return True
    return world.snapshot.now_us < entry.started_us + queue.min_runtime_s * SECOND


def is_over(world: World, policy: Id, entry: Entry) -> bool:
    """Whether the policy does not cover that running work, which its usage includes."""
    reserved = world.reserved(policy)
    named = [key for key in entry.request.positive() if key in reserved]
    return (
        entry.is_exempt
        or not named
        or any(world.usage(policy, key) > reserved[key] for key in named)
    )


def covers_wholly(world: World, policy: Id, queued: QueuedGroup) -> bool:
    """By the whole usage of the policy, with the task."""
    reserved = world.reserved(policy)
    named = [key for key in queued.request.positive() if key in reserved]
    return bool(named) and all(
        world.usage(policy, key) + queued.request.get(key) * queued.replicas <= reserved[key]
        for key in named
    )


def divergence_level(world: World, mine: Id, theirs: Id) -> tuple[Id, list[Id]]:
    """Where two paths part: the one's policy there, and the other's from there down."""
    one, other = world.chain(mine), world.chain(theirs)
    level = next(
        (
            place
            for place, (left, right) in enumerate(zip(one, other, strict=False))
            if left != right
        ),
        min(len(one), len(other)) - 1,
    )
    return one[level], other[level:]


def share(world: World, policy: Id, more: dict[str, int]) -> Share:
    """Dominant share of what is used beyond the reservation, by weight; True: without end."""
    reserved = world.reserved(policy)
    weight = world.policies[policy].weight_milli
    most: Share = (False, Fraction(0))
    keys = {key for entry in world.entries for key in entry.request} | set(more)
    for key in sorted(keys):
        over = world.usage(policy, key) + more.get(key, 0) - reserved.get(key, 0)
        total = sum(pool.capacity.get(key) for pool in world.pools.values())
        if over <= 0 or (not total and key in OPTIONAL and not _is_listed(world, key)):
            continue
        if not total or not weight:
            return (True, Fraction(0))
        most = max(most, (False, Fraction(over, total) * Fraction(1000, weight)))
    return most


def _is_listed(world: World, key: str) -> bool:
    return any(key in pool.capacity for pool in world.pools.values())


def asked(queued: QueuedGroup) -> dict[str, int]:
    return {key: amount * queued.replicas for key, amount in queued.request.items() if amount > 0}


def right_over(world: World, claim: Taker, entry: Entry) -> int | None:
    """FIRST or SECOND_CHOICE: the claim may take it now; None: it may not."""
    level = world.level(claim.pool)
    if level is PreemptionMode.NONE or is_protected(world, entry):
        return None
    if entry.policy == world.policy_of(claim.queued):
        return FIRST if _over_own(world, claim, entry, level) else None
    return _over_others(world, claim, entry, level)


def _over_others(world: World, claim: Taker, entry: Entry, level: PreemptionMode) -> int | None:
    queued = claim.queued
    mine, theirs = divergence_level(world, world.policy_of(queued), entry.policy)
    is_exempt = queued.can_exceed_limit and queued.is_preemptible
    is_fair = world.snapshot.settings.over_quota is OverQuotaMode.FAIR_SHARE
    if all(is_over(world, policy, entry) for policy in theirs):
        if not is_exempt and covers_wholly(world, mine, queued):
            return FIRST
        if is_fair and (choice := _by_share(world, mine, theirs[0], claim, entry)) is not None:
            return choice
    if level is not PreemptionMode.RANK or is_fair:
        return None
    tier = world.tier(queued)
    top = world.chain(entry.policy)[0]
    if tier is None or not tier[0] or not is_over(world, top, entry):
        return None
    rank = world.serving_key(queued, claim.head, claim.pool)[:3]
    return FIRST if rank < _rank(world, entry) else None


def _by_share(world: World, mine: Id, theirs: Id, claim: Taker, entry: Entry) -> int | None:
    taker = share(world, mine, asked(claim.queued))
    if taker >= share(world, theirs, {}):
        return None
    less = {key: -entry.total(key) for key in entry.request.positive()}
    return FIRST if taker <= share(world, theirs, less) else SECOND_CHOICE


def _rank(world: World, entry: Entry) -> tuple[int, int, int]:
    return (
        world.pools[entry.pool].profiles.index(entry.profile),
        world.profiles[entry.profile].policies.index(entry.policy),
        -entry.priority,
    )


def _over_own(world: World, claim: Taker, entry: Entry, level: PreemptionMode) -> bool:
    queued = claim.queued
    place = (*_rank(world, entry), 1, entry.submitted_us, entry.task)
    if place <= world.serving_key(queued, claim.head, claim.pool):
        return False
    if not queued.is_preemptible and entry.priority <= queued.priority:
        return True
    if level is PreemptionMode.RECLAIM or entry.priority >= queued.priority:
        return False
    if queued.can_exceed_limit and not entry.is_exempt:
        return False
    reserved = world.reserved(entry.policy)
    missing = {key for key, _ in shortages(world, claim)}
    missing.update(key for _, key, _ in world.short_limits(queued))
    return all(asked(queued)[key] <= reserved.get(key, 0) for key in missing)


def shortages(world: World, claim: Taker) -> Iterable[tuple[str, int]]:
    """Keys that the pool is short of; all of them where only its nodes are short."""
    pool = world.pools[claim.pool]
    wanted = asked(claim.queued)
    short = []
    for key, amount in wanted.items():
        free = world.free(pool, key)
        if free is not None and free < amount:
            short.append((key, amount))
    if not short and not world.fits(claim.queued, pool):
        return list(wanted.items())
    return short


def has_use_for(world: World, claim: Taker, entry: Entry) -> bool:
    """Whether it holds anything that the claim lacks, in the pool or in a limit."""
    if any(entry.request.get(key) > 0 for key, _ in shortages(world, claim)):
        return True
    return any(
        entry.request.get(key) > 0
        and policy in world.chain(entry.policy)
        and (not is_of_user or entry.user == claim.queued.user)
        for policy, key, is_of_user in world.short_limits(claim.queued)
    )


def worst_first(world: World, claim: Taker, entry: Entry, choice: int) -> tuple[object, ...]:
    """The order in which victims of other policies are chosen."""
    is_fair = world.snapshot.settings.over_quota is OverQuotaMode.FAIR_SHARE
    shares: tuple[tuple[bool, Fraction], ...] = ()
    if is_fair:
        _, theirs = divergence_level(world, world.policy_of(claim.queued), entry.policy)
        found = [share(world, policy, {}) for policy in theirs]
        shares = tuple((not is_endless, -amount) for is_endless, amount in found)
    facts = world.policies[entry.policy]
    return (
        choice,
        shares,
        entry.priority,
        (-facts.rank, facts.name),
        -_begun_us(world, entry),
        entry.task,
    )


def _begun_us(world: World, entry: Entry) -> int:
    """What it did since would be lost; what the pass placed has done nothing."""
    if entry.started_us < 0:
        return world.snapshot.now_us
    return max(entry.started_us, entry.checkpointed_us or entry.started_us)


def taken_one_by_one(
    world: World, claim: Taker, *, placed: bool, most: int = 30
) -> list[Entry] | None:
    """Others' work, worst first, rights judged again after each, until it fits; None: never.

    Args:
        placed: what the pass placed may be displaced, except that of strict policies.
    """
    taken: list[Entry] = []
    pool = world.pools[claim.pool]
    for _ in range(most):
        if world.fits(claim.queued, pool) and world.within_limits(claim.queued):
            return taken
        own = world.policy_of(claim.queued)
        found = [
            (worst_first(world, claim, entry, choice), entry)
            for entry in world.entries
            if entry.pool == claim.pool
            and (entry.started_us >= 0 or (placed and not world.is_strict(entry.policy)))
            and entry.policy != own
            and has_use_for(world, claim, entry)
            and (choice := right_over(world, claim, entry)) is not None
        ]
        if not found:
            return None
        _, victim = min(found, key=lambda one: one[0])
        taken.append(victim)
        world = world.without(victim.task)
    return None


def is_rightful(world: World, claim: Taker, victims: list[Entry]) -> bool:
    """Whether each of them, in turn, is within the claim's rights once the earlier are gone.

    Args:
        world: with all of them still there, and without the task that claims.
    """
    for victim in victims:
        if right_over(world, claim, victim) is None:
            return False
        world = world.without(victim.task)
    return True
