"""Families of generated cases: what may occur in them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from apps.allocation.engine.model.snapshot import (
    OverQuotaMode,
)


def one_in(number: int) -> st.SearchStrategy[bool]:
    """True once in `number`; Hypothesis shrinks it to False, the plain case."""
    return st.sampled_from((*[False] * (number - 1), True))


@dataclass(frozen=True)
class Family:
    """What may occur; switches that make a family of configurations harder or plainer."""

    has_nodes: bool = True
    over_quota: OverQuotaMode | None = None
    # Whether preemption may be none, and whether it may be anything else.
    can_be_calm: bool = True
    can_take: bool = True
    can_be_strict: bool = True
    can_lack_backfill: bool = True
    # Few queues use everything, and reservations of others claim it now.
    has_claims: bool = False
    # What keeps work waiting; each case has some of it only, so that the rest is reached too.
    has_pauses: bool = True
    has_limits: bool = True
    has_refusals: bool = True
    has_fixed: bool = True
    has_protection: bool = True
    # Every pool has nodes, and work may be moved on them.
    is_packed: bool = False
    # The most passes that follow the first.
    steps: int = 2


EVERYTHING = Family()
# Work that was placed when no other work wanted its capacity, and reservations that claim it now.
TAKING = Family(can_be_calm=False, has_claims=True)
# Gaps on nodes that moving closes.
PACKED = Family(can_be_calm=False, has_claims=True, is_packed=True)


@st.composite
def some_of(draw: st.DrawFn, kind: Family) -> Family:
    return replace(
        kind,
        has_pauses=kind.has_pauses and draw(one_in(6)),
        has_limits=kind.has_limits and draw(one_in(2)),
        has_refusals=kind.has_refusals and draw(one_in(3)),
        has_fixed=kind.has_fixed and draw(one_in(2)),
        has_protection=kind.has_protection and draw(one_in(3)),
    )
