"""Consolidation: running work that is placed anew inside its pool to make one large gap.

Any task that limits allow may ask for it, without further right; plans that only move come before
plans that preempt, the fewest moves first (docs/allocation.md, "Taking back").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice

from apps.allocation.engine.compiled import Shape, Work
from apps.allocation.engine.flocks import Flock, least_loss
from apps.allocation.engine.kinds import Need, members_on
from apps.allocation.engine.nodes import Nodes, Seat, State
from apps.allocation.engine.quantities import WHOLE
from apps.allocation.engine.rooms import Room
from apps.allocation.engine.snapshot import Held, Id

# A plan of more moves than this costs more than it gives; of each number of moves a search tries
# so many plans at most.
MOST_MOVES = 3
MOST_TRIALS = 100
# Sets of tasks that are looked at on one node, and of nodes for one gang.
MOST_SETS = 100


@dataclass(slots=True)
class Moved:
    """A task that is stopped and starts again at once: from `seats` to `anew`."""

    flock: Flock
    held: Held
    seats: tuple[Seat, ...]
    anew: tuple[Seat, ...]
    beneficiary: Id


@dataclass(frozen=True, slots=True, eq=False)
class Movable:
    """A task that may be moved, and where it sits."""

    flock: Flock
    held: Held
    seats: tuple[Seat, ...]


@dataclass(slots=True)
class MovePlan:
    """The room once everybody sits, the taker's seats, and who was moved."""

    room: Room
    seats: tuple[Seat, ...]
    moved: list[Moved]


Several = tuple[Movable, ...]


@dataclass(frozen=True, slots=True)
class _Trial:
    """Who still has to sit, in this order (None: the taker), and who sits where already."""

    room: Room
    waiting: tuple[Movable | None, ...]
    seated: tuple[tuple[Movable | None, tuple[Seat, ...]], ...] = ()
    lifted: Several = ()


@dataclass(frozen=True, slots=True)
class _Set:
    """Tasks of one node, and for how many more members they leave room together."""

    movables: Several
    gain: int


def find_moves(room: Room, work: Work, movables: Iterable[Movable]) -> MovePlan | None:
    """A plan of the fewest moves that makes room for the next task of `work`.

    Only sets of tasks are tried that leave room for it on their nodes; where one of them finds
    no other place, those that would make one for it are lifted too.

    Args:
        room: where totals suffice and only nodes are short.
    """
    if room.nodes is None:
        return None
    search = _Search(work, room.nodes, movables)
    for most in range(1, MOST_MOVES + 1):
        search.trials = 0
        found = search.seat(_Trial(room, (None,)), most)
        if found is not None:
            return search.plan(found)
    return None


class _Search:
    def __init__(self, work: Work, nodes: Nodes, movables: Iterable[Movable]) -> None:
        self.work = work
        self.site = nodes.site
        self.trials = 0
        self.by_node: dict[int, list[Movable]] = {}
        for one in sorted(movables, key=lambda each: least_loss(each.held)):
            for node in dict.fromkeys(node for node, _ in one.seats):
                if self.site.nodes[node].is_schedulable:
                    self.by_node.setdefault(node, []).append(one)

    def seat(self, trial: _Trial, most: int) -> _Trial | None:
        """Let everybody who waits sit, with at most so many more tasks lifted."""
        if not trial.waiting:
            return trial
        first = trial.waiting[0]
        shape = first.flock.shape if first else self.work.shape
        room = trial.room.fork()
        seats = room.take(shape)
        if seats is not None:
            seated = (*trial.seated, (first, seats))
            return self.seat(_Trial(room, trial.waiting[1:], seated, trial.lifted), most)
        for several in self._sets(trial, shape, most):
            self.trials += 1
            if self.trials > MOST_TRIALS:
                return None
            found = self.seat(_lifted(trial, several), most - len(several))
            if found is not None:
                return found
        return None

    def plan(self, trial: _Trial) -> MovePlan:
        beneficiary = self.work.head(self.work.taken).task
        seats = next(seats for one, seats in trial.seated if one is None)
        moved = [
            Moved(one.flock, one.held, one.seats, anew, beneficiary)
            for one, anew in trial.seated
            if one is not None
        ]
        return MovePlan(trial.room, seats, moved)

    def _sets(self, trial: _Trial, shape: Shape, most: int) -> Iterator[Several]:
        """Tasks to lift so that one of `shape` fits: the fewest, the smallest, the least lost."""
        nodes = trial.room.nodes
        if nodes is None or most <= 0:
            return
        need = self.site.need(shape)
        missing = shape.replicas - nodes.members(need)
        found = self._single_sets(trial, nodes, need, most, missing)
        if missing > 1:
            found = list(_joined(found, most, missing))
        found.sort(key=_cheapest)
        yield from (one.movables for one in found)

    def _single_sets(
        self, trial: _Trial, nodes: Nodes, need: Need, most: int, missing: int
    ) -> list[_Set]:
        """On each node; of nodes that look the same only as many as could be of use."""
        found = []
        alike: dict[object, int] = {}
        for node, here in self.by_node.items():
            movables = [one for one in here if one not in trial.lifted]
            look = (self._kind(node, nodes.states[node]), _look(movables, node))
            if alike.get(look, 0) >= missing or not self._may_do(node, nodes, movables, need, most):
                continue
            alike[look] = alike.get(look, 0) + 1
            found += self._sets_on(node, nodes.states[node], movables, need, most)
        return found

    def _sets_on(
        self, node: int, state: State, movables: list[Movable], need: Need, most: int
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
        self, node: int, nodes: Nodes, movables: list[Movable], need: Need, most: int
    ) -> bool:
        """Whether the node has enough whole GPUs with the largest ones lifted."""
        if need.gpu_milli < WHOLE:
            return True
        free = nodes.states[node][1].count(WHOLE)
        sizes = sorted((_gpus_on(one, node) for one in movables), reverse=True)
        return (free + sum(sizes[:most])) * WHOLE >= need.gpu_milli

    def _kind(self, node: int, state: State) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        return (self.site.models[node], state[0], state[1])

    def _without(self, node: int, state: State, several: Several) -> State:
        scalars, gpus = list(state[0]), list(state[1])
        for one in several:
            for place, amount in self.site.need(one.flock.shape).scalars:
                scalars[place] += amount * sum(at == node for at, _ in one.seats)
            for at, shares in one.seats:
                if at == node:
                    for place, milli in shares:
                        gpus[place] += milli
        return tuple(scalars), tuple(gpus)


def _cheapest(one: _Set) -> tuple[object, ...]:
    """Small tasks find another place sooner than large ones."""
    losses = [least_loss(movable.held) for movable in one.movables]
    return (len(losses), sum(movable.flock.shape.gpu_milli for movable in one.movables), losses)


def _gpus_on(movable: Movable, node: int) -> int:
    """How many GPUs of the node it uses, wholly or in part."""
    return sum(len(shares) for at, shares in movable.seats if at == node)


def _look(movables: list[Movable], node: int) -> tuple[object, ...]:
    """What tells apart two nodes in the same state."""
    return tuple(
        sorted(
            (one.flock.shape.number, tuple(shares for at, shares in one.seats if at == node))
            for one in movables
        )
    )


def _lifted(trial: _Trial, several: Several) -> _Trial:
    """The largest first: it has the fewest places to go."""
    room = trial.room.fork()
    for one in several:
        room.give(one.flock.shape, one.seats)
    first, *rest = trial.waiting
    moved = [*(one for one in rest if one is not None), *several]
    moved.sort(key=lambda one: (-one.flock.shape.gpu_milli, least_loss(one.held)))
    return _Trial(room, (first, *moved), trial.seated, (*trial.lifted, *several))


def _joined(singles: list[_Set], most: int, missing: int) -> Iterator[_Set]:
    """Sets of several nodes, for a gang that lacks room for more than one member."""
    singles.sort(key=_cheapest)
    for count in range(1, min(most, missing) + 1):
        for sets in islice(combinations(singles, count), MOST_SETS):
            movables = tuple(dict.fromkeys(m for one in sets for m in one.movables))
            gain = sum(one.gain for one in sets)
            if len(movables) <= most and gain >= missing:
                yield _Set(movables, gain)
