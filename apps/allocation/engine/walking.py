"""One pass: walk the standings, best first, until a whole walk places nothing."""

from __future__ import annotations

from apps.allocation.engine.compiled import Work
from apps.allocation.engine.filling import Filling
from apps.allocation.engine.holds import Holds, find_holds
from apps.allocation.engine.matching import match_offers
from apps.allocation.engine.snapshot import OverQuota, Preemption
from apps.allocation.engine.standing import is_over_quota, standing_of
from apps.allocation.engine.sweeping import sweep
from apps.allocation.engine.taking import Taking
from apps.allocation.engine.working import Pass


def walk_standings(state: Pass) -> Taking:
    """Place everything that can be placed. Returns what was taken for it."""
    taking = Taking(state)
    is_settled = False
    while not is_settled:
        while state.left > 0 and _walk(state, taking):
            pass
        # Who is put back may make a policy over again, and so give somebody a right.
        is_settled = not taking.spare_whom_possible()
    taking.finish()
    return taking


def _walk(state: Pass, taking: Taking) -> bool:
    """Once through the standings, repeating each until it places nothing."""
    state.walks += 1
    has_placed = False
    done = -1
    while True:
        standing, candidates = _next_standing(state, taking, done)
        if standing is None:
            return has_placed
        placed = _place(state, standing, candidates)
        placed += taking.take_for(standing, candidates)
        if not state.left:
            return False
        has_placed = has_placed or placed > 0
        done = standing - 1 if placed else standing


def _next_standing(state: Pass, taking: Taking, done: int) -> tuple[int | None, list[Work]]:
    """The best standing after `done` that some waiting task has, and the runs that have it."""
    found: dict[int, list[Work]] = {}
    can_be_full = bool(state.turned or taking.is_possible)
    for work in state.compiled.works:
        if work.waiting <= 0 or not work.pools:
            continue
        if not can_be_full and not state.bound(work, work.pools):
            continue
        standing = standing_of(state.ledger, work)
        if standing is not None and standing > done:
            found.setdefault(standing, []).append(work)
    if not found:
        return None, []
    best = min(found)
    return best, found[best]


def _place(state: Pass, standing: int, works: list[Work]) -> int:
    compiled = state.compiled
    candidates = works
    if not state.turned:
        candidates = [work for work in works if state.bound(work, work.pools)]
    if not candidates:
        return 0
    is_over = is_over_quota(standing, compiled.depth)
    holds = holds_now(state) if is_over else None
    if is_over and compiled.snapshot.settings.over_quota is OverQuota.FAIR_SHARE:
        return Filling(state, standing, candidates, holds).fill()
    trial = match_offers(state, standing, candidates, holds)
    return sweep(state, trial, candidates)


def holds_now(state: Pass) -> Holds | None:
    compiled = state.compiled
    if Preemption.NONE not in compiled.levels:
        return None
    return find_holds(compiled, state.ledger, state.rooms, state.could_ever_take)
