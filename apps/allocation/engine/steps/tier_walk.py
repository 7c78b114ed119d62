"""One pass: walk the tiers, best first, until a whole walk places nothing."""

from __future__ import annotations

from apps.allocation.engine.compile.compiled_snapshot import GroupState
from apps.allocation.engine.model.snapshot import OverQuotaMode, PreemptionMode
from apps.allocation.engine.quota.holds import Holds, find_holds
from apps.allocation.engine.quota.tiers import is_over_quota, tier_of
from apps.allocation.engine.state.working_state import WorkingState
from apps.allocation.engine.steps.fair_fill import FairShareFill
from apps.allocation.engine.steps.improvement import complete_match
from apps.allocation.engine.steps.match import match_offers
from apps.allocation.engine.steps.preemption.step import PreemptionStep


def walk_tiers(state: WorkingState) -> PreemptionStep:
    """Place everything that can be placed. Returns the preemptions and moves for it."""
    preemption = PreemptionStep(state)
    is_settled = False
    while not is_settled:
        while state.left > 0 and _walk(state, preemption):
            pass
        # A restored victim may make a policy over again, and so give another task a right.
        is_settled = not preemption.restore_victims()
    preemption.finish()
    return preemption


def _walk(state: WorkingState, preemption: PreemptionStep) -> bool:
    """Walk the tiers once, repeating each until it places nothing."""
    state.walks += 1
    has_placed = False
    done = -1
    while True:
        tier, eligible = _next_tier(state, preemption, done)
        if tier is None:
            return has_placed
        placed = _place(state, tier, eligible)
        placed += preemption.preempt_for(tier, eligible)
        if not state.left:
            return False
        has_placed = has_placed or placed > 0
        done = tier - 1 if placed else tier


def _next_tier(
    state: WorkingState, preemption: PreemptionStep, done: int
) -> tuple[int | None, list[GroupState]]:
    """The best tier after `done` that some waiting task has, and the groups that have it."""
    found: dict[int, list[GroupState]] = {}
    can_be_full = bool(state.turned or preemption.is_possible)
    for group in state.compiled.groups:
        if group.waiting <= 0 or not group.pools:
            continue
        if not can_be_full and not state.bound(group, group.pools):
            continue
        tier = tier_of(state.ledger, group)
        if tier is not None and tier > done:
            found.setdefault(tier, []).append(group)
    if not found:
        return None, []
    best = min(found)
    return best, found[best]


def _place(state: WorkingState, tier: int, groups: list[GroupState]) -> int:
    compiled = state.compiled
    eligible = groups
    if not state.turned:
        eligible = [group for group in groups if state.bound(group, group.pools)]
    if not eligible:
        return 0
    over_quota = is_over_quota(tier, compiled.depth)
    holds = holds_now(state) if over_quota else None
    if over_quota and compiled.snapshot.settings.over_quota is OverQuotaMode.FAIR_SHARE:
        return FairShareFill(state, tier, eligible, holds).fill()
    match = match_offers(state, tier, eligible, holds)
    return complete_match(state, match, eligible)


def holds_now(state: WorkingState) -> Holds | None:
    compiled = state.compiled
    if PreemptionMode.NONE not in compiled.levels:
        return None
    return find_holds(compiled, state.ledger, state.free_capacities, state.could_ever_take)
