"""Who may take what from whom, read plainly from docs/allocation.md, "Taking back"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from apps.allocation.engine.snapshot import Head, Id, OverQuota, Preemption, Run
from tests.allocation.engine.laws.history import SECOND
from tests.allocation.engine.oracle import OPTIONAL, Entry, World

Share = tuple[bool, Fraction]
FIRST, SECOND_CHOICE = 0, 1


@dataclass(frozen=True, slots=True)
class Claim:
    """A waiting task that asks for room in a pool."""

    run: Run
    head: Head
    pool: Id


def is_protected(world: World, entry: Entry) -> bool:
    """Whether nobody may take it: not preemptible, stopping, too new, or stopped too often."""
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


def covers_wholly(world: World, policy: Id, run: Run) -> bool:
    """By the whole usage of the policy, with the task."""
    reserved = world.reserved(policy)
    named = [key for key in run.request.positive() if key in reserved]
    return bool(named) and all(
        world.usage(policy, key) + run.request.get(key) * run.replicas <= reserved[key]
        for key in named
    )


def parted(world: World, mine: Id, theirs: Id) -> tuple[Id, list[Id]]:
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


def asked(run: Run) -> dict[str, int]:
    return {key: amount * run.replicas for key, amount in run.request.items() if amount > 0}


def right_over(world: World, claim: Claim, entry: Entry) -> int | None:
    """FIRST or SECOND_CHOICE: the claim may take it now; None: it may not."""
    level = world.level(claim.pool)
    if level is Preemption.NONE or is_protected(world, entry):
        return None
    if entry.policy == world.policy_of(claim.run):
        return FIRST if _over_own(world, claim, entry, level) else None
    return _over_others(world, claim, entry, level)


def _over_others(world: World, claim: Claim, entry: Entry, level: Preemption) -> int | None:
    run = claim.run
    mine, theirs = parted(world, world.policy_of(run), entry.policy)
    is_exempt = run.can_exceed_limit and run.is_preemptible
    is_fair = world.snapshot.settings.over_quota is OverQuota.FAIR_SHARE
    if all(is_over(world, policy, entry) for policy in theirs):
        if not is_exempt and covers_wholly(world, mine, run):
            return FIRST
        if is_fair and (tier := _by_share(world, mine, theirs[0], claim, entry)) is not None:
            return tier
    if level is not Preemption.RANK or is_fair:
        return None
    standing = world.standing(run)
    top = world.chain(entry.policy)[0]
    if standing is None or not standing[0] or not is_over(world, top, entry):
        return None
    rank = world.serving_key(run, claim.head, claim.pool)[:3]
    return FIRST if rank < _rank(world, entry) else None


def _by_share(world: World, mine: Id, theirs: Id, claim: Claim, entry: Entry) -> int | None:
    taker = share(world, mine, asked(claim.run))
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


def _over_own(world: World, claim: Claim, entry: Entry, level: Preemption) -> bool:
    run = claim.run
    place = (*_rank(world, entry), 1, entry.submitted_us, entry.task)
    if place <= world.serving_key(run, claim.head, claim.pool):
        return False
    if not run.is_preemptible and entry.priority <= run.priority:
        return True
    if level is Preemption.RECLAIM or entry.priority >= run.priority:
        return False
    if run.can_exceed_limit and not entry.is_exempt:
        return False
    reserved = world.reserved(entry.policy)
    missing = {key for key, _ in shortages(world, claim)}
    missing.update(key for _, key, _ in world.short_limits(run))
    return all(asked(run)[key] <= reserved.get(key, 0) for key in missing)


def shortages(world: World, claim: Claim) -> Iterable[tuple[str, int]]:
    """Keys that the pool is short of; all of them where only its nodes are short."""
    pool = world.pools[claim.pool]
    wanted = asked(claim.run)
    short = []
    for key, amount in wanted.items():
        free = world.free(pool, key)
        if free is not None and free < amount:
            short.append((key, amount))
    if not short and not world.fits(claim.run, pool):
        return list(wanted.items())
    return short


def has_use_for(world: World, claim: Claim, entry: Entry) -> bool:
    """Whether it holds anything that the claim lacks, in the pool or in a limit."""
    if any(entry.request.get(key) > 0 for key, _ in shortages(world, claim)):
        return True
    return any(
        entry.request.get(key) > 0
        and policy in world.chain(entry.policy)
        and (not is_of_user or entry.user == claim.run.user)
        for policy, key, is_of_user in world.short_limits(claim.run)
    )


def worst_first(world: World, claim: Claim, entry: Entry, tier: int) -> tuple[object, ...]:
    """The order in which victims are taken, of other policies."""
    is_fair = world.snapshot.settings.over_quota is OverQuota.FAIR_SHARE
    shares: tuple[tuple[bool, Fraction], ...] = ()
    if is_fair:
        _, theirs = parted(world, world.policy_of(claim.run), entry.policy)
        found = [share(world, policy, {}) for policy in theirs]
        shares = tuple((not is_endless, -amount) for is_endless, amount in found)
    facts = world.policies[entry.policy]
    return (
        tier,
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
    world: World, claim: Claim, *, placed: bool, most: int = 30
) -> list[Entry] | None:
    """Others' work, worst first, rights judged afresh, until there is room; None: never.

    Args:
        placed: what the pass placed may be taken again, but for that of strict policies.
    """
    taken: list[Entry] = []
    pool = world.pools[claim.pool]
    for _ in range(most):
        if world.fits(claim.run, pool) and world.within_limits(claim.run):
            return taken
        own = world.policy_of(claim.run)
        found = [
            (worst_first(world, claim, entry, tier), entry)
            for entry in world.entries
            if entry.pool == claim.pool
            and (entry.started_us >= 0 or (placed and not world.is_strict(entry.policy)))
            and entry.policy != own
            and has_use_for(world, claim, entry)
            and (tier := right_over(world, claim, entry)) is not None
        ]
        if not found:
            return None
        _, victim = min(found, key=lambda one: one[0])
        taken.append(victim)
        world = world.without(victim.task)
    return None


def is_rightful(world: World, claim: Claim, victims: list[Entry]) -> bool:
    """Whether each of them, in turn, is within the claim's rights once the earlier are gone.

    Args:
        world: with all of them still there, and without the task that claims.
    """
    for victim in victims:
        if right_over(world, claim, victim) is None:
            return False
        world = world.without(victim.task)
    return True
