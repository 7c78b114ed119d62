"""Whether a victim still fits next to everything that the pass placed."""

from __future__ import annotations

from apps.allocation.engine.quota.tiers import tier_of
from apps.allocation.engine.state.working_state import WorkingState
from apps.allocation.engine.steps.preemption.candidate_groups import CandidateGroup
from apps.allocation.engine.steps.preemption.entitlement import ChosenVictim


def can_restore(state: WorkingState, victim: ChosenVictim) -> bool:
    """On the node and devices that it had, within every limit."""
    candidate = victim.candidate
    if not state.free_capacities[candidate.pool].could_retake(candidate.shape, victim.members):
        return False
    return _is_within_limits(state, candidate) and _may_start(state, victim)


def _is_within_limits(state: WorkingState, candidate: CandidateGroup) -> bool:
    uses = state.ledger.limit_uses(
        candidate.chain,
        candidate.shape.amounts,
        user=candidate.user,
        is_exempt=candidate.is_exempt,
    )
    return not any(one.is_exceeded for one in uses)


def _may_start(state: WorkingState, victim: ChosenVictim) -> bool:
    """What this pass placed and displaced must be admitted once more; running work need not.

    It left its group, so it is judged by its own place, not by that of the group's next task.
    """
    candidate = victim.candidate
    if candidate.group is None:
        return True
    tier = tier_of(state.ledger, candidate.group) if state.left else None
    key = candidate.serving_key(victim.running_task)
    return tier is not None and state.may_enter(key, candidate.pool, tier)
