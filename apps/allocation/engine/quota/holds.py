"""Capacity that over-quota work does not get, where it could not be reclaimed.

Where preemption is `none`, a waiting task whose request alone fits the reservation of every
policy above it holds, in the first pool of its list that could ever take it, what is free of its
request and unused of those reservations (docs/allocation.md, "Tiers").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from apps.allocation.engine.capacity.free_capacity import FreeCapacity
from apps.allocation.engine.compile.compiled_snapshot import (
    UNCOUNTED,
    CompiledShape,
    CompiledSnapshot,
    GroupState,
)
from apps.allocation.engine.model.snapshot import PreemptionMode
from apps.allocation.engine.quota.ledger import Ledger
from apps.allocation.engine.quota.tiers import within_limits


@dataclass(slots=True)
class Holds:
    """`total` by pool and key; `own` by group index and head number: pool and its part."""

    total: dict[int, list[int]] = field(default_factory=dict)
    own: dict[tuple[int, int], tuple[int, dict[int, int]]] = field(default_factory=dict)


def find_holds(
    compiled: CompiledSnapshot,
    ledger: Ledger,
    free_capacities: list[FreeCapacity],
    could_ever_take: Callable[[int, CompiledShape], bool],
) -> Holds:
    """Which group holds what now, in the order across pools.

    Args:
        free_capacities: by pool.
        could_ever_take: whether a shape fits into a pool, by index, while the pool is empty.
    """
    search = _Search(ledger, free_capacities)
    waiting = [group for group in compiled.groups if group.waiting > 0]
    waiting.sort(key=lambda group: group.across_key(group.placed_count))
    for group in waiting:
        pool = holding_pool(compiled, group, could_ever_take)
        if pool is not None and _fits_reservations(ledger, group):
            search.hold(group, pool)
    return search.holds


def holding_pool(
    compiled: CompiledSnapshot,
    group: GroupState,
    could_ever_take: Callable[[int, CompiledShape], bool],
) -> int | None:
    """The first pool that could ever take the task, if no capacity can be reclaimed there."""
    for pool in group.linked_pools:
        if could_ever_take(pool, group.shape):
            return pool if compiled.levels[pool] is PreemptionMode.NONE else None
    return None


def _fits_reservations(ledger: Ledger, group: GroupState) -> bool:
    for policy in group.chain:
        reserved = ledger.compiled.reserved[policy]
        named = [(key, amount) for key, amount in group.shape.amounts if key in reserved]
        if not named or any(amount > reserved[key] for key, amount in named):
            return False
    return True


class _Search:
    """What is held so far, and what is left to hold of each reservation."""

    def __init__(self, ledger: Ledger, free_capacities: list[FreeCapacity]) -> None:
        self.ledger = ledger
        self.free_capacities = free_capacities
        self.holds = Holds()
        self._unused: dict[tuple[int, int], int] = {}

    def hold(self, group: GroupState, pool: int) -> None:
        """Book what the waiting tasks of a group hold; beyond a limit they hold nothing."""
        count = min(group.waiting, within_limits(self.ledger, group))
        for number in range(group.placed_count, group.placed_count + count):
            part = self._part(group, pool)
            if not part:
                return
            self.holds.own[group.index, number] = (pool, part)

    def _part(self, group: GroupState, pool: int) -> dict[int, int]:
        free = self.free_capacities[pool].free
        total = self.holds.total.setdefault(pool, [0] * len(free))
        part: dict[int, int] = {}
        for key, amount in group.shape.amounts:
            if free[key] < UNCOUNTED // 2:
                left = min(amount, free[key] - total[key], self._left_unused(group, key))
                if left > 0:
                    part[key] = left
        for key, amount in part.items():
            total[key] += amount
            for policy in self._naming(group, key):
                self._unused[policy, key] = self._unused_of(policy, key) - amount
        return part

    def _naming(self, group: GroupState, key: int) -> list[int]:
        return [policy for policy in group.chain if key in self.ledger.compiled.reserved[policy]]

    def _left_unused(self, group: GroupState, key: int) -> int:
        """The least that is unused of the reservations that name `key`; 0 where none does."""
        return min((self._unused_of(one, key) for one in self._naming(group, key)), default=0)

    def _unused_of(self, policy: int, key: int) -> int:
        found = self._unused.get((policy, key))
        if found is None:
            found = self.ledger.compiled.reserved[policy][key] - self.ledger.usage[policy][key]
        return found
