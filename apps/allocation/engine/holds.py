"""Room that over-quota work does not get, where nobody could take it back.

Where preemption is none, a waiting task whose request alone fits the reservation of every policy
above it holds, in the first pool of its list that could ever take it, what is free of its request
and unused of those reservations (docs/allocation.md, "Standing").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from apps.allocation.engine.compiled import UNCOUNTED, Compiled, Shape, Work
from apps.allocation.engine.ledger import Ledger
from apps.allocation.engine.rooms import Room
from apps.allocation.engine.snapshot import Preemption
from apps.allocation.engine.standing import within_limits


@dataclass(slots=True)
class Holds:
    """`total` by pool and key; `own` by work index and head number: pool and its part."""

    total: dict[int, list[int]] = field(default_factory=dict)
    own: dict[tuple[int, int], tuple[int, dict[int, int]]] = field(default_factory=dict)


def find_holds(
    compiled: Compiled,
    ledger: Ledger,
    rooms: list[Room],
    could_ever_take: Callable[[int, Shape], bool],
) -> Holds:
    """Who holds what now, in the order across pools.

    Args:
        rooms: what is free, by pool.
        could_ever_take: whether a pool, by index, has room for a shape while it is empty.
    """
    search = _Search(ledger, rooms)
    waiting = [work for work in compiled.works if work.waiting > 0]
    waiting.sort(key=lambda work: work.across_key(work.taken))
    for work in waiting:
        pool = holding_pool(compiled, work, could_ever_take)
        if pool is not None and _fits_reservations(ledger, work):
            search.hold(work, pool)
    return search.holds


def holding_pool(
    compiled: Compiled, work: Work, could_ever_take: Callable[[int, Shape], bool]
) -> int | None:
    """The first pool that could ever take the task, if nothing can be taken back there."""
    for pool in work.linked_pools:
        if could_ever_take(pool, work.shape):
            return pool if compiled.levels[pool] is Preemption.NONE else None
    return None


def _fits_reservations(ledger: Ledger, work: Work) -> bool:
    for policy in work.chain:
        reserved = ledger.compiled.reserved[policy]
        named = [(key, amount) for key, amount in work.shape.amounts if key in reserved]
        if not named or any(amount > reserved[key] for key, amount in named):
            return False
    return True


class _Search:
    """What is held so far, and what is left to hold of each reservation."""

    def __init__(self, ledger: Ledger, rooms: list[Room]) -> None:
        self.ledger = ledger
        self.rooms = rooms
        self.holds = Holds()
        self._unused: dict[tuple[int, int], int] = {}

    def hold(self, work: Work, pool: int) -> None:
        """Book what the waiting tasks of a run hold; what only a limit keeps back holds nothing."""
        count = min(work.waiting, within_limits(self.ledger, work))
        for number in range(work.taken, work.taken + count):
            part = self._part(work, pool)
            if not part:
                return
            self.holds.own[work.index, number] = (pool, part)

    def _part(self, work: Work, pool: int) -> dict[int, int]:
        free = self.rooms[pool].free
        total = self.holds.total.setdefault(pool, [0] * len(free))
        part: dict[int, int] = {}
        for key, amount in work.shape.amounts:
            if free[key] < UNCOUNTED // 2:
                left = min(amount, free[key] - total[key], self._left_unused(work, key))
                if left > 0:
                    part[key] = left
        for key, amount in part.items():
            total[key] += amount
            for policy in self._naming(work, key):
                self._unused[policy, key] = self._unused_of(policy, key) - amount
        return part

    def _naming(self, work: Work, key: int) -> list[int]:
        return [policy for policy in work.chain if key in self.ledger.compiled.reserved[policy]]

    def _left_unused(self, work: Work, key: int) -> int:
        """The least that is unused of the reservations that name `key`; 0 where none does."""
        return min((self._unused_of(one, key) for one in self._naming(work, key)), default=0)

    def _unused_of(self, policy: int, key: int) -> int:
        found = self._unused.get((policy, key))
        if found is None:
            found = self.ledger.compiled.reserved[policy][key] - self.ledger.usage[policy][key]
        return found
