"""The same choice by scoring every node again, from the definition: slow, and easy to check.

Nothing is shared with the engine's way of scoring, and nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from apps.allocation.engine.model.quantities import GPU, WHOLE, Quantities
from apps.allocation.engine.model.snapshot import NodeSnapshot, UsualShape

STEP = 40
SCARCE_POINTS = 30


@dataclass(slots=True)
class FreeNode:
    """A node with what is free on it: per key, and of each GPU by position."""

    node: NodeSnapshot
    free: dict[str, int]
    gpus: list[int]


class ExhaustiveChoice:
    """The rule of docs/placement.md over all nodes of a pool, for its usual work."""

    def __init__(self, nodes: Sequence[NodeSnapshot], usual: Sequence[UsualShape]) -> None:
        self._usual = usual
        self._all = sum(one.frequency * one.replicas for one in usual)
        self._scarcity = _scarcity(nodes, usual)

    def choose(
        self, machines: Sequence[FreeNode], request: Quantities, models: Sequence[str]
    ) -> tuple[str, int] | None:
        """Name of the best node, and of the GPU that a fraction shares what is free there."""
        best: tuple[tuple[object, ...], str, int] | None = None
        for machine in machines:
            if not _fits(machine, request, models):
                continue
            for gpu in _shared(machine, request):
                points = self._points(machine, request, gpu)
                found = (points, *_fit(machine, request, gpu), machine.node.name)
                if best is None or found < best[0]:
                    best = (found, machine.node.name, gpu)
        return None if best is None else best[1:]

    def _points(self, machine: FreeNode, request: Quantities, gpu: int) -> int:
        growth = self._useless(_after(machine, request, gpu)) - self._useless(machine)
        points = floor(Fraction(growth, STEP * self._all) + Fraction(1, 2)) if self._all else 0
        if request.get(GPU):
            points += self._scarcity.get(machine.node.model or "", 0)
        return points

    def _useless(self, machine: FreeNode) -> int:
        """Free GPUs that usual work cannot use, weighted by frequency."""
        found = 0
        for one in self._usual:
            usable = 0
            asked = one.request.get(GPU)
            if asked and _fits(machine, one.request, one.models):
                usable = sum(free for free in machine.gpus if free >= min(asked, WHOLE))
            found += one.frequency * one.replicas * (sum(machine.gpus) - usable)
        return found


def _fit(machine: FreeNode, request: Quantities, gpu: int) -> list[int]:
    """What is free of what is requested: of the shared GPU, of all GPUs, of the other keys."""
    asked = [machine.free[key] for key, amount in request.items() if key != GPU and amount]
    return [gpu, sum(machine.gpus), *asked]


def _scarcity(nodes: Sequence[NodeSnapshot], usual: Sequence[UsualShape]) -> dict[str, int]:
    capacity: dict[str, int] = {}
    for node in nodes:
        model = node.model or ""
        capacity[model] = capacity.get(model, 0) + node.capacity.get(GPU)
    asked = sum(one.request.get(GPU) * one.frequency * one.replicas for one in usual)
    points = {}
    for model, own in capacity.items():
        demand = Fraction(0)
        for one in usual:
            if model in one.models and asked:
                named = sum(capacity.get(other, 0) for other in set(one.models))
                share = Fraction(one.request.get(GPU) * one.frequency * one.replicas, asked)
                demand += share * Fraction(own, named) if named else 0
        part = Fraction(own, sum(capacity.values())) if own else Fraction(0)
        points[model] = floor(SCARCE_POINTS * min(Fraction(1), demand / part)) if part else 0
    return points


def _fits(machine: FreeNode, request: Quantities, models: Sequence[str]) -> bool:
    if models and machine.node.model not in models:
        return False
    for key, amount in request.items():
        if key == GPU:
            if not _has_gpus(machine.gpus, amount):
                return False
        elif machine.free.get(key, 0) < amount:
            return False
    return True


def _has_gpus(gpus: Sequence[int], milli: int) -> bool:
    if milli < WHOLE:
        return not milli or max(gpus, default=0) >= milli
    return sum(free == WHOLE for free in gpus) * WHOLE >= milli


def _shared(machine: FreeNode, request: Quantities) -> Iterator[int]:
    milli = request.get(GPU)
    if 0 < milli < WHOLE:
        yield from sorted({free for free in machine.gpus if free >= milli})
    else:
        yield 0


def _after(machine: FreeNode, request: Quantities, gpu: int) -> FreeNode:
    free = {key: amount - request.get(key) for key, amount in machine.free.items()}
    gpus = list(machine.gpus)
    milli = request.get(GPU)
    if 0 < milli < WHOLE:
        gpus[gpus.index(gpu)] -= milli
    else:
        for _ in range(milli // WHOLE):
            gpus[gpus.index(WHOLE)] = 0
    return FreeNode(machine.node, free, gpus)
