"""Free capacity of one pool: totals per key, and its nodes where it has some."""

from __future__ import annotations

from collections.abc import Callable

from apps.allocation.engine.capacity.nodes import MemberAssignment, Nodes
from apps.allocation.engine.compile.compiled_snapshot import CompiledShape

MANY = 1 << 40


class FreeCapacity:
    """What is free in a pool. A task has no members here where the pool has no nodes.

    A fork copies the nodes when it first uses them: until then, the forked capacity must not
    change. `find_nodes` is called when the nodes are first used; None: there are none.
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

    def fork(self) -> FreeCapacity:
        nodes = self.nodes
        fork = FreeCapacity(list(self.free), nodes.fork if nodes else None)
        fork._bounds = dict(self._bounds)
        return fork

    def record(self) -> FreeCapacity:
        """What is free now, for `bound` alone: it stays as it is when this capacity changes."""
        record = FreeCapacity(list(self.free), None)
        record._nodes = self.nodes.record() if self.nodes else None
        record._bounds = dict(self._bounds)
        return record

    def bound(self, shape: CompiledShape) -> int:
        """How many tasks of `shape` fit if nothing else comes."""
        found = self._bounds.get(shape.number)
        if found is None:
            found = self._bound(shape)
            self._bounds[shape.number] = found
        return found

    def _bound(self, shape: CompiledShape) -> int:
        found = MANY
        for key, amount in shape.amounts:
            found = min(found, self.free[key] // amount)
        if found > 0 and self.nodes is not None:
            found = min(found, self.nodes.bound(shape))
        return max(found, 0)

    def take(self, shape: CompiledShape) -> tuple[MemberAssignment, ...] | None:
        """The members of one task, or None where it does not fit."""
        free = self.free
        for key, amount in shape.amounts:
            if free[key] < amount:
                return None
        members: tuple[MemberAssignment, ...] | None = ()
        if self.nodes is not None:
            members = self.nodes.take(shape)
            if members is None:
                return None
        for key, amount in shape.amounts:
            free[key] -= amount
        self._bounds.clear()
        return members

    def could_retake(self, shape: CompiledShape, members: tuple[MemberAssignment, ...]) -> bool:
        """Whether the members that a task gave up still fit where they were."""
        if any(self.free[key] < amount for key, amount in shape.amounts):
            return False
        return self.nodes is None or self.nodes.could_retake(shape, members)

    def retake(self, shape: CompiledShape, members: tuple[MemberAssignment, ...]) -> None:
        """Undo `give`."""
        for key, amount in shape.amounts:
            self.free[key] -= amount
        if self.nodes is not None:
            self.nodes.retake(shape, members)
        self._bounds.clear()

    def give(self, shape: CompiledShape, members: tuple[MemberAssignment, ...]) -> None:
        for key, amount in shape.amounts:
            self.free[key] += amount
        if self.nodes is not None:
            self.nodes.give(shape, members)
        self._bounds.clear()
