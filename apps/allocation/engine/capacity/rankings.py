"""Node classes in order of how well one need fits on them, brought up to date when used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from apps.allocation.engine.capacity.fragmentation import Fragmentation
from apps.allocation.engine.capacity.node_classes import Fit, MemberNeed, NodeClass

# By class, the numbers of its nodes in ascending order.
Buckets = Mapping[NodeClass, tuple[int, ...]]
# The first node at the time, and the serial of the class: equal fits go by them.
Entry = tuple[Fit, int, int, NodeClass]


class Ranking:
    """A heap of the classes that a need fits on. Entries may be out of date, none is missing.

    Args:
        owner: who may change it; any other user works on a copy.
    """

    __slots__ = ("_fragmentation", "_heap", "_need", "_seen", "owner")

    def __init__(
        self,
        fragmentation: Fragmentation,
        need: MemberNeed,
        heap: list[Entry],
        seen: int,
        owner: object,
    ) -> None:
        self._fragmentation = fragmentation
        self._need = need
        self._heap = heap
        # So much of the log of changed classes is in the heap.
        self._seen = seen
        self.owner = owner

    @classmethod
    def of(
        cls,
        fragmentation: Fragmentation,
        need: MemberNeed,
        buckets: Buckets,
        seen: int,
        owner: object,
    ) -> Ranking:
        ranking = cls(fragmentation, need, [], seen, owner)
        for node_class, numbers in buckets.items():
            if node_class.capacity_for(need):
                ranking._heap.append(ranking._entry(node_class, numbers[0]))
        heapify(ranking._heap)
        return ranking

    def copy(self, owner: object) -> Ranking:
        return Ranking(self._fragmentation, self._need, list(self._heap), self._seen, owner)

    def first(self, buckets: Buckets, log: Sequence[NodeClass]) -> int | None:
        """The node that fits best; equally good classes go by their first node."""
        self._catch_up(buckets, log)
        heap = self._heap
        while heap:
            _, number, _, node_class = heap[0]
            numbers = buckets.get(node_class)
            if numbers is None:
                heappop(heap)
            elif numbers[0] != number:
                heapreplace(heap, self._entry(node_class, numbers[0]))
            else:
                return number
        return None

    def _catch_up(self, buckets: Buckets, log: Sequence[NodeClass]) -> None:
        if self._seen == len(log):
            return
        need = self._need
        for node_class in dict.fromkeys(log[self._seen :]):
            numbers = buckets.get(node_class)
            if numbers is not None and node_class.capacity_for(need):
                heappush(self._heap, self._entry(node_class, numbers[0]))
        self._seen = len(log)

    def _entry(self, node_class: NodeClass, number: int) -> Entry:
        return (
            self._fragmentation.choice(node_class, self._need).fit,
            number,
            node_class.serial,
            node_class,
        )
