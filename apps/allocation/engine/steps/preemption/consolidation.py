"""Consolidation: running work is moved inside its pool to make one large gap.

Any task that limits allow may cause moves, without further right; plans that only move come
before plans that preempt, the fewest moves first (docs/allocation.md, "Preemption").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, islice

from apps.allocation.engine.capacity.free_capacity import FreeCapacity
from apps.allocation.engine.capacity.node_classes import MemberNeed, members_on
from apps.allocation.engine.capacity.nodes import MemberAssignment, Nodes, State
from apps.allocation.engine.compile.compiled_snapshot import CompiledShape, GroupState
from apps.allocation.engine.model.quantities import WHOLE
from apps.allocation.engine.model.snapshot import Id, RunningTask
from apps.allocation.engine.steps.preemption.candidate_groups import CandidateGroup, least_loss

# A plan of more moves than this costs more than it gives; for each number of moves, a search
# tries so many plans at most.
MOST_MOVES = 3
MOST_TRIALS = 100
# Sets of tasks that are tried on one node, and of nodes for one gang.
MOST_SETS = 100
# Requests without a plan after which a pass moves nothing more in a pool.
MOST_FAILURES = 10


@dataclass(slots=True)
class Relocation:
    """A task that stops and starts again at once: from `members` to `new_members`."""

    candidate: CandidateGroup
    running_task: RunningTask
    members: tuple[MemberAssignment, ...]
    new_members: tuple[MemberAssignment, ...]
    beneficiary: Id


@dataclass(frozen=True, slots=True, eq=False)
class MovableTask:
    """A task that may be moved, and the placement of its members."""

    candidate: CandidateGroup
    running_task: RunningTask
    members: tuple[MemberAssignment, ...]


@dataclass(slots=True)
class NoMoves:
    """What found no plan in one pool, and with which version of it."""

    _failed: list[tuple[int, CompiledShape]] = field(default_factory=list)

    def note(self, shape: CompiledShape, version: int) -> None:
        self._failed.append((version, shape))

    def is_vain(self, shape: CompiledShape, version: int) -> bool:
        """Whether a smaller request failed, or so many that others are not worth their time."""
        return len(self._failed) >= MOST_FAILURES or any(
            failed_version == version and _needs_more(shape, failed)
            for failed_version, failed in self._failed
        )


@dataclass(slots=True)
class MovePlan:
    """The capacity after all moves, the beneficiary's members, and the moved tasks."""

    capacity: FreeCapacity
    members: tuple[MemberAssignment, ...]
    moved: list[Relocation]


MovableSet = tuple[MovableTask, ...]


@dataclass(frozen=True, slots=True)
class _PartialPlan:
    """Tasks to assign, in this order (None: the beneficiary), and those assigned already."""

    capacity: FreeCapacity
    waiting: tuple[MovableTask | None, ...]
    assigned: tuple[tuple[MovableTask | None, tuple[MemberAssignment, ...]], ...] = ()
    lifted: MovableSet = ()


@dataclass(frozen=True, slots=True)
class _Set:
    """Tasks of one node, and how many more members fit there without them."""

    movables: MovableSet
    gain: int


def find_moves(
    capacity: FreeCapacity, group: GroupState, movables: Iterable[MovableTask]
) -> MovePlan | None:
    """A plan of the fewest moves that lets the next task of `group` fit.

    Only sets of tasks are tried whose nodes can hold it without them; where one of them finds no
    other place, tasks in its way are lifted too.

    Args:
        capacity: of a pool where totals suffice and only nodes are short.
    """
    if capacity.nodes is None:
        return None
    search = _Search(group, capacity.nodes, movables)
    for most in range(1, MOST_MOVES + 1):
        search.trials = 0
        found = search.member(_PartialPlan(capacity, (None,)), most)
        if found is not None:
            return search.plan(found)
    return None


class _Search:
    def __init__(self, group: GroupState, nodes: Nodes, movables: Iterable[MovableTask]) -> None:
        self.group = group
        self.layout = nodes.layout
        self.trials = 0
        self.by_node: dict[int, list[MovableTask]] = {}
        for one in sorted(movables, key=lambda each: least_loss(each.running_task)):
            for node in dict.fromkeys(node for node, _ in one.members):
                if self.layout.nodes[node].is_schedulable:
                    self.by_node.setdefault(node, []).append(one)

    def member(self, partial: _PartialPlan, most: int) -> _PartialPlan | None:
        """Assign every waiting task, with at most `most` more tasks lifted."""
        if not partial.waiting:
            return partial
        first = partial.waiting[0]
        shape = first.candidate.shape if first else self.group.shape
        capacity = partial.capacity.fork()
        members = capacity.take(shape)
        if members is not None:
            assigned = (*partial.assigned, (first, members))
            return self.member(
                _PartialPlan(capacity, partial.waiting[1:], assigned, partial.lifted), most
            )
        for several in self._sets(partial, shape, most):
            self.trials += 1
            if self.trials > MOST_TRIALS:
                return None
            found = self.member(_lifted(partial, several), most - len(several))
            if found is not None:
                return found
        return None

    def plan(self, partial: _PartialPlan) -> MovePlan:
        beneficiary = self.group.head(self.group.placed_count).task
        members = next(members for one, members in partial.assigned if one is None)
        moved = [
            Relocation(one.candidate, one.running_task, one.members, new_members, beneficiary)
            for one, new_members in partial.assigned
            if one is not None
        ]
        return MovePlan(partial.capacity, members, moved)

    def _sets(self, partial: _PartialPlan, shape: CompiledShape, most: int) -> Iterator[MovableSet]:
        """Tasks to lift so that one of `shape` fits: the fewest, the smallest, the least lost."""
        nodes = partial.capacity.nodes
        if nodes is None or most <= 0:
            return
        need = self.layout.need(shape)
        missing = shape.replicas - nodes.members(need)
        found = self._single_sets(partial, nodes, need, most, missing)
        if missing > 1:
            found = list(_joined(found, most, missing))
        found.sort(key=_cheapest)
        yield from (one.movables for one in found)

    def _single_sets(
        self, partial: _PartialPlan, nodes: Nodes, need: MemberNeed, most: int, missing: int
    ) -> list[_Set]:
        """On each node; of nodes that look the same only as many as could be of use."""
        found = []
        alike: dict[object, int] = {}
        for node, here in self.by_node.items():
            movables = [one for one in here if one not in partial.lifted]
            signature = (self._kind(node, nodes.states[node]), _signature(movables, node))
            if alike.get(signature, 0) >= missing or not self._may_do(
                node, nodes, movables, need, most
            ):
                continue
            alike[signature] = alike.get(signature, 0) + 1
            found += self._sets_on(node, nodes.states[node], movables, need, most)
        return found

    def _sets_on(
        self, node: int, state: State, movables: list[MovableTask], need: MemberNeed, most: int
    ) -> list[_Set]:
        before = members_on(*self._kind(node, state), need)
        found: list[_Set] = []
        for count in range(1, most + 1):
            for several in islice(combinations(movables, count), MOST_SETS):
                after = self._without(node, state, several)
                gain = members_on(*self._kind(node, after), need) - before
                is_more_than_needed = any(
                    one.gain >= gain and all(each in several for each in one.movables)
                    for one in found
                )
                if gain > 0 and not is_more_than_needed:
                    found.append(_Set(several, gain))
        return found

    def _may_do(
        self, node: int, nodes: Nodes, movables: list[MovableTask], need: MemberNeed, most: int
    ) -> bool:
        """Whether the node has enough whole GPUs with the largest tasks lifted."""
        if need.gpu_milli < WHOLE:
            return True
        free = nodes.states[node][1].count(WHOLE)
        sizes = sorted((_gpus_on(one, node) for one in movables), reverse=True)
        return (free + sum(sizes[:most])) * WHOLE >= need.gpu_milli

    def _kind(self, node: int, state: State) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        return (self.layout.models[node], state[0], state[1])

    def _without(self, node: int, state: State, several: MovableSet) -> State:
        scalars, gpus = list(state[0]), list(state[1])
        for one in several:
            for place, amount in self.layout.need(one.candidate.shape).scalars:
                scalars[place] += amount * sum(at == node for at, _ in one.members)
            for at, shares in one.members:
                if at == node:
                    for place, milli in shares:
                        gpus[place] += milli
        return tuple(scalars), tuple(gpus)


def _needs_more(shape: CompiledShape, than: CompiledShape) -> bool:
    """Whether it is the same, or fits only where that one does."""
    amounts = dict(shape.amounts)
    return (shape.replicas, shape.models) == (than.replicas, than.models) and all(
        amounts.get(key, 0) >= amount for key, amount in than.amounts
    )


def _cheapest(one: _Set) -> tuple[object, ...]:
    """Sort key: small tasks find another place sooner than large ones."""
    losses = [least_loss(movable.running_task) for movable in one.movables]
    return (len(losses), sum(movable.candidate.shape.gpu_milli for movable in one.movables), losses)


def _gpus_on(movable: MovableTask, node: int) -> int:
    """How many GPUs of the node it uses, wholly or in part."""
    return sum(len(shares) for at, shares in movable.members if at == node)


def _signature(movables: list[MovableTask], node: int) -> tuple[object, ...]:
    """What distinguishes two nodes in the same state."""
    return tuple(
        sorted(
            (one.candidate.shape.number, tuple(shares for at, shares in one.members if at == node))
            for one in movables
        )
    )


def _lifted(partial: _PartialPlan, several: MovableSet) -> _PartialPlan:
    """Lift these, the largest first: it has the fewest places to go."""
    capacity = partial.capacity.fork()
    for one in several:
        capacity.give(one.candidate.shape, one.members)
    first, *rest = partial.waiting
    moved = [*(one for one in rest if one is not None), *several]
    moved.sort(key=lambda one: (-one.candidate.shape.gpu_milli, least_loss(one.running_task)))
    return _PartialPlan(capacity, (first, *moved), partial.assigned, (*partial.lifted, *several))


def _joined(singles: list[_Set], most: int, missing: int) -> Iterator[_Set]:
    """Sets of several nodes, for a gang that misses more than one member."""
    singles.sort(key=_cheapest)
    for count in range(1, min(most, missing) + 1):
        for sets in islice(combinations(singles, count), MOST_SETS):
            movables = tuple(dict.fromkeys(m for one in sets for m in one.movables))
            gain = sum(one.gain for one in sets)
            if len(movables) <= most and gain >= missing:
                yield _Set(movables, gain)
