"""Laws 3, 4 and 6: no waste, no justified envy, and covered work gets what is claimable."""

from __future__ import annotations

from dataclasses import dataclass

from apps.allocation.engine.plan import Place
from apps.allocation.engine.snapshot import Head, Id, OverQuota, Run
from tests.allocation.engine.laws.claims import Claim, taken_one_by_one
from tests.allocation.engine.laws.history import Moment
from tests.allocation.engine.laws.holding import held_against, holds_of
from tests.allocation.engine.oracle import World


def nothing_is_wasted(moment: Moment) -> None:
    """Law 3: no waiting task fits into what is free and not held, within budgets and `strict`.

    Except what was placed in this pass and taken again. Every waiting task is named once, with a
    reason.
    """
    _all_are_named(moment)
    world = moment.world
    holds = holds_of(world)
    again = set(moment.plan.taken_again)
    for run in moment.snapshot.runs:
        standing = world.standing(run)
        if standing is None or not world.within_limits(run) or world.is_paused(run):
            continue
        waiting = [one for one in world.waiting(run) if one.task not in again]
        for head in waiting[:1]:
            for pool in world.open_pools(run):
                if not world.pools[pool].has_backfill or world.is_behind(run, head, pool):
                    continue
                held = held_against(holds, pool, head.task, is_over=standing[0])
                fits = world.fits(run, world.pools[pool], held)
                assert not fits, f"{head.task} waits, and there is room for it in {pool}"


def _all_are_named(moment: Moment) -> None:
    plan, runs = moment.plan, moment.snapshot.runs
    named: list[Id] = [place.task for place in plan.placed]
    named += [task for wait in plan.waiting for task in wait.tasks]
    want = [head.task for run in runs for head in run.heads]
    assert sorted(named) == sorted(want)
    assert all(wait.reasons for wait in plan.waiting)
    count = sum(wait.count for wait in plan.waiting) + len(plan.placed)
    assert count == sum(run.count for run in runs)


@dataclass(frozen=True)
class Seat:
    """A task of the waiting work, and where it was placed, if it was."""

    run: Run
    head: Head
    place: Place | None


def nobody_envies_with_reason(moment: Moment) -> None:
    """Law 4: nobody placed in free room ranks below an equal task that is worse off for it."""
    is_fair = moment.snapshot.settings.over_quota is OverQuota.FAIR_SHARE
    seats = [
        Seat(run, head, moment.places.get(head.task))
        for run in moment.snapshot.runs
        for head in run.heads
    ]
    for theirs in seats:
        place = theirs.place
        if place is None or place.waits_for or (place.standing == "over_quota" and is_fair):
            continue
        for mine in seats:
            if mine.head.task == theirs.head.task or _is_tied_to_its_victims(moment, mine):
                continue
            if _had_to_wait_its_turn(moment, mine, place):
                continue
            is_envious = _envies(moment.world, mine, theirs, place)
            assert not is_envious, f"{mine.head.task} envies {theirs.head.task}"
    _runs_are_in_order(moment)


def _envies(world: World, mine: Seat, theirs: Seat, place: Place) -> bool:
    """Whether a task that waits, or sits in a later pool, should have had the other's place."""
    if not _are_equal(world, mine.run, theirs.run) or world.is_paused(mine.run):
        return False
    pools = world.open_pools(mine.run)
    if place.pool not in pools:
        return False
    if mine.place and pools.index(mine.place.pool) <= pools.index(place.pool):
        return False
    key = world.serving_key(mine.run, mine.head, place.pool)
    if key > world.serving_key(theirs.run, theirs.head, place.pool):
        return False
    if _is_held_back(world, mine, theirs, place.pool):
        return False
    if not _stands_as_well(world, mine, place) and not _had_its_budget(world, mine, theirs):
        return False
    return not _is_held(world.without(theirs.head.task), mine, place)


def _is_tied_to_its_victims(moment: Moment, mine: Seat) -> bool:
    """Whether it sits in that pool since its limits only hold without its victims, which are
    there: a task takes in the pool that it is placed in.
    """
    taken = {one.task for one in moment.plan.preempted if one.beneficiary == mine.head.task}
    if not taken:
        return False
    victims = [entry for entry in moment.before.entries if entry.task in taken]
    return not moment.world.without(mine.head.task).beside(*victims).within_limits(mine.run)


def _had_to_wait_its_turn(moment: Moment, mine: Seat, place: Place) -> bool:
    """Whether strict order let it begin only after an earlier task, which was served later than
    the other, since it stands worse.
    """
    world, policy = moment.world, moment.world.policy_of(mine.run)
    if not world.is_strict(policy):
        return False
    ranks = ["reserved", "lent", "over_quota"]
    key = world.strict_key(mine.run, mine.head)
    return any(
        world.policy_of(moment.runs[task]) == policy
        and world.strict_key(moment.runs[task], moment.heads[task]) < key
        and ranks.index(one.standing) > ranks.index(place.standing)
        for task, one in moment.places.items()
    )


def _are_equal(world: World, run: Run, other: Run) -> bool:
    models = world.profile_of(run).models == world.profile_of(other).models
    return (run.request, run.replicas) == (other.request, other.replicas) and models


def _is_held_back(world: World, mine: Seat, theirs: Seat, pool: Id) -> bool:
    """Whether strict order lets it not start there, or not before the other."""
    if world.is_behind(mine.run, mine.head, pool):
        return True
    policy = world.policy_of(mine.run)
    if not world.is_strict(policy) or policy != world.policy_of(theirs.run):
        return False
    return world.strict_key(theirs.run, theirs.head) < world.strict_key(mine.run, mine.head)


def _is_held(then: World, mine: Seat, place: Place) -> bool:
    """Whether that room was held for a reservation, before the other was placed in it."""
    standing = then.standing(mine.run)
    if standing is None:
        return False
    held = held_against(holds_of(then), place.pool, mine.head.task, is_over=standing[0])
    return bool(held) and not then.fits(mine.run, then.pools[place.pool], held)


def _stands_as_well(world: World, mine: Seat, place: Place) -> bool:
    """Surely the same or better standing, within budgets: a plan names only three of them."""
    depth = max(len(world.chain(policy)) for policy in world.policies)
    best = {
        "reserved": (False,) * depth,
        "lent": (*(False,) * (depth - 1), True),
        "over_quota": (True, *(False,) * (depth - 1)),
    }
    if mine.place is not None:
        ranks = list(best)
        here, there = ranks.index(mine.place.standing), ranks.index(place.standing)
        return here < there or (here == there and (here == 0 or depth == 1))
    standing = world.standing(mine.run)
    if standing is None or not world.within_limits(mine.run):
        return False
    return standing <= best[place.standing]


def _had_its_budget(world: World, mine: Seat, theirs: Seat) -> bool:
    """Whether the other, of the same policy and later in every order, used up its budget."""
    if mine.place is not None or world.policy_of(mine.run) != world.policy_of(theirs.run):
        return False
    flags = ("is_preemptible", "can_exceed_limit", "user")
    if any(getattr(mine.run, flag) != getattr(theirs.run, flag) for flag in flags):
        return False
    if mine.run.queue != theirs.run.queue:
        return False
    then = world.without(theirs.head.task)
    return then.within_limits(mine.run) and then.standing(mine.run) is not None


def _runs_are_in_order(moment: Moment) -> None:
    """Within a run the earlier task is never worse off."""
    for run in moment.snapshot.runs:
        routing = moment.world.profile_of(run).pools
        if moment.world.is_strict(moment.world.policy_of(run)):
            continue
        ranks = [
            routing.index(moment.places[head.task].pool)
            if head.task in moment.places
            else len(routing)
            for head in run.heads
        ]
        assert ranks == sorted(ranks), f"a run of {run.queue} is served out of order: {ranks}"


def strict_order_holds(moment: Moment) -> None:
    """Law 4 for strict policies: none starts before an earlier one that waits for that pool."""
    for task, place in moment.places.items():
        is_behind = moment.world.is_behind(moment.runs[task], moment.heads[task], place.pool)
        assert not is_behind, f"{task} started before its turn"


def covered_work_gets_its_claims(moment: Moment) -> None:
    """Law 6: a preemptible task that every level covers waits only where taking back, one by
    one and worst first, comes to an end without making room; this pass's placements among them.
    """
    world = moment.world
    for run in moment.snapshot.runs:
        standing = world.standing(run)
        if standing is None or any(standing) or not run.is_preemptible or world.is_paused(run):
            continue
        if not world.within_limits(run):
            continue
        for head in world.waiting(run)[:1]:
            for pool in world.open_pools(run):
                if world.pools[pool].has_backfill and not world.is_behind(run, head, pool):
                    _cannot_take(world, Claim(run, head, pool))


def _cannot_take(world: World, claim: Claim) -> None:
    """Neither from what ran before, nor with what the pass placed, which comes first."""
    found = [taken_one_by_one(world, claim, placed=placed) for placed in (False, True)]
    names = [[one.task for one in victims or ()] for victims in found]
    is_stuck = None in found
    assert is_stuck, f"{claim.head.task} waits, and could take {names} in {claim.pool}"
