"""What a pool's room would be for one taker while its victims are tried; the room itself stays."""

from __future__ import annotations

from apps.allocation.engine.compiled import Shape
from apps.allocation.engine.kinds import members_on
from apps.allocation.engine.nodes import Seat, State
from apps.allocation.engine.rooms import Room


class Clearing:
    """Counts how many members of one shape fit, kept up to date node by node."""

    __slots__ = ("_free", "_members", "_need", "_nodes", "_shape", "_states")

    def __init__(self, room: Room, shape: Shape) -> None:
        self._shape = shape
        self._free = list(room.free)
        self._nodes = room.nodes
        self._states: dict[int, State] = {}
        self._members = 0
        if room.nodes is not None:
            self._need = room.nodes.site.need(shape)
            self._members = room.nodes.members(self._need)

    def fits(self) -> bool:
        """Whether the taker has room, on real nodes where there are some."""
        free = self._free
        for key, amount in self._shape.amounts:
            if free[key] < amount:
                return False
        return self._nodes is None or self._members >= self._shape.replicas

    def short(self) -> frozenset[int]:
        """The keys that the taker lacks; where nodes, not totals, are short, all of its own."""
        amounts = self._shape.amounts
        found = [key for key, amount in amounts if self._free[key] < amount]
        if not found and not self.fits():
            found = [key for key, _ in amounts]
        return frozenset(found)

    def give(self, shape: Shape, seats: tuple[Seat, ...]) -> None:
        """A task of `shape` leaves its seats."""
        self._change(shape, seats, 1)

    def retake(self, shape: Shape, seats: tuple[Seat, ...]) -> None:
        """Undo `give`."""
        self._change(shape, seats, -1)

    def _change(self, shape: Shape, seats: tuple[Seat, ...], sign: int) -> None:
        for key, amount in shape.amounts:
            self._free[key] += sign * amount
        if self._nodes is None:
            return
        scalars = self._nodes.site.need(shape).scalars
        for node, shares in seats:
            before = self._members_on(node)
            free, gpus = self._states.get(node) or self._nodes.states[node]
            changed = list(free)
            for place, amount in scalars:
                changed[place] += sign * amount
            devices = list(gpus)
            for place, milli in shares:
                devices[place] += sign * milli
            self._states[node] = (tuple(changed), tuple(devices))
            self._members += self._members_on(node) - before

    def _members_on(self, node: int) -> int:
        if self._nodes is None:
            return 0
        site = self._nodes.site
        if not site.nodes[node].is_schedulable:
            return 0
        scalars, gpus = self._states.get(node) or self._nodes.states[node]
        return members_on(site.models[node], scalars, gpus, self._need)
