"""Laws 3, 4 and 6: no waste, no justified envy, and covered work gets what is claimable."""

from __future__ import annotations

from dataclasses import dataclass

from apps.allocation.engine.model.plan import Placement
from apps.allocation.engine.model.snapshot import Id, OverQuotaMode, QueuedGroup, QueuedTask
from tests.allocation.engine.laws.claims import Taker, taken_one_by_one
from tests.allocation.engine.laws.history import Moment
from tests.allocation.engine.laws.holds import held_against, holds_of
from tests.allocation.engine.oracle import World


def nothing_is_wasted(moment: Moment) -> None:
    """Law 3: no waiting task fits into what is free and not held, within budgets and `strict`.

    Except what was placed in this pass and displaced. Every waiting task is named once, with a
    reason.
    """
    _all_are_named(moment)
    world = moment.world
    holds = holds_of(world)
    again = set(moment.plan.displaced)
    for queued in moment.snapshot.queued_groups:
        tier = world.tier(queued)
        if tier is None or not world.within_limits(queued) or world.is_excluded(queued):
            continue
        waiting = [one for one in world.waiting(queued) if one.task not in again]
        for head in waiting[:1]:
            for pool in world.open_pools(queued):
                if not world.pools[pool].has_backfill or world.is_behind(queued, head, pool):
                    continue
                held = held_against(holds, pool, head.task, is_over=tier[0])
                fits = world.fits(queued, world.pools[pool], held)
                assert not fits, f"{head.task} waits, and fits into {pool}"


def _all_are_named(moment: Moment) -> None:
    plan, queued_groups = moment.plan, moment.snapshot.queued_groups
    named: list[Id] = [place.task for place in plan.placed]
    named += [task for wait in plan.waiting for task in wait.tasks]
    want = [head.task for queued in queued_groups for head in queued.heads]
    assert sorted(named) == sorted(want)
    assert all(wait.reasons for wait in plan.waiting)
    count = sum(wait.count for wait in plan.waiting) + len(plan.placed)
    assert count == sum(queued.count for queued in queued_groups)


@dataclass(frozen=True)
class Assigned:
    """A task of the waiting work, and where it was placed, if it was."""

    queued: QueuedGroup
    head: QueuedTask
    place: Placement | None


def nobody_envies_with_reason(moment: Moment) -> None:
    """Law 4: no task placed in free capacity ranks below an equal task that is worse off for it."""
    is_fair = moment.snapshot.settings.over_quota is OverQuotaMode.FAIR_SHARE
    assigned = [
        Assigned(queued, head, moment.places.get(head.task))
        for queued in moment.snapshot.queued_groups
        for head in queued.heads
    ]
    for theirs in assigned:
        place = theirs.place
        if place is None or place.waits_for or (place.tier == "over_quota" and is_fair):
            continue
        for mine in assigned:
            if mine.head.task == theirs.head.task or _is_tied_to_its_victims(moment, mine):
                continue
            if _had_to_wait_its_turn(moment, mine, place):
                continue
            is_envious = _envies(moment.world, mine, theirs, place)
            assert not is_envious, f"{mine.head.task} envies {theirs.head.task}"
    _runs_are_in_order(moment)


def _envies(world: World, mine: Assigned, theirs: Assigned, place: Placement) -> bool:
    """Whether a task that waits, or has a later pool, should have had the other's place."""
    if not _are_equal(world, mine.queued, theirs.queued) or world.is_excluded(mine.queued):
        return False
    pools = world.open_pools(mine.queued)
    if place.pool not in pools:
        return False
    if mine.place and pools.index(mine.place.pool) <= pools.index(place.pool):
        return False
    key = world.serving_key(mine.queued, mine.head, place.pool)
    if key > world.serving_key(theirs.queued, theirs.head, place.pool):
        return False
    if _is_held_back(world, mine, theirs, place.pool):
        return False
    if not _stands_as_well(world, mine, place) and not _had_its_budget(world, mine, theirs):
        return False
    return not _is_held(world.without(theirs.head.task), mine, place)


def _is_tied_to_its_victims(moment: Moment, mine: Assigned) -> bool:
    """Whether it has that pool since its limits only hold without its victims, which are there:
    a task preempts in the pool that it is placed in.
    """
    taken = {one.task for one in moment.plan.preempted if one.beneficiary == mine.head.task}
    if not taken:
        return False
    victims = [entry for entry in moment.before.entries if entry.task in taken]
    return (
        not moment.world.without(mine.head.task).with_entries(*victims).within_limits(mine.queued)
    )


def _had_to_wait_its_turn(moment: Moment, mine: Assigned, place: Placement) -> bool:
    """Whether strict order let it begin only after an earlier task, which was served later than
    the other, since its tier is worse.
    """
    world, policy = moment.world, moment.world.policy_of(mine.queued)
    if not world.is_strict(policy):
        return False
    ranks = ["reserved", "borrowed", "over_quota"]
    key = world.strict_key(mine.queued, mine.head)
    return any(
        world.policy_of(moment.queued_groups[task]) == policy
        and world.strict_key(moment.queued_groups[task], moment.heads[task]) < key
        and ranks.index(one.tier) > ranks.index(place.tier)
        for task, one in moment.places.items()
    )


def _are_equal(world: World, queued: QueuedGroup, other: QueuedGroup) -> bool:
    models = world.profile_of(queued).models == world.profile_of(other).models
    return (queued.request, queued.replicas) == (other.request, other.replicas) and models


def _is_held_back(world: World, mine: Assigned, theirs: Assigned, pool: Id) -> bool:
    """Whether strict order lets it not start there, or not before the other."""
    if world.is_behind(mine.queued, mine.head, pool):
        return True
    policy = world.policy_of(mine.queued)
    if not world.is_strict(policy) or policy != world.policy_of(theirs.queued):
        return False
    return world.strict_key(theirs.queued, theirs.head) < world.strict_key(mine.queued, mine.head)


def _is_held(then: World, mine: Assigned, place: Placement) -> bool:
    """Whether that capacity was held for a reservation, before the other was placed in it."""
    tier = then.tier(mine.queued)
    if tier is None:
        return False
    held = held_against(holds_of(then), place.pool, mine.head.task, is_over=tier[0])
    return bool(held) and not then.fits(mine.queued, then.pools[place.pool], held)


def _stands_as_well(world: World, mine: Assigned, place: Placement) -> bool:
    """Surely the same or better tier, within budgets: a plan names only three of them."""
    depth = max(len(world.chain(policy)) for policy in world.policies)
    best = {
        "reserved": (False,) * depth,
        "borrowed": (*(False,) * (depth - 1), True),
        "over_quota": (True, *(False,) * (depth - 1)),
    }
    if mine.place is not None:
        ranks = list(best)
        here, there = ranks.index(mine.place.tier), ranks.index(place.tier)
        return here < there or (here == there and (here == 0 or depth == 1))
    tier = world.tier(mine.queued)
    if tier is None or not world.within_limits(mine.queued):
        return False
    return tier <= best[place.tier]


def _had_its_budget(world: World, mine: Assigned, theirs: Assigned) -> bool:
    """Whether the other, of the same policy and later in every order, used up its budget."""
    if mine.place is not None or world.policy_of(mine.queued) != world.policy_of(theirs.queued):
        return False
    flags = ("is_preemptible", "can_exceed_limit", "user")
    if any(getattr(mine.queued, flag) != getattr(theirs.queued, flag) for flag in flags):
        return False
    if mine.queued.queue != theirs.queued.queue:
        return False
    then = world.without(theirs.head.task)
    return then.within_limits(mine.queued) and then.tier(mine.queued) is not None


def _runs_are_in_order(moment: Moment) -> None:
    """Within a group the earlier task is never worse off."""
    for queued in moment.snapshot.queued_groups:
        routing = moment.world.profile_of(queued).pools
        if moment.world.is_strict(moment.world.policy_of(queued)):
            continue
        ranks = [
            routing.index(moment.places[head.task].pool)
            if head.task in moment.places
            else len(routing)
            for head in queued.heads
        ]
        assert ranks == sorted(ranks), f"a run of {queued.queue} is served out of order: {ranks}"


def strict_order_holds(moment: Moment) -> None:
    """Law 4 for strict policies: none starts before an earlier one that waits for that pool."""
    for task, place in moment.places.items():
        is_behind = moment.world.is_behind(
            moment.queued_groups[task], moment.heads[task], place.pool
        )
        assert not is_behind, f"{task} started before its turn"


def covered_work_gets_its_claims(moment: Moment) -> None:
    """Law 6: a preemptible task that every level covers waits only where preemption, one by one
    and worst first, ends before the task fits; this pass's placements are among the victims.
    """
    world = moment.world
    for queued in moment.snapshot.queued_groups:
        tier = world.tier(queued)
        if tier is None or any(tier) or not queued.is_preemptible or world.is_excluded(queued):
            continue
        if not world.within_limits(queued):
            continue
        for head in world.waiting(queued)[:1]:
            for pool in world.open_pools(queued):
                if world.pools[pool].has_backfill and not world.is_behind(queued, head, pool):
                    _cannot_take(world, Taker(queued, head, pool))


def _cannot_take(world: World, claim: Taker) -> None:
    """Neither from what ran before, nor with what the pass placed, which comes first."""
    found = [taken_one_by_one(world, claim, placed=placed) for placed in (False, True)]
    names = [[one.task for one in victims or ()] for victims in found]
    is_stuck = None in found
    assert is_stuck, f"{claim.head.task} waits, and could take {names} in {claim.pool}"
