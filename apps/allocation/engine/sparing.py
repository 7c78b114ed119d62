"""Whether a victim could stay after all, beside everything that the pass placed."""

from __future__ import annotations

from apps.allocation.engine.claims import Victim
from apps.allocation.engine.flocks import Flock
from apps.allocation.engine.standing import standing_of
from apps.allocation.engine.working import Pass


def could_stay(state: Pass, victim: Victim) -> bool:
    """On the node and devices that it had, within every limit."""
    flock = victim.flock
    if not state.rooms[flock.pool].could_retake(flock.shape, victim.seats):
        return False
    return _is_within_limits(state, flock) and _may_start(state, flock)


def _is_within_limits(state: Pass, flock: Flock) -> bool:
    ledger = state.ledger
    compiled = state.compiled
    for policy in flock.chain:
        limits = compiled.limits[policy]
        user_limits = compiled.user_limits[policy] if flock.user is not None else {}
        for key, amount in flock.shape.amounts:
            is_counted = key in limits and not (flock.is_exempt and policy == flock.policy)
            if is_counted and ledger.counted(policy, key) + amount > limits[key]:
                return False
            if flock.user is not None and key in user_limits:
                used = ledger.user_usage(policy, flock.user)[key]
                if used + amount > user_limits[key]:
                    return False
    return True


def _may_start(state: Pass, flock: Flock) -> bool:
    """What this pass placed and took again has to be admitted once more; running work has not."""
    work = flock.work
    if work is None:
        return True
    standing = standing_of(state.ledger, work) if state.left else None
    return standing is not None and state.may_enter(work, flock.pool, standing)
