"""What passes over equal configurations share.

A pass gives the same plan with it and without it. A pass removes its entry while it runs, so no
two use it at the same time; a second pass meanwhile compiles its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from apps.allocation.engine.capacity.nodes import NodeLayout
from apps.allocation.engine.compile import tables
from apps.allocation.engine.compile.compiled_snapshot import (
    CompiledSnapshot,
    compile_configuration,
    set_moment,
)
from apps.allocation.engine.model.reasons import Detail
from apps.allocation.engine.model.snapshot import Id, Snapshot
from apps.allocation.engine.quota.fair_shares import FairShares
from apps.allocation.engine.state.initial_state import CachedNodeStates

# Entries at once, and shapes and routes of each; beyond that, a configuration is compiled again.
MOST_CACHED = 4
MOST_SHAPES = 20_000

# Of a pool's serving list: tier, place in the pool, index of the group (-1: placed already), its
# policy, how many.
ServingEntry = tuple[int, int, int, int, int, int, Id, int, Id, int]


@dataclass(slots=True)
class CacheEntry:
    """A compiled configuration, what follows from it alone, and results of earlier passes."""

    compiled: CompiledSnapshot
    parts: tuple[object, ...]
    layouts: list[NodeLayout | None]
    shares: FairShares
    # By pool and number of a shape: whether it fits into the empty pool.
    fits_empty: dict[tuple[int, int], bool] = field(default_factory=dict)
    node_states: CachedNodeStates = field(default_factory=dict)
    # By pool: its serving list in the last pass, and the detail that followed for each group.
    serving_lists: dict[int, tuple[list[ServingEntry], dict[int, Detail]]] = field(
        default_factory=dict
    )


_cache: dict[int, CacheEntry] = {}
_turns = count()


def acquire(snapshot: Snapshot) -> CacheEntry:
    """The compiled configuration of `snapshot`, set to its waiting and running work."""
    parts = _parts(snapshot)
    cached = _found(parts, snapshot) or _compiled(parts, snapshot)
    set_moment(cached.compiled, snapshot)
    return cached


def release(cached: CacheEntry) -> None:
    """Keep it for the next pass, and drop the entry that was used longest ago."""
    if len(cached.compiled.shapes) + len(cached.compiled.routes) > MOST_SHAPES:
        return
    _cache[next(_turns)] = cached
    for turn in list(_cache)[:-MOST_CACHED]:
        _cache.pop(turn, None)


def _parts(snapshot: Snapshot) -> tuple[object, ...]:
    return (
        snapshot.settings,
        snapshot.pools,
        snapshot.profiles,
        snapshot.policies,
        snapshot.queues,
        snapshot.usual,
    )


def _found(parts: tuple[object, ...], snapshot: Snapshot) -> CacheEntry | None:
    """The latest stored entry of an equal configuration that knows all keys, removed from there."""
    requested = tables.requested_keys(snapshot)
    for turn in reversed(list(_cache)):
        cached = _cache.get(turn)
        if cached is None or cached.parts != parts:
            continue
        # None: another thread was faster.
        cached = _cache.pop(turn, None)
        if cached is not None and requested <= cached.compiled.key_index.keys():
            return cached
    return None


def _compiled(parts: tuple[object, ...], snapshot: Snapshot) -> CacheEntry:
    compiled = compile_configuration(snapshot)
    layouts = [NodeLayout(compiled, pool) if pool.nodes else None for pool in compiled.pools]
    return CacheEntry(compiled, parts, layouts, FairShares(compiled))
