"""How much of what is free on a node is of no use to the usual work of its pool.

The measure is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023): of each usual
shape, the free GPUs of a node that it cannot use, weighted by how often it comes. A task goes
where this grows least. Whole numbers throughout: every figure is multiplied by the sum of all
frequencies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from operator import mul

from apps.allocation.engine.capacity.node_classes import (
    MemberNeed,
    NodeClass,
    NodeFit,
    Scalars,
    gpu_amounts,
    gpus_without,
    tightness,
)
from apps.allocation.engine.model.quantities import WHOLE

# Differences of less than this many thousandths of a GPU are noise; best fit settles them.
STEP = 40
# Against a node of a model that is demanded by name as a whole.
SCARCE_POINTS = 30
# Beyond so many remembered states, all are forgotten.
MOST_REMEMBERED = 200_000

# Equal weights have equal numbers.
Weights = tuple[int, tuple[int, ...]]


class Fragmentation:
    """Of the nodes of one pool, for its usual work: (need of one member, frequency)."""

    def __init__(
        self, usual: Sequence[tuple[MemberNeed, int]], scarcity: Sequence[int], scalars: int
    ) -> None:
        self._usual = tuple(usual)
        self._scarcity = tuple(scarcity)
        self._total = sum(frequency for _, frequency in usual)
        self._sizes = tuple(sorted({need.gpu_milli for need, _ in usual if need.gpu_milli}))
        self._asked = tuple(
            tuple(sorted({dict(need.scalars).get(place, 0) for need, _ in usual}))
            for place in range(scalars)
        )
        self._weights: dict[tuple[int, ...], Weights] = {}
        self._usable: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._found: dict[tuple[int, tuple[int, ...]], int] = {}

    def choice(self, node_class: NodeClass, need: MemberNeed) -> NodeFit:
        """The best way to put a member on a node of `node_class`, where it fits."""
        found = node_class.choices.get(need.number)
        if found is None:
            found = self._choice(node_class, need)
            node_class.choices[need.number] = found
        return found

    def _choice(self, node_class: NodeClass, need: MemberNeed) -> NodeFit:
        amounts = [0]
        if 0 < need.gpu_milli < WHOLE:
            amounts = gpu_amounts(node_class.gpus, need.gpu_milli)
        if not self._total:
            return NodeFit(tightness(node_class, need, amounts[0]), amounts[0])
        scalars = list(node_class.scalars)
        for place, amount in need.scalars:
            scalars[place] -= amount
        before = self.of(node_class.model, node_class.scalars, node_class.gpus)
        weights = self._weights_of(node_class.model, tuple(scalars))
        # Work without GPUs takes nothing that is scarce; of equal nodes it leaves alone the one
        # with the most free GPUs.
        more = self._scarcity[node_class.model] if need.gpu_milli else 0
        free = () if need.gpu_milli else (sum(node_class.gpus),)
        found = []
        for gpu in amounts:
            after = self._of(weights, gpus_without(node_class.gpus, need.gpu_milli, gpu))
            points = self._points(after - before) + more
            found.append(((points, *free, *tightness(node_class, need, gpu)), gpu))
        return NodeFit(*min(found))

    def _points(self, growth: int) -> int:
        """Steps of fragmentation, to the nearest; a half counts up."""
        return (2 * growth + STEP * self._total) // (2 * STEP * self._total)

    def of(self, model: int, scalars: Scalars, gpus: tuple[int, ...]) -> int:
        """Thousandths of GPUs that usual work cannot use, times the sum of all frequencies."""
        return self._of(self._weights_of(model, scalars), gpus)

    def _of(self, weights: Weights, gpus: tuple[int, ...]) -> int:
        number, weighed = weights
        name = (number, gpus)
        found = self._found.get(name)
        if found is None:
            if len(self._found) > MOST_REMEMBERED:
                self._found.clear()
                self._usable.clear()
            usable = self._usable.get(gpus)
            if usable is None:
                usable = self._usable[gpus] = tuple(_usable(gpus, size) for size in self._sizes)
            found = sum(gpus) * self._total - sum(map(mul, weighed, usable))
            self._found[name] = found
        return found

    def _weights_of(self, model: int, scalars: Scalars) -> Weights:
        """For each size in GPUs, the frequency of usual work that the rest of the node suffices."""
        ranks = (model, *map(bisect_right, self._asked, scalars))
        found = self._weights.get(ranks)
        if found is None:
            if len(self._weights) > MOST_REMEMBERED:
                self._weights.clear()
            weighed = self._weigh(model, scalars)
            number = self._numbers.setdefault(weighed, len(self._numbers))
            found = self._weights[ranks] = (number, weighed)
        return found

    def _weigh(self, model: int, scalars: Scalars) -> tuple[int, ...]:
        weights = dict.fromkeys(self._sizes, 0)
        for need, frequency in self._usual:
            if (
                need.gpu_milli
                and (need.models is None or model in need.models)
                and all(scalars[place] >= amount for place, amount in need.scalars)
            ):
                weights[need.gpu_milli] += frequency
        return tuple(weights.values())


def scarcity_points(
    usual: Sequence[tuple[MemberNeed, int]], capacities: Sequence[int]
) -> list[int]:
    """Points against nodes of each model, by how much of it is demanded by name.

    Demand is compared with capacity as shares: usual work as a whole is taken to ask for as many
    GPUs as there are. Work that names several models asks each for a part, by their capacities.

    Args:
        capacities: thousandths of GPUs by number of the model.
    """
    requested = sum(need.gpu_milli * frequency for need, frequency in usual)
    capacity = sum(capacities)
    demands = [Fraction(0)] * len(capacities)
    for need, frequency in usual:
        named = sum(capacities[model] for model in need.models or ())
        for model in sorted(need.models or ()):
            if named and need.gpu_milli:
                part = need.gpu_milli * frequency * capacities[model]
                demands[model] += Fraction(part * capacity, named * requested)
    return [
        int(SCARCE_POINTS * min(Fraction(1), demand / one)) if one and demand else 0
        for demand, one in zip(demands, capacities, strict=True)
    ]


def _usable(gpus: tuple[int, ...], size: int) -> int:
    """What work that asks for `size` of GPUs could use of them."""
    if size >= WHOLE:
        whole = gpus.count(WHOLE)
        return whole * WHOLE if size <= whole * WHOLE else 0
    return sum([one for one in gpus if one >= size])
