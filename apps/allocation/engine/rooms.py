"""Room in one pool: totals per key, and its nodes where it has some."""

from __future__ import annotations

from collections.abc import Callable

from apps.allocation.engine.compiled import Shape
from apps.allocation.engine.nodes import Nodes, Seat

MANY = 1 << 40


class Room:
    """What is free in a pool. Seats are empty without nodes.

    A fork copies the nodes once it looks at them: whoever forks a room leaves it alone until then.
    `find_nodes` is asked when somebody looks at the nodes for the first time; None: there are none.
    """

    __slots__ = ("_bounds", "_find_nodes", "_nodes", "free")

    def __init__(self, free: list[int], find_nodes: Callable[[], Nodes] | None) -> None:
        self.free = free
        self._find_nodes = find_nodes
        self._nodes: Nodes | None = None
        self._bounds: dict[int, int] = {}

    @property
    def nodes(self) -> Nodes | None:
        if self._find_nodes is not None:
            self._nodes = self._find_nodes()
            self._find_nodes = None
        return self._nodes

    def fork(self) -> Room:
        nodes = self.nodes
        fork = Room(list(self.free), nodes.fork if nodes else None)
        fork._bounds = dict(self._bounds)
        return fork

    def bound(self, shape: Shape) -> int:
        """How many tasks of `shape` fit if nothing else comes."""
        found = self._bounds.get(shape.number)
        if found is None:
            found = self._bound(shape)
            self._bounds[shape.number] = found
        return found

    def _bound(self, shape: Shape) -> int:
        found = MANY
        for key, amount in shape.amounts:
            found = min(found, self.free[key] // amount)
        if found > 0 and self.nodes is not None:
            found = min(found, self.nodes.bound(shape))
        return max(found, 0)

    def take(self, shape: Shape) -> tuple[Seat, ...] | None:
        """Seats of one task, or None where it does not fit."""
        free = self.free
        for key, amount in shape.amounts:
            if free[key] < amount:
                return None
        seats: tuple[Seat, ...] | None = ()
        if self.nodes is not None:
            seats = self.nodes.take(shape)
            if seats is None:
                return None
        for key, amount in shape.amounts:
            free[key] -= amount
        self._bounds.clear()
        return seats

    def could_retake(self, shape: Shape, seats: tuple[Seat, ...]) -> bool:
        """Whether a task still has the seats that it gave up."""
        if any(self.free[key] < amount for key, amount in shape.amounts):
            return False
        return self.nodes is None or self.nodes.could_retake(shape, seats)

    def retake(self, shape: Shape, seats: tuple[Seat, ...]) -> None:
        """Undo `give`."""
        for key, amount in shape.amounts:
            self.free[key] -= amount
        if self.nodes is not None:
            self.nodes.retake(shape, seats)
        self._bounds.clear()

    def give(self, shape: Shape, seats: tuple[Seat, ...]) -> None:
        for key, amount in shape.amounts:
            self.free[key] += amount
        if self.nodes is not None:
            self.nodes.give(shape, seats)
        self._bounds.clear()
