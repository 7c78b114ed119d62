"""Law 5: no pointless preemption."""

from __future__ import annotations

from apps.allocation.engine.model.plan import Move, Placement, Plan, Preempt, Tier
from apps.allocation.engine.model.snapshot import Id
from tests.allocation.engine.laws.claims import Taker, is_rightful
from tests.allocation.engine.laws.history import Moment
from tests.allocation.engine.oracle import Entry, World, running_entries, world_after


def every_victim_is_needed(moment: Moment) -> None:
    """Each has a beneficiary that is placed in its pool and waits for it; put any one back, and
    it does not fit with everything placed, or its beneficiary has no right to the others.
    """
    plan = moment.plan
    owners = {entry.task: entry for entry in running_entries(moment.snapshot)}
    everyone: list[Preempt | Move] = [*plan.preempted, *plan.moved]
    for one in everyone:
        place = moment.places.get(one.beneficiary)
        assert place is not None, f"{one.task} stops for no task"
        assert place.pool == one.pool == owners[one.task].pool
        assert one.task in place.waits_for
    victims: dict[Id, list[Entry]] = {}
    for taken in plan.preempted:
        victims.setdefault(taken.beneficiary, []).append(owners[taken.task])
    for beneficiary, taken_for in victims.items():
        for victim in taken_for:
            if _can_restore(moment.world, victim):
                others = [one for one in taken_for if one is not victim]
                assert not _has_right_to(moment, beneficiary, taken_for, others), (
                    f"{victim.task} is stopped for nothing"
                )


def _can_restore(world: World, victim: Entry) -> bool:
    """Whether it fits where its members were, with everything placed, within every limit."""
    restored = world.with_entries(victim)
    pool = restored.pools[victim.pool]
    for key in victim.request.positive():
        free = restored.free(pool, key)
        if free is not None and free < 0:
            return False
    mine = {member.node for member in victim.members}
    for node in pool.nodes:
        if node.id not in mine:
            continue
        short = [
            key for key in victim.request.positive() if (restored.node_free(node, key) or 0) < 0
        ]
        if short or any(free < 0 for free in restored.gpus_free(node)):
            return False
    return _within_limits(restored, victim)


def _within_limits(restored: World, victim: Entry) -> bool:
    for policy in restored.chain(victim.policy):
        facts = restored.policies[policy]
        is_counted = not (victim.is_exempt and policy == victim.policy)
        for key in victim.request.positive():
            if is_counted and restored.counted(policy, key) > facts.limit.get(key, 1 << 60):
                return False
            used = restored.used_by(victim.user, policy, key)
            if victim.user is not None and used > facts.user_limit.get(key, 1 << 60):
                return False
    return True


def _has_right_to(
    moment: Moment, beneficiary: Id, taken_for: list[Entry], others: list[Entry]
) -> bool:
    """Judged at the end of the pass, as if the beneficiary had not been placed yet.

    It may also have needed the right to what the pass had placed and displaced.
    """
    world = moment.world.without(beneficiary).with_entries(*taken_for)
    place = moment.places[beneficiary]
    claim = Taker(moment.queued_groups[beneficiary], moment.heads[beneficiary], place.pool)
    again = _displaced(moment, place.pool)
    return is_rightful(world, claim, others) and (
        not again or is_rightful(world.with_entries(*again), claim, [*others, *again])
    )


def _displaced(moment: Moment, pool: Id) -> list[Entry]:
    """Work that the pass displaced and that may have been in that pool, as if it was."""
    queued_groups = {task: moment.queued_groups[task] for task in moment.plan.displaced}
    places = tuple(
        Placement(task, queued.queue, pool, Tier.RESERVED)
        for task, queued in queued_groups.items()
        if pool in moment.world.open_pools(queued)
    )
    entries = world_after(moment.snapshot, Plan(placed=places)).entries
    return [entry for entry in entries if entry.task in queued_groups]
