"""Room on the nodes of one pool: which node and which GPUs a member gets.

Nodes in the same state form one bucket, so that a choice looks at kinds of nodes, not at nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from apps.allocation.engine.compiled import UNCOUNTED, Compiled, Shape
from apps.allocation.engine.fragmentation import Fragmentation, scarcity_points
from apps.allocation.engine.kinds import Gpus, Kind, Need, Scalars, seat_gpus
from apps.allocation.engine.quantities import GPU, UNCOUNTED_UNLESS_LISTED, WHOLE
from apps.allocation.engine.rankings import Ranking
from apps.allocation.engine.snapshot import Id, Member, Node, Pool, Share, Usual

# A node's free amounts: of its scalar keys, and of each GPU by position.
State = tuple[Scalars, Gpus]
# Where a member sits: node, and (GPU position, thousandths) for each GPU that it uses.
Seat = tuple[int, tuple[tuple[int, int], ...]]

# Beyond so many remembered kinds, a site forgets them before it is looked at anew.
MOST_KINDS = 50_000


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
        self._by_content: dict[tuple[object, ...], Need] = {}
        self._by_shape: dict[int, Need] = {}
        self._empty = [
            (_scalars(node, self.keys), _gpus(node, self.gpus[number]))
            for number, node in enumerate(self.nodes)
        ]
        self._kinds: dict[tuple[int, Scalars, Gpus], Kind] = {}
        self._by_state: dict[tuple[int, Scalars, Gpus], Kind] = {}
        self._serials = 0
        self.fragmentation = self._fragmentation(
            [one for one in compiled.snapshot.usual if one.pool in {None, pool.id}]
        )

    def need(self, shape: Shape) -> Need:
        found = self._by_shape.get(shape.number)
        if found is None:
            scalars = [
                (self.key_position[key], amount)
                for key, amount in shape.member
                if key in self.key_position
            ]
            found = self._need(scalars, shape.gpu_milli, shape.models)
            self._by_shape[shape.number] = found
        return found

    def _need(
        self, scalars: Iterable[tuple[int, int]], gpu_milli: int, models: tuple[str, ...]
    ) -> Need:
        asked = tuple(sorted(scalars))
        allowed = None
        if models:
            allowed = frozenset(
                self.model_number[one] for one in models if one in self.model_number
            )
        content = (asked, gpu_milli, allowed)
        found = self._by_content.get(content)
        if found is None:
            found = Need(len(self._by_content), asked, gpu_milli, allowed)
            self._by_content[content] = found
        return found

    def _fragmentation(self, usual: Iterable[Usual]) -> Fragmentation:
        frequencies: dict[Need, int] = {}
        for one in usual:
            scalars = [
                (self.keys.index(key), amount)
                for key, amount in one.request.pairs
                if key in self.keys and amount > 0
            ]
            need = self._need(scalars, max(one.request.get(GPU), 0), one.models)
            frequencies[need] = frequencies.get(need, 0) + one.frequency * one.replicas
        capacities = [0] * len(self.model_number)
        for model, (_, gpus) in zip(self.models, self._empty, strict=True):
            capacities[model] += sum(gpus)
        found = list(frequencies.items())
        return Fragmentation(found, scarcity_points(found, capacities), len(self.keys))

    def kind(self, number: int, state: State) -> Kind:
        """The kind of node `number` while this much of it is free."""
        model = self.models[number]
        name = (model, *state)
        found = self._by_state.get(name)
        if found is None:
            scalars, gpus = state
            ordered = tuple(sorted(gpus))
            found = self._kinds.get((model, scalars, ordered))
            if found is None:
                found = Kind(self._serials, model, scalars, ordered)
                self._serials += 1
                self._kinds[model, scalars, ordered] = found
            self._by_state[name] = found
        return found

    def forget_kinds(self) -> None:
        """Start anew once too many are remembered; whoever uses old ones goes on with them."""
        if len(self._by_state) > MOST_KINDS:
            self._by_state = {}
            self._kinds = {}

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

    __slots__ = ("_kinds", "_log", "_owner", "_rankings", "buckets", "site", "states")

    def __init__(
        self,
        site: Site,
        states: list[State],
        kinds: list[Kind],
        buckets: dict[Kind, tuple[int, ...]],
    ) -> None:
        self.site = site
        self.states = states
        self.buckets = buckets
        self._kinds = kinds
        # Kinds that got a node since the first ranking was made.
        self._log: list[Kind] = []
        self._rankings: dict[int, Ranking] = {}
        self._owner = object()

    @classmethod
    def of(cls, site: Site, states: list[State]) -> Nodes:
        site.forget_kinds()
        kinds = [site.kind(number, state) for number, state in enumerate(states)]
        grouped: dict[Kind, list[int]] = {}
        for number, kind in enumerate(kinds):
            if site.nodes[number].is_schedulable:
                grouped.setdefault(kind, []).append(number)
        return cls(site, states, kinds, {kind: tuple(found) for kind, found in grouped.items()})

    def fork(self) -> Nodes:
        fork = Nodes(self.site, list(self.states), list(self._kinds), dict(self.buckets))
        fork._log = list(self._log)
        fork._rankings = dict(self._rankings)
        # What both know from now on belongs to neither.
        self._owner = object()
        return fork

    def bound(self, shape: Shape) -> int:
        """How many whole tasks of `shape` fit."""
        return self.members(self.site.need(shape)) // shape.replicas

    def members(self, need: Need) -> int:
        """How many members fit."""
        found = 0
        for kind, numbers in self.buckets.items():
            found += kind.room_for(need) * len(numbers)
        return found

    def largest(self, key: str, shape: Shape) -> int:
        """The most of `key` that one node has free (of GPUs: whole ones, else the best part).

        Only nodes with a model that `shape` accepts.
        """
        best = 0
        models = self.site.need(shape).models
        for kind in self.buckets:
            if models is not None and kind.model not in models:
                continue
            if key == GPU:
                whole = kind.gpus.count(WHOLE) * WHOLE
                best = max(best, whole or max(kind.gpus, default=0))
            elif key in self.site.keys:
                best = max(best, kind.scalars[self.site.keys.index(key)])
        return best

    def take(self, shape: Shape) -> tuple[Seat, ...] | None:
        """Place all members of one task, or none."""
        if shape.replicas > 1 and self.bound(shape) == 0:
            return None
        need = self.site.need(shape)
        seats = []
        for _ in range(shape.replicas):
            node = self._ranking(need).first(self.buckets, self._log)
            if node is None:
                return None
            choice = self.site.fragmentation.choice(self._kinds[node], need)
            seat = (node, seat_gpus(self.states[node][1], need.gpu_milli, choice.gpu))
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

    def _ranking(self, need: Need) -> Ranking:
        if len(self._log) > 64 + 4 * len(self.states):
            # Looking at every kind again costs no more than going through all that.
            self._log = []
            self._rankings = {}
        found = self._rankings.get(need.number)
        if found is None:
            fragmentation = self.site.fragmentation
            found = Ranking.of(fragmentation, need, self.buckets, len(self._log), self._owner)
        elif found.owner is not self._owner:
            found = found.copy(self._owner)
        else:
            return found
        self._rankings[need.number] = found
        return found

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
        old = self._kinds[number]
        new = self.site.kind(number, state)
        self.states[number] = state
        self._kinds[number] = new
        buckets = self.buckets
        if not self.site.nodes[number].is_schedulable or new is old:
            return
        numbers = buckets[old]
        if len(numbers) == 1:
            del buckets[old]
        else:
            at = bisect_left(numbers, number)
            buckets[old] = (*numbers[:at], *numbers[at + 1 :])
        numbers = buckets.get(new, ())
        at = bisect_left(numbers, number)
        buckets[new] = (*numbers[:at], number, *numbers[at:])
        if at == 0 and self._rankings:
            self._log.append(new)


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
