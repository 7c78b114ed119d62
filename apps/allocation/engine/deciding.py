"""The engine's one entry: a snapshot in, a plan out."""

from __future__ import annotations

from apps.allocation.engine.claims import Victim
from apps.allocation.engine.compiled import UNCOUNTED, Compiled
from apps.allocation.engine.drains import Drains
from apps.allocation.engine.explaining import all_disabled, explain
from apps.allocation.engine.keeping import borrow, give_back
from apps.allocation.engine.moving import Moved
from apps.allocation.engine.plan import Figures, Move, Place, Plan, Preempt
from apps.allocation.engine.snapshot import Snapshot
from apps.allocation.engine.standing import name_of
from apps.allocation.engine.walking import holds_now, walk_standings
from apps.allocation.engine.working import Pass, Placed


def decide(snapshot: Snapshot, *, at_most: int | None = None) -> Plan:
    """Choose which waiting tasks start, and where.

    Goes through the standings, best first (docs/allocation.md, "One pass"). Ties go by names
    and ids, so one snapshot gives one plan, in whatever order its rows come.

    Args:
        at_most: how many tasks may start; what is left over is decided by the next pass.

    Returns:
        Every waiting head of the snapshot exactly once, placed or waiting with its reasons.
    """
    kept = borrow(snapshot)
    if snapshot.settings.is_enabled:
        plan = _decided(Pass(kept, UNCOUNTED if at_most is None else at_most))
    else:
        plan = Plan(waiting=all_disabled(kept.compiled))
    give_back(kept)
    return plan


def _decided(state: Pass) -> Plan:
    compiled = state.compiled
    taking = walk_standings(state)
    victims = taking.victims
    instead = state.seat_in_order()
    everyone: list[Victim | Moved] = [*victims, *taking.moved]
    for taken in everyone:
        taken.beneficiary = instead.get(taken.beneficiary, taken.beneficiary)
    drains = Drains(state, everyone)
    return Plan(
        placed=tuple(_place(state, placed, drains) for placed in state.placed),
        waiting=explain(state, holds_now(state), taking.rights),
        preempted=tuple(_preempt(compiled, victim) for victim in victims),
        moved=tuple(_move(state, moved) for moved in taking.moved),
        taken_again=taking.taken_again(),
        figures=Figures(walks=state.walks, matches=state.matches, rounds=state.rounds),
    )


def _preempt(compiled: Compiled, victim: Victim) -> Preempt:
    pool = compiled.pools[victim.flock.pool].id
    return Preempt(task=victim.held.task, pool=pool, beneficiary=victim.beneficiary)


def _move(state: Pass, moved: Moved) -> Move:
    pool = moved.flock.pool
    site = state.sites[pool]
    return Move(
        task=moved.held.task,
        pool=state.compiled.pools[pool].id,
        beneficiary=moved.beneficiary,
        members=tuple(site.member(seat) for seat in moved.anew) if site else (),
    )


def _place(state: Pass, placed: Placed, drains: Drains) -> Place:
    compiled: Compiled = state.compiled
    site = state.sites[placed.pool]
    task = placed.work.head(placed.number).task
    return Place(
        task=task,
        queue=placed.work.queue.id,
        pool=compiled.pools[placed.pool].id,
        standing=name_of(placed.standing, compiled.depth),
        members=tuple(site.member(seat) for seat in placed.seats) if site else (),
        waits_for=drains.waited_for(placed, task),
    )
