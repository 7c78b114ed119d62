"""The nodes of one pool: which node and which GPUs a member gets.

Nodes in the same state form one bucket, so a choice compares classes of nodes, not nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from apps.allocation.engine.capacity.fragmentation import Fragmentation, scarcity_points
from apps.allocation.engine.capacity.node_classes import (
    Gpus,
    MemberNeed,
    NodeClass,
    Scalars,
    pick_gpus,
)
from apps.allocation.engine.capacity.rankings import Ranking
from apps.allocation.engine.compile.compiled_snapshot import (
    UNCOUNTED,
    CompiledShape,
    CompiledSnapshot,
)
from apps.allocation.engine.model.quantities import GPU, UNCOUNTED_UNLESS_LISTED, WHOLE
from apps.allocation.engine.model.snapshot import (
    DeviceShare,
    Id,
    MemberPlacement,
    NodeSnapshot,
    PoolSnapshot,
    UsualShape,
)

# A node's free amounts: of its scalar keys, and of each GPU by position.
State = tuple[Scalars, Gpus]
# The assignment of a member: node, and (GPU position, thousandths) for each GPU that it uses.
MemberAssignment = tuple[int, tuple[tuple[int, int], ...]]

# Beyond so many remembered classes, a layout forgets them before the next choice.
MOST_NODE_CLASSES = 50_000


class NodeLayout:
    """What does not change about the nodes of a pool, in order of name and id."""

    def __init__(self, compiled: CompiledSnapshot, pool: PoolSnapshot) -> None:
        self.nodes = tuple(sorted(pool.nodes, key=lambda one: (one.name, one.id)))
        self.index: dict[Id, int] = {node.id: number for number, node in enumerate(self.nodes)}
        self.gpus = tuple(_gpu_indices(node) for node in self.nodes)
        listed = {key for node in self.nodes for key in node.capacity if key != GPU}
        self.keys = tuple(key for key in compiled.keys if key in listed)
        self.key_position = {compiled.key_index[key]: place for place, key in enumerate(self.keys)}
        models = sorted({node.model or "" for node in self.nodes})
        self.model_number = {model: number for number, model in enumerate(models)}
        self.models = tuple(self.model_number[node.model or ""] for node in self.nodes)
        self._by_content: dict[tuple[object, ...], MemberNeed] = {}
        self._by_shape: dict[int, MemberNeed] = {}
        self._empty = [
            (_scalars(node, self.keys), _gpus(node, self.gpus[number]))
            for number, node in enumerate(self.nodes)
        ]
        self._node_classes: dict[tuple[int, Scalars, Gpus], NodeClass] = {}
        self._by_state: dict[tuple[int, Scalars, Gpus], NodeClass] = {}
        self._serials = 0
        self.fragmentation = self._fragmentation(
            [one for one in compiled.snapshot.usual if one.pool in {None, pool.id}]
        )

    def need(self, shape: CompiledShape) -> MemberNeed:
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
    ) -> MemberNeed:
        requested = tuple(sorted(scalars))
        allowed = None
        if models:
            allowed = frozenset(
                self.model_number[one] for one in models if one in self.model_number
            )
        content = (requested, gpu_milli, allowed)
        found = self._by_content.get(content)
        if found is None:
            found = MemberNeed(len(self._by_content), requested, gpu_milli, allowed)
            self._by_content[content] = found
        return found

    def _fragmentation(self, usual: Iterable[UsualShape]) -> Fragmentation:
        frequencies: dict[MemberNeed, int] = {}
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

    def node_class(self, number: int, state: State) -> NodeClass:
        """The class of node `number` while this much of it is free."""
        model = self.models[number]
        name = (model, *state)
        found = self._by_state.get(name)
        if found is None:
            scalars, gpus = state
            ordered = tuple(sorted(gpus))
            found = self._node_classes.get((model, scalars, ordered))
            if found is None:
                found = NodeClass(self._serials, model, scalars, ordered)
                self._serials += 1
                self._node_classes[model, scalars, ordered] = found
            self._by_state[name] = found
        return found

    def forget_node_classes(self) -> None:
        """Start again once too many are remembered; what uses old ones keeps them."""
        if len(self._by_state) > MOST_NODE_CLASSES:
            self._by_state = {}
            self._node_classes = {}

    def empty(self) -> list[State]:
        return list(self._empty)

    def member(self, member: MemberAssignment) -> MemberPlacement:
        """A member's placement with the ids of the snapshot."""
        node, gpus = member
        shares = tuple(DeviceShare(self.gpus[node][place], milli) for place, milli in gpus)
        return MemberPlacement(self.nodes[node].id, shares)


def _gpu_indices(node: NodeSnapshot) -> tuple[int, ...]:
    if node.gpu_indices is not None:
        return tuple(sorted(node.gpu_indices))
    return tuple(range(-(-node.capacity.get(GPU) // WHOLE)))


def _scalars(node: NodeSnapshot, keys: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(
        node.capacity.get(key, UNCOUNTED if key in UNCOUNTED_UNLESS_LISTED else 0) for key in keys
    )


def _gpus(node: NodeSnapshot, indices: tuple[int, ...]) -> tuple[int, ...]:
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
    """The free capacity on the nodes of one pool; forks share what they do not change."""

    __slots__ = ("_log", "_node_classes", "_owner", "_rankings", "buckets", "layout", "states")

    def __init__(
        self,
        layout: NodeLayout,
        states: list[State],
        node_classes: list[NodeClass],
        buckets: dict[NodeClass, tuple[int, ...]],
    ) -> None:
        self.layout = layout
        self.states = states
        self.buckets = buckets
        self._node_classes = node_classes
        # Classes that got a node since the first ranking was made.
        self._log: list[NodeClass] = []
        self._rankings: dict[int, Ranking] = {}
        self._owner = object()

    @classmethod
    def of(cls, layout: NodeLayout, states: list[State]) -> Nodes:
        layout.forget_node_classes()
        node_classes = [layout.node_class(number, state) for number, state in enumerate(states)]
        grouped: dict[NodeClass, list[int]] = {}
        for number, node_class in enumerate(node_classes):
            if layout.nodes[number].is_schedulable:
                grouped.setdefault(node_class, []).append(number)
        return cls(
            layout,
            states,
            node_classes,
            {node_class: tuple(found) for node_class, found in grouped.items()},
        )

    def fork(self) -> Nodes:
        fork = Nodes(self.layout, list(self.states), list(self._node_classes), dict(self.buckets))
        fork._log = list(self._log)
        fork._rankings = dict(self._rankings)
        # What both know from now on belongs to neither.
        self._owner = object()
        return fork

    def record(self) -> Nodes:
        """What is free now, for `bound` alone, at the cost of the different nodes."""
        return Nodes(self.layout, [], [], dict(self.buckets))

    def bound(self, shape: CompiledShape) -> int:
        """How many whole tasks of `shape` fit."""
        return self.members(self.layout.need(shape)) // shape.replicas

    def members(self, need: MemberNeed) -> int:
        """How many members fit."""
        found = 0
        for node_class, numbers in self.buckets.items():
            found += node_class.capacity_for(need) * len(numbers)
        return found

    def largest(self, key: str, shape: CompiledShape) -> int:
        """The most of `key` that one node has free (of GPUs: whole ones, else the best part).

        Only nodes with a model that `shape` accepts count.
        """
        best = 0
        models = self.layout.need(shape).models
        for node_class in self.buckets:
            if models is not None and node_class.model not in models:
                continue
            if key == GPU:
                whole = node_class.gpus.count(WHOLE) * WHOLE
                best = max(best, whole or max(node_class.gpus, default=0))
            elif key in self.layout.keys:
                best = max(best, node_class.scalars[self.layout.keys.index(key)])
        return best

    def take(self, shape: CompiledShape) -> tuple[MemberAssignment, ...] | None:
        """Place all members of one task, or none."""
        if shape.replicas > 1 and self.bound(shape) == 0:
            return None
        need = self.layout.need(shape)
        members = []
        for _ in range(shape.replicas):
            node = self._ranking(need).first(self.buckets, self._log)
            if node is None:
                return None
            choice = self.layout.fragmentation.choice(self._node_classes[node], need)
            member = (node, pick_gpus(self.states[node][1], need.gpu_milli, choice.gpu))
            self._change(member, need, sign=-1)
            members.append(member)
        return tuple(members)

    def give(self, shape: CompiledShape, members: tuple[MemberAssignment, ...]) -> None:
        need = self.layout.need(shape)
        for member in members:
            self._change(member, need, sign=1)

    def retake(self, shape: CompiledShape, members: tuple[MemberAssignment, ...]) -> None:
        """Undo `give`."""
        need = self.layout.need(shape)
        for member in members:
            self._change(member, need, sign=-1)

    def could_retake(self, shape: CompiledShape, members: tuple[MemberAssignment, ...]) -> bool:
        """Whether a task of `shape` fits with exactly these members."""
        need = self.layout.need(shape)
        requested: dict[tuple[int, int, int], int] = {}
        for node, shares in members:
            for place, amount in need.scalars:
                requested[0, node, place] = requested.get((0, node, place), 0) + amount
            for place, milli in shares:
                requested[1, node, place] = requested.get((1, node, place), 0) + milli
        return all(
            self.states[node][part][place] >= amount
            for (part, node, place), amount in requested.items()
        )

    def _ranking(self, need: MemberNeed) -> Ranking:
        if len(self._log) > 64 + 4 * len(self.states):
            # Comparing every class again costs no more than going through all that.
            self._log = []
            self._rankings = {}
        found = self._rankings.get(need.number)
        if found is None:
            fragmentation = self.layout.fragmentation
            found = Ranking.of(fragmentation, need, self.buckets, len(self._log), self._owner)
        elif found.owner is not self._owner:
            found = found.copy(self._owner)
        else:
            return found
        self._rankings[need.number] = found
        return found

    def _change(self, member: MemberAssignment, need: MemberNeed, *, sign: int) -> None:
        number, shares = member
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
        old = self._node_classes[number]
        new = self.layout.node_class(number, state)
        self.states[number] = state
        self._node_classes[number] = new
        buckets = self.buckets
        if not self.layout.nodes[number].is_schedulable or new is old:
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


def assignments_of(
    layout: NodeLayout, running: tuple[MemberPlacement, ...]
) -> tuple[MemberAssignment, ...]:
    """The members of running work, as far as the snapshot knows them."""
    members = []
    for member in running:
        node = layout.index.get(member.node)
        if node is not None:
            indices = layout.gpus[node]
            shares = tuple(
                (indices.index(share.index), share.milli)
                for share in member.devices
                if share.index in indices
            )
            members.append((node, shares))
    return tuple(members)
