"""One pass: a snapshot in, a plan out.

The numbered steps are those of docs/engine.md, which draws what each of them reads and writes.
"""

from __future__ import annotations

from itertools import count

from apps.allocation.engine.compile.compiled_snapshot import UNCOUNTED, GroupState
from apps.allocation.engine.explain.wait_reasons import all_disabled, explain
from apps.allocation.engine.model.plan import Plan
from apps.allocation.engine.model.snapshot import OverQuotaMode, PreemptionMode, Snapshot
from apps.allocation.engine.quota.holds import Holds, find_holds
from apps.allocation.engine.quota.tiers import is_over_quota, tier_of
from apps.allocation.engine.state.configuration import compile_snapshot
from apps.allocation.engine.state.memo import Memo
from apps.allocation.engine.state.working_state import WorkingState
from apps.allocation.engine.steps.fair_fill import fill_by_fair_share
from apps.allocation.engine.steps.improvement import improve_match
from apps.allocation.engine.steps.match import match_offers, withdraw_short
from apps.allocation.engine.steps.offer import make_offers
from apps.allocation.engine.steps.plan_assembly import assemble_plan
from apps.allocation.engine.steps.preemption.step import PreemptionStep


class Engine:
    """Decides one pass after another, and uses again what it found from equal inputs.

    Code that decides more than once owns one. Its plans are those of the function `decide`. Threads
    may share it: a pass has the memo to itself, and another one meanwhile begins with an empty one.
    """

    def __init__(self) -> None:
        self._memos: list[Memo] = []

    def decide(self, snapshot: Snapshot, *, at_most: int | None = None) -> Plan:
        """As the function `decide`."""
        try:
            memo = self._memos.pop()
        except IndexError:
            memo = Memo()
        plan = decide(snapshot, at_most=at_most, memo=memo)
        self._memos = [memo]
        return plan


def decide(snapshot: Snapshot, *, at_most: int | None = None, memo: Memo | None = None) -> Plan:
    """Choose which waiting tasks start, and where.

    Walks the tiers, best first (docs/allocation.md, "One pass"). Names and ids settle ties, so
    one snapshot gives one plan, in whatever order its rows come.

    Args:
        at_most: how many tasks may start; the next pass decides the rest.
        memo: of earlier passes.

    Returns:
        Every waiting head of the snapshot exactly once, placed or waiting with its reasons.
    """
    # 1. Compile: look up by index everything that the snapshot names.
    memo = Memo() if memo is None else memo
    configuration = compile_snapshot(snapshot, memo)
    if not snapshot.settings.is_enabled:
        return Plan(waiting=all_disabled(configuration.compiled))
    # 2. Charge: book what running work uses, of policies and of pools.
    state = WorkingState(configuration, memo, UNCOUNTED if at_most is None else at_most)
    # 3 to 8. Walk the tiers, best first, until nothing more can be placed.
    preemption = _walk_tiers(state)
    # 9. Explain: give every task that still waits its reasons.
    waiting = explain(state, _holds(state), preemption.rights)
    # 10. Assemble: name placements, victims and moves by the ids of the snapshot.
    return assemble_plan(state, preemption, waiting)


def _walk_tiers(state: WorkingState) -> PreemptionStep:
    """Place everything that can be placed. Returns the preemptions and moves for it."""
    preemption = PreemptionStep(state)
    is_settled = False
    while not is_settled:
        while state.left > 0 and _walk(state, preemption):
            pass
        # 8. Restore: let victims go on that still fit next to everything placed. One of them may
        # make a policy over again, and so give another task a right.
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
        placed = _fill_free_capacity(state, tier, eligible)
        # 7. Preempt: stop or move running work for tasks that do not fit, as far as they may.
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


def _fill_free_capacity(state: WorkingState, tier: int, groups: list[GroupState]) -> int:
    """Place tasks of one tier in what is free. Returns how many were placed."""
    eligible = groups
    if not state.turned:
        eligible = [group for group in groups if state.bound(group, group.pools)]
    if not eligible:
        return 0
    settings = state.compiled.snapshot.settings
    over_quota = is_over_quota(tier, state.compiled.depth)
    holds = _holds(state) if over_quota else None
    if over_quota and settings.over_quota is OverQuotaMode.FAIR_SHARE:
        # 6. Fair fill, instead of 3 to 5: place one by one, where a task leaves the least share.
        return fill_by_fair_share(state, tier, eligible, holds)
    caps: dict[int, int] = {}
    for made in count(1):
        # 3. Offer: let each policy offer as many of its tasks as its budgets allow.
        offers = make_offers(state, tier, eligible, caps)
        # 4. Match: let tasks propose to the pools of their lists, and pools keep what fits.
        match = match_offers(state, tier, offers, holds)
        # Of a group that does not fit as a whole, only what fits is offered again, so that the
        # rest of its budget goes to the next group of the policy.
        if not withdraw_short(state, match, eligible, caps, made=made):
            break
    # 5. Improve: let pools offer what is left to tasks that prefer it; then all that is final.
    return improve_match(state, match, eligible)


def _holds(state: WorkingState) -> Holds | None:
    """What waiting tasks hold for their reservations, where no task could reclaim it."""
    if PreemptionMode.NONE not in state.compiled.levels:
        return None
    return find_holds(state.compiled, state.ledger, state.free_capacities, state.could_ever_take)
