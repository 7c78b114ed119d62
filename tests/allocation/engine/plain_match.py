"""The match as docs/allocation.md says it: offered again and again, until every offer fits."""

from __future__ import annotations

from apps.allocation.engine.compile.compiled_snapshot import GroupState
from apps.allocation.engine.state.working_state import WorkingState
from apps.allocation.engine.steps import match as match_step


def withdraw_short(
    state: WorkingState,
    match: match_step.TentativeMatch,
    _eligible: list[GroupState],
    caps: dict[int, int],
    **_: int,
) -> bool:
    """Lower only the caps of groups that were offered and found less; slow for many groups."""
    if not match_step._lower_caps(match.offers, caps):
        return False
    for offer in match.offers:
        state.ledger.charge(offer.group, -offer.count)
    return True
