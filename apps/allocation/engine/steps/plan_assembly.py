"""The plan of a finished pass, with the ids of the snapshot."""

from __future__ import annotations

from apps.allocation.engine.compile.compiled_snapshot import CompiledSnapshot
from apps.allocation.engine.model.plan import Move, PassFigures, Placement, Plan, Preempt, Wait
from apps.allocation.engine.quota.tiers import name_of
from apps.allocation.engine.state.working_state import PlacedTask, WorkingState
from apps.allocation.engine.steps.drains import Drains
from apps.allocation.engine.steps.preemption.consolidation import Relocation
from apps.allocation.engine.steps.preemption.entitlement import ChosenVictim
from apps.allocation.engine.steps.preemption.step import PreemptionStep


def assemble_plan(
    state: WorkingState, preemption: PreemptionStep, waiting: tuple[Wait, ...]
) -> Plan:
    """Everything that the pass decided; what is placed waits for its victims to end."""
    victims = preemption.victims
    drains = Drains(state, [*victims, *preemption.moved])
    return Plan(
        placed=tuple(_placement(state, placed, drains) for placed in state.placed),
        waiting=waiting,
        preempted=tuple(_preempt(state.compiled, victim) for victim in victims),
        moved=tuple(_move(state, moved) for moved in preemption.moved),
        displaced=preemption.displaced(),
        figures=PassFigures(walks=state.walks, matches=state.matches, rounds=state.rounds),
    )


def _placement(state: WorkingState, placed: PlacedTask, drains: Drains) -> Placement:
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
