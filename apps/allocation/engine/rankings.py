"""The kinds of nodes in order of how well one need fits on them, brought up to date when asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from apps.allocation.engine.fragmentation import Fragmentation
from apps.allocation.engine.kinds import Fit, Kind, Need

# By kind, the numbers of its nodes in ascending order.
Buckets = Mapping[Kind, tuple[int, ...]]
# The first node at the time, and the serial of the kind: equal fits go by them.
Entry = tuple[Fit, int, int, Kind]


class Ranking:
    """A heap of the kinds that a need fits on. Entries may be out of date, none is missing.

    Args:
        owner: who may change it; anybody else works on a copy.
    """

    __slots__ = ("_fragmentation", "_heap", "_need", "_seen", "owner")

    def __init__(
        self, fragmentation: Fragmentation, need: Need, heap: list[Entry], seen: int, owner: object
    ) -> None:
        self._fragmentation = fragmentation
        self._need = need
        self._heap = heap
        # So much of the log of changed kinds is in the heap.
        self._seen = seen
        self.owner = owner

    @classmethod
    def of(
        cls, fragmentation: Fragmentation, need: Need, buckets: Buckets, seen: int, owner: object
    ) -> Ranking:
        ranking = cls(fragmentation, need, [], seen, owner)
        for kind, numbers in buckets.items():
            if kind.room_for(need):
                ranking._heap.append(ranking._entry(kind, numbers[0]))
        heapify(ranking._heap)
        return ranking

    def copy(self, owner: object) -> Ranking:
        return Ranking(self._fragmentation, self._need, list(self._heap), self._seen, owner)

    def first(self, buckets: Buckets, log: Sequence[Kind]) -> int | None:
        """The node that fits best; equally good kinds go by their first node."""
        self._catch_up(buckets, log)
        heap = self._heap
        while heap:
            _, number, _, kind = heap[0]
            numbers = buckets.get(kind)
            if numbers is None:
                heappop(heap)
            elif numbers[0] != number:
                heapreplace(heap, self._entry(kind, numbers[0]))
            else:
                return number
        return None

    def _catch_up(self, buckets: Buckets, log: Sequence[Kind]) -> None:
        if self._seen == len(log):
            return
        need = self._need
        for kind in dict.fromkeys(log[self._seen :]):
            numbers = buckets.get(kind)
            if numbers is not None and kind.room_for(need):
                heappush(self._heap, self._entry(kind, numbers[0]))
        self._seen = len(log)

    def _entry(self, kind: Kind, number: int) -> Entry:
        return self._fragmentation.choice(kind, self._need).fit, number, kind.serial, kind
