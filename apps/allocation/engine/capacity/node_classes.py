"""Node classes: nodes of one pool with the same model and the same free amounts."""

from __future__ import annotations

from dataclasses import dataclass

from apps.allocation.engine.compile.compiled_snapshot import UNCOUNTED
from apps.allocation.engine.model.quantities import WHOLE

Scalars = tuple[int, ...]
Gpus = tuple[int, ...]
# Less is better: points of fragmentation and scarcity, then what is free of what is requested.
Fit = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemberNeed:
    """What a member requests of a node: (position of scalar, amount), and of its GPUs.

    `number` identifies it among the needs of one layout.
    """

    number: int
    scalars: tuple[tuple[int, int], ...]
    gpu_milli: int
    models: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class NodeFit:
    """How well a need fits on a class, and what is free of the GPU that a fraction would share."""

    fit: Fit
    gpu: int


class NodeClass:
    """One such state of a node: number of its model, free scalars, free GPUs in ascending order.

    A layout makes each of them once, so they are compared by identity; `serial` orders them. What
    follows from class and need alone is remembered here, by the number of the need.
    """

    __slots__ = ("choices", "gpus", "members", "model", "scalars", "serial")

    def __init__(self, serial: int, model: int, scalars: Scalars, gpus: Gpus) -> None:
        self.serial = serial
        self.model = model
        self.scalars = scalars
        self.gpus = gpus
        self.members: dict[int, int] = {}
        self.choices: dict[int, NodeFit] = {}

    def capacity_for(self, need: MemberNeed) -> int:
        """How many members fit on one node of this class."""
        found = self.members.get(need.number)
        if found is None:
            found = members_on(self.model, self.scalars, self.gpus, need)
            self.members[need.number] = found
        return found


def members_on(model: int, scalars: Scalars, gpus: Gpus, need: MemberNeed) -> int:
    """How many members fit on a node with this much free."""
    if need.models is not None and model not in need.models:
        return 0
    found = UNCOUNTED
    if need.gpu_milli >= WHOLE:
        if need.gpu_milli % WHOLE:
            return 0
        found = gpus.count(WHOLE) // (need.gpu_milli // WHOLE)
    elif need.gpu_milli:
        found = sum([one // need.gpu_milli for one in gpus if one > 0])
    for place, amount in need.scalars:
        found = min(found, scalars[place] // amount)
    return max(found, 0)


def tightness(node_class: NodeClass, need: MemberNeed, gpu: int) -> Fit:
    """Less is tighter: what is free of what is requested, the shared GPU before the node."""
    first: Fit = ()
    if need.gpu_milli:
        first = (gpu, sum(node_class.gpus)) if need.gpu_milli < WHOLE else (sum(node_class.gpus),)
    return (*first, *[node_class.scalars[place] for place, _ in need.scalars])


def gpu_amounts(gpus: Gpus, milli: int) -> list[int]:
    """The different amounts, ascending, that are free on GPUs which a fraction may share."""
    return sorted({one for one in gpus if one >= milli})


def gpus_without(gpus: Gpus, milli: int, gpu: int) -> Gpus:
    """What is left of GPUs in ascending order: less a fraction of `gpu`, or less whole ones."""
    if not milli:
        return gpus
    if milli >= WHOLE:
        count = milli // WHOLE
        first = gpus.index(WHOLE)
        return (*(0,) * count, *gpus[:first], *gpus[first + count :])
    left = list(gpus)
    left[left.index(gpu)] = gpu - milli
    return tuple(sorted(left))


def pick_gpus(gpus: Gpus, milli: int, gpu: int) -> tuple[tuple[int, int], ...]:
    """Positions for a member that fits: the first with `gpu` free, or the first whole ones."""
    if not milli:
        return ()
    if milli < WHOLE:
        return ((gpus.index(gpu), milli),)
    whole = [place for place, one in enumerate(gpus) if one == WHOLE]
    return tuple([(place, WHOLE) for place in whole[: milli // WHOLE]])
