"""The step Compile: a compiled configuration, and what follows from it alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from apps.allocation.engine.capacity.nodes import NodeLayout
from apps.allocation.engine.compile import tables
from apps.allocation.engine.compile.compiled_snapshot import (
    CompiledSnapshot,
    compile_configuration,
    set_moment,
)
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.engine.quota.fair_shares import FairShares
from apps.allocation.engine.state.memo import Memo

# Shapes and routes of one configuration; beyond that, all is forgotten and compiled again.
MOST_SHAPES = 20_000


@dataclass(frozen=True, slots=True)
class CompiledConfiguration:
    """`version` stands for it among the inputs of what else is remembered."""

    compiled: CompiledSnapshot
    layouts: list[NodeLayout | None]
    shares: FairShares
    version: int


def compile_snapshot(snapshot: Snapshot, memo: Memo) -> CompiledConfiguration:
    """The compiled configuration of `snapshot`, set to its waiting and running work."""
    configured = memo.number("configuration", _parts(snapshot))
    keys = memo.get("configured keys", configured, partial(tables.configured_keys, snapshot))
    version = memo.number("compiled", (configured, tables.requested_keys(snapshot) - keys))
    find = partial(_compiled, snapshot, version)
    configuration = memo.get("compiled", version, find)
    if len(configuration.compiled.shapes) + len(configuration.compiled.routes) > MOST_SHAPES:
        memo.clear()
        configuration = memo.get("compiled", version, find)
    set_moment(configuration.compiled, snapshot)
    return configuration


def _parts(snapshot: Snapshot) -> tuple[object, ...]:
    return (
        snapshot.settings,
        snapshot.pools,
        snapshot.profiles,
        snapshot.policies,
        snapshot.queues,
        snapshot.usual,
    )


def _compiled(snapshot: Snapshot, version: int) -> CompiledConfiguration:
    compiled = compile_configuration(snapshot)
    layouts = [NodeLayout(compiled, pool) if pool.nodes else None for pool in compiled.pools]
    return CompiledConfiguration(compiled, layouts, FairShares(compiled), version)
