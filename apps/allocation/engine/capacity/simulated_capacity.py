"""A pool's free capacity for one beneficiary while victims are tried; the pool is unchanged."""

from __future__ import annotations

from apps.allocation.engine.capacity.free_capacity import FreeCapacity
from apps.allocation.engine.capacity.node_classes import members_on
from apps.allocation.engine.capacity.nodes import MemberAssignment, Nodes, State
from apps.allocation.engine.compile.compiled_snapshot import CompiledShape


class SimulatedCapacity:
    """Counts how many members of one shape fit, kept up to date node by node."""

    __slots__ = ("_free", "_members", "_need", "_nodes", "_shape", "_states")

    def __init__(self, capacity: FreeCapacity, shape: CompiledShape) -> None:
        self._shape = shape
        self._free = list(capacity.free)
        self._nodes = capacity.nodes
        # By node that differs from the pool's: its state, and how many members fit there.
        self._states: dict[int, tuple[State, int]] = {}
        self._members = 0
        if capacity.nodes is not None:
            self._need = capacity.nodes.layout.need(shape)
            self._members = capacity.nodes.members(self._need)

    def fits(self) -> bool:
        """Whether the beneficiary fits, on real nodes where there are some."""
        free = self._free
        for key, amount in self._shape.amounts:
            if free[key] < amount:
                return False
        return self._nodes is None or self._members >= self._shape.replicas

    def short(self) -> frozenset[int]:
        """The keys that the beneficiary lacks; where nodes, not totals, are short, all its own."""
        amounts = self._shape.amounts
        found = [key for key, amount in amounts if self._free[key] < amount]
        if not found and not self.fits():
            found = [key for key, _ in amounts]
        return frozenset(found)

    def give(self, shape: CompiledShape, members: tuple[MemberAssignment, ...]) -> None:
        """Release the members of a task of `shape`."""
        self._change(shape, members, 1)

    def retake(self, shape: CompiledShape, members: tuple[MemberAssignment, ...]) -> None:
        """Undo `give`."""
        self._change(shape, members, -1)

    def _change(
        self, shape: CompiledShape, members: tuple[MemberAssignment, ...], sign: int
    ) -> None:
        for key, amount in shape.amounts:
            self._free[key] += sign * amount
        nodes = self._nodes
        if nodes is None:
            return
        scalars = nodes.layout.need(shape).scalars
        for node, shares in members:
            (free, gpus), before = self._state(nodes, node)
            changed = list(free)
            for place, amount in scalars:
                changed[place] += sign * amount
            devices = list(gpus)
            for place, milli in shares:
                devices[place] += sign * milli
            state = (tuple(changed), tuple(devices))
            after = self._members_on(nodes, node, state)
            self._states[node] = (state, after)
            self._members += after - before

    def _state(self, nodes: Nodes, node: int) -> tuple[State, int]:
        found = self._states.get(node)
        if found is None:
            state = nodes.states[node]
            found = (state, self._members_on(nodes, node, state))
        return found

    def _members_on(self, nodes: Nodes, node: int, state: State) -> int:
        layout = nodes.layout
        if not layout.nodes[node].is_schedulable:
            return 0
        return members_on(layout.models[node], *state, self._need)
