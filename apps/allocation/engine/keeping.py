"""What passes over equal configurations share, kept between them.

A pass gives the same plan with it and without it. A pass borrows what is kept, so that no two use
it at the same time; whoever comes meanwhile compiles its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from apps.allocation.engine import tables
from apps.allocation.engine.compiled import Compiled, compile_configuration, set_moment
from apps.allocation.engine.fair import Shares
from apps.allocation.engine.nodes import Site
from apps.allocation.engine.opening import KeptSeats
from apps.allocation.engine.reasons import Detail
from apps.allocation.engine.snapshot import Id, Snapshot

# Configurations at once, and shapes and routes of each, beyond which it is compiled anew.
MOST_KEPT = 4
MOST_SHAPES = 20_000

# Of a line in front of a pool: standing, place in the pool, index of the run (-1: placed already),
# its policy, how many.
Entry = tuple[int, int, int, int, int, int, Id, int, Id, int]


@dataclass(slots=True)
class Kept:
    """A compiled configuration with what follows from it alone, or from what is kept beside it."""

    compiled: Compiled
    parts: tuple[object, ...]
    sites: list[Site | None]
    shares: Shares
    # By pool and number of a shape: whether the empty pool has room for it.
    fits_empty: dict[tuple[int, int], bool] = field(default_factory=dict)
    seats: KeptSeats = field(default_factory=dict)
    # By pool: the line in front of it as it last was, and what that told each run in it.
    lines: dict[int, tuple[list[Entry], dict[int, Detail]]] = field(default_factory=dict)


_kept: dict[int, Kept] = {}
_turns = count()


def borrow(snapshot: Snapshot) -> Kept:
    """The compiled configuration of `snapshot`, set to its moment."""
    parts = _parts(snapshot)
    kept = _found(parts, snapshot) or _compiled(parts, snapshot)
    set_moment(kept.compiled, snapshot)
    return kept


def give_back(kept: Kept) -> None:
    """Keep it for the next pass, and let go of the one that was used longest ago."""
    if len(kept.compiled.shapes) + len(kept.compiled.routes) > MOST_SHAPES:
        return
    _kept[next(_turns)] = kept
    for turn in list(_kept)[:-MOST_KEPT]:
        _kept.pop(turn, None)


def _parts(snapshot: Snapshot) -> tuple[object, ...]:
    return (
        snapshot.settings,
        snapshot.pools,
        snapshot.profiles,
        snapshot.policies,
        snapshot.queues,
        snapshot.usual,
    )


def _found(parts: tuple[object, ...], snapshot: Snapshot) -> Kept | None:
    """One of an equal configuration that knows all keys, out of the store; the latest first."""
    requested = tables.requested_keys(snapshot)
    for turn in reversed(list(_kept)):
        kept = _kept.get(turn)
        if kept is None or kept.parts != parts:
            continue
        # None: another thread was faster.
        kept = _kept.pop(turn, None)
        if kept is not None and requested <= kept.compiled.key_index.keys():
            return kept
    return None


def _compiled(parts: tuple[object, ...], snapshot: Snapshot) -> Kept:
    compiled = compile_configuration(snapshot)
    sites = [Site(compiled, pool) if pool.nodes else None for pool in compiled.pools]
    return Kept(compiled, parts, sites, Shares(compiled))
