"""The entry point of the engine: a snapshot in, a plan out."""

from __future__ import annotations

from apps.allocation.engine.compile.compiled_snapshot import UNCOUNTED, CompiledSnapshot
from apps.allocation.engine.explain.wait_reasons import all_disabled, explain
from apps.allocation.engine.model.plan import Move, PassFigures, Placement, Plan, Preempt
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.engine.quota.tiers import name_of
from apps.allocation.engine.state.engine_cache import acquire, release
from apps.allocation.engine.state.working_state import PlacedTask, WorkingState
from apps.allocation.engine.steps.drains import Drains
from apps.allocation.engine.steps.preemption.consolidation import Relocation
from apps.allocation.engine.steps.preemption.victim_search import ChosenVictim
from apps.allocation.engine.steps.tier_walk import holds_now, walk_tiers


def decide(snapshot: Snapshot, *, at_most: int | None = None) -> Plan:
    """Choose which waiting tasks start, and where.

    Walks the tiers, best first (docs/allocation.md, "One pass"). Names and ids settle ties, so
    one snapshot gives one plan, in whatever order its rows come.

    Args:
        at_most: how many tasks may start; the next pass decides the rest.

    Returns:
        Every waiting head of the snapshot exactly once, placed or waiting with its reasons.
    """
    cached = acquire(snapshot)
    if snapshot.settings.is_enabled:
        plan = _decided(WorkingState(cached, UNCOUNTED if at_most is None else at_most))
    else:
        plan = Plan(waiting=all_disabled(cached.compiled))
    release(cached)
    return plan


def _decided(state: WorkingState) -> Plan:
    compiled = state.compiled
    preemption = walk_tiers(state)
    victims = preemption.victims
    instead = state.placements_in_order()
    victims_and_moves: list[ChosenVictim | Relocation] = [*victims, *preemption.moved]
    for stopped in victims_and_moves:
        stopped.beneficiary = instead.get(stopped.beneficiary, stopped.beneficiary)
    drains = Drains(state, victims_and_moves)
    return Plan(
        placed=tuple(_place(state, placed, drains) for placed in state.placed),
        waiting=explain(state, holds_now(state), preemption.rights),
        preempted=tuple(_preempt(compiled, victim) for victim in victims),
        moved=tuple(_move(state, moved) for moved in preemption.moved),
        displaced=preemption.displaced(),
        figures=PassFigures(walks=state.walks, matches=state.matches, rounds=state.rounds),
    )


def _preempt(compiled: CompiledSnapshot, victim: ChosenVictim) -> Preempt:
    pool = compiled.pools[victim.candidate.pool].id
    return Preempt(task=victim.running_task.task, pool=pool, beneficiary=victim.beneficiary)


def _move(state: WorkingState, moved: Relocation) -> Move:
    pool = moved.candidate.pool
    layout = state.layouts[pool]
    return Move(
        task=moved.running_task.task,
        pool=state.compiled.pools[pool].id,
        beneficiary=moved.beneficiary,
        members=tuple(layout.member(member) for member in moved.new_members) if layout else (),
    )


def _place(state: WorkingState, placed: PlacedTask, drains: Drains) -> Placement:
    compiled: CompiledSnapshot = state.compiled
    layout = state.layouts[placed.pool]
    task = placed.group.head(placed.number).task
    return Placement(
        task=task,
        queue=placed.group.queue.id,
        pool=compiled.pools[placed.pool].id,
        tier=name_of(placed.tier, compiled.depth),
        members=tuple(layout.member(member) for member in placed.members) if layout else (),
        waits_for=drains.waited_for(placed, task),
    )
