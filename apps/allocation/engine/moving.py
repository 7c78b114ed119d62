"""Consolidation: running work that is placed anew inside its pool to make one large gap.

Any task that limits allow may ask for it, without further right; plans that only move come before
plans that preempt, the fewest moves first (docs/allocation.md, "Taking back").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice

from apps.allocation.engine.compiled import Work
from apps.allocation.engine.flocks import Flock
from apps.allocation.engine.nodes import Seat
from apps.allocation.engine.rooms import Room
from apps.allocation.engine.snapshot import Held, Id

# A plan of more moves than this costs more than it gives; a search looks at so many plans at most.
MOST_MOVES = 3
MOST_PLANS = 4_000


@dataclass(slots=True)
class Moved:
    """A task that is stopped and starts again at once: from `seats` to `anew`."""

    flock: Flock
    held: Held
    seats: tuple[Seat, ...]
    anew: tuple[Seat, ...]
    beneficiary: Id


@dataclass(frozen=True, slots=True)
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


def find_moves(room: Room, work: Work, movables: Iterable[Movable]) -> MovePlan | None:
    """The first plan of the fewest moves that makes room for the next task of `work`.

    Args:
        room: where totals suffice and only nodes are short.
        movables: those that would lose least first; the order settles ties.
    """
    if room.nodes is None or any(room.free[key] < one for key, one in work.shape.amounts):
        return None
    for plan in islice(_plans(list(movables)), MOST_PLANS):
        found = _carried_out(room.fork(), work, plan)
        if found is not None:
            return found
    return None


def _plans(movables: list[Movable]) -> Iterator[tuple[Movable, ...]]:
    for count in range(1, MOST_MOVES + 1):
        yield from combinations(movables, count)


def _carried_out(room: Room, work: Work, plan: tuple[Movable, ...]) -> MovePlan | None:
    for one in plan:
        room.give(one.flock.shape, one.seats)
    seats = room.take(work.shape)
    if seats is None:
        return None
    moved = []
    beneficiary = work.head(work.taken).task
    # The largest first: it has the fewest places to go.
    for one in sorted(plan, key=lambda each: -each.flock.shape.gpu_milli):
        anew = room.take(one.flock.shape)
        if anew is None:
            return None
        moved.append(Moved(one.flock, one.held, one.seats, anew, beneficiary))
    return MovePlan(room, seats, moved)
