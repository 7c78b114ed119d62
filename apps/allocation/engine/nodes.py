"""Room on the nodes of one pool: which node and which GPUs a member gets.

Nodes in the same state form one bucket, so that a choice looks at kinds of nodes, not at nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from apps.allocation.engine.compiled import UNCOUNTED, Compiled, Shape
from apps.allocation.engine.quantities import GPU, UNCOUNTED_UNLESS_LISTED, WHOLE
from apps.allocation.engine.snapshot import Id, Member, Node, Pool, Share

# A node's free amounts: of its scalar keys, and of each GPU by position.
State = tuple[tuple[int, ...], tuple[int, ...]]
# Number of the node's model, free scalars, free amounts of its GPUs in ascending order.
Kind = tuple[int, tuple[int, ...], tuple[int, ...]]
# Where a member sits: node, and (GPU position, thousandths) for each GPU that it uses.
Seat = tuple[int, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, slots=True)
class Need:
    """What a member asks of a node: (position of scalar, amount), and of its GPUs."""

    scalars: tuple[tuple[int, int], ...]
    gpu_milli: int
    models: frozenset[int] | None


class Site:
    """What does not change about the nodes of a pool, in order of name and id."""

    def __init__(self, compiled: Compiled, pool: Pool) -> None:
        self.nodes = tuple(sorted(pool.nodes, key=lambda one: (one.name, one.id)))
        self.index: dict[Id, int] = {node.id: number for number, node in enumerate(self.nodes)}
        self.gpus = tuple(_gpu_indices(node) for node in self.nodes)
        listed = {key for node in self.nodes for key in node.capacity if key != GPU}
        self.keys = tuple(key for key in compiled.keys if key in listed)
        self.key_position = {compiled.key_index[key]: place for place, key in enumerate(self.keys)}
        models = sorted({node.model or "" for node in self.nodes})
        self.model_number = {model: number for number, model in enumerate(models)}
        self.models = tuple(self.model_number[node.model or ""] for node in self.nodes)
        self._gpu_key = compiled.key_index[GPU]
        self._needs: dict[int, Need] = {}
        self._empty = [
            (_scalars(node, self.keys), _gpus(node, self.gpus[number]))
            for number, node in enumerate(self.nodes)
        ]

    def need(self, shape: Shape) -> Need:
        found = self._needs.get(shape.number)
        if found is None:
            scalars = tuple(
                (self.key_position[key], amount)
                for key, amount in shape.member
                if key in self.key_position
            )
            models = None
            if shape.models:
                models = frozenset(
                    self.model_number[one] for one in shape.models if one in self.model_number
                )
            found = Need(scalars, shape.gpu_milli, models)
            self._needs[shape.number] = found
        return found

    def empty(self) -> list[State]:
        return list(self._empty)

    def member(self, seat: Seat) -> Member:
        """A seat with the ids of the snapshot."""
        node, gpus = seat
        shares = tuple(Share(self.gpus[node][place], milli) for place, milli in gpus)
        return Member(self.nodes[node].id, shares)


def _gpu_indices(node: Node) -> tuple[int, ...]:
    if node.gpu_indices is not None:
        return tuple(sorted(node.gpu_indices))
    return tuple(range(-(-node.capacity.get(GPU) // WHOLE)))


def _scalars(node: Node, keys: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(
        node.capacity.get(key, UNCOUNTED if key in UNCOUNTED_UNLESS_LISTED else 0) for key in keys
    )


def _gpus(node: Node, indices: tuple[int, ...]) -> tuple[int, ...]:
    """Free thousandths of each GPU of the empty node; a capacity may end in a part of one."""
    total = node.capacity.get(GPU)
    if total == len(indices) * WHOLE and not node.unavailable_gpus:
        return (WHOLE,) * len(indices)
    found = []
    for place, index in enumerate(indices):
        size = max(0, min(WHOLE, total - place * WHOLE))
        found.append(0 if index in node.unavailable_gpus else size)
    return tuple(found)


class Nodes:
    """The free room on the nodes of one pool; forks share what they do not change."""

    __slots__ = ("buckets", "site", "states")

    def __init__(self, site: Site, states: list[State], buckets: dict[Kind, tuple[int, ...]]):
        self.site = site
        self.states = states
        self.buckets = buckets

    @classmethod
    def of(cls, site: Site, states: list[State]) -> Nodes:
        grouped: dict[Kind, list[int]] = {}
        for number, state in enumerate(states):
            if site.nodes[number].is_schedulable:
                grouped.setdefault(_kind(site, number, state), []).append(number)
        return cls(site, states, {kind: tuple(found) for kind, found in grouped.items()})

    def fork(self) -> Nodes:
        return Nodes(self.site, list(self.states), dict(self.buckets))

    def bound(self, shape: Shape) -> int:
        """How many whole tasks of `shape` fit."""
        need = self.site.need(shape)
        members = 0
        for kind, numbers in self.buckets.items():
            members += members_on(kind, need) * len(numbers)
        return members // shape.replicas

    def largest(self, key: str, shape: Shape) -> int:
        """The most of `key` that one node has free (of GPUs: whole ones, else the best part).

        Only nodes with a model that `shape` accepts.
        """
        best = 0
        models = self.site.need(shape).models
        for model, scalars, gpus in self.buckets:
            if models is not None and model not in models:
                continue
            if key == GPU:
                whole = sum(one for one in gpus if one == WHOLE)
                best = max(best, whole or max(gpus, default=0))
            elif key in self.site.keys:
                best = max(best, scalars[self.site.keys.index(key)])
        return best

    def take(self, shape: Shape) -> tuple[Seat, ...] | None:
        """Place all members of one task, or none."""
        if shape.replicas > 1 and self.bound(shape) == 0:
            return None
        need = self.site.need(shape)
        seats = []
        for _ in range(shape.replicas):
            node = self._choose(need)
            if node is None:
                return None
            seat = (node, seat_gpus(self.states[node][1], need.gpu_milli))
            self._change(seat, need, sign=-1)
            seats.append(seat)
        return tuple(seats)

    def give(self, shape: Shape, seats: tuple[Seat, ...]) -> None:
        need = self.site.need(shape)
        for seat in seats:
            self._change(seat, need, sign=1)

    def retake(self, shape: Shape, seats: tuple[Seat, ...]) -> None:
        """Undo `give`."""
        need = self.site.need(shape)
        for seat in seats:
            self._change(seat, need, sign=-1)

    def could_retake(self, shape: Shape, seats: tuple[Seat, ...]) -> bool:
        """Whether those very seats are free for a task of `shape`."""
        need = self.site.need(shape)
        asked: dict[tuple[int, int, int], int] = {}
        for node, shares in seats:
            for place, amount in need.scalars:
                asked[0, node, place] = asked.get((0, node, place), 0) + amount
            for place, milli in shares:
                asked[1, node, place] = asked.get((1, node, place), 0) + milli
        return all(
            self.states[node][part][place] >= amount
            for (part, node, place), amount in asked.items()
        )

    def _choose(self, need: Need) -> int | None:
        """The node that fits best: the least free of what is asked, then the first by name."""
        best: tuple[tuple[int, ...], int] | None = None
        for kind, numbers in self.buckets.items():
            if members_on(kind, need) > 0:
                candidate = (tightness(kind, need), numbers[0])
                if best is None or candidate < best:
                    best = candidate
        return None if best is None else best[1]

    def _change(self, seat: Seat, need: Need, *, sign: int) -> None:
        number, shares = seat
        scalars, gpus = self.states[number]
        if need.scalars:
            changed = list(scalars)
            for place, amount in need.scalars:
                changed[place] += sign * amount
            scalars = tuple(changed)
        if shares:
            devices = list(gpus)
            for place, milli in shares:
                devices[place] += sign * milli
            gpus = tuple(devices)
        self._move(number, (scalars, gpus))

    def _move(self, number: int, state: State) -> None:
        old = _kind(self.site, number, self.states[number])
        self.states[number] = state
        if old not in self.buckets or number not in self.buckets[old]:
            return
        left = tuple(one for one in self.buckets[old] if one != number)
        if left:
            self.buckets[old] = left
        else:
            del self.buckets[old]
        new = _kind(self.site, number, state)
        numbers = self.buckets.get(new, ())
        at = bisect_left(numbers, number)
        self.buckets[new] = (*numbers[:at], number, *numbers[at:])


def seats_of(site: Site, members: tuple[Member, ...]) -> tuple[Seat, ...]:
    """Where running work sits, as far as the snapshot knows."""
    seats = []
    for member in members:
        node = site.index.get(member.node)
        if node is not None:
            indices = site.gpus[node]
            shares = tuple(
                (indices.index(share.index), share.milli)
                for share in member.devices
                if share.index in indices
            )
            seats.append((node, shares))
    return tuple(seats)


def _kind(site: Site, number: int, state: State) -> Kind:
    return (site.models[number], state[0], tuple(sorted(state[1])))


def members_on(kind: Kind, need: Need) -> int:
    """How many members fit on one node of this kind."""
    model, scalars, gpus = kind
    if need.models is not None and model not in need.models:
        return 0
    found = UNCOUNTED
    if need.gpu_milli >= WHOLE:
        if need.gpu_milli % WHOLE:
            return 0
        found = gpus.count(WHOLE) // (need.gpu_milli // WHOLE)
    elif need.gpu_milli:
        found = sum(one // need.gpu_milli for one in gpus if one > 0)
    for place, amount in need.scalars:
        found = min(found, scalars[place] // amount)
    return max(found, 0)


def tightness(kind: Kind, need: Need) -> tuple[int, ...]:
    """Less is tighter: what is free of what is asked, the GPU to be shared before the node."""
    _, scalars, gpus = kind
    first: tuple[int, ...] = ()
    if need.gpu_milli:
        first = (sum(gpus),)
        if need.gpu_milli < WHOLE:
            first = (min(one for one in gpus if one >= need.gpu_milli), *first)
    return (*first, *(scalars[place] for place, _ in need.scalars))


def seat_gpus(gpus: tuple[int, ...], milli: int) -> tuple[tuple[int, int], ...]:
    """Positions for a member that fits.

    A fraction goes to the fullest GPU that has it free, whole GPUs are the first free ones.
    """
    if not milli:
        return ()
    if milli < WHOLE:
        _, place = min((one, place) for place, one in enumerate(gpus) if one >= milli)
        return ((place, milli),)
    whole = [place for place, one in enumerate(gpus) if one == WHOLE]
    return tuple((place, WHOLE) for place in whole[: milli // WHOLE])
