"""The working state of one pass: ledger, rooms, what is placed, and who was turned away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from apps.allocation.engine.compiled import Compiled, ServingKey, Shape, Work
from apps.allocation.engine.holds import Holds
from apps.allocation.engine.keeping import Kept
from apps.allocation.engine.ledger import Ledger
from apps.allocation.engine.nodes import Nodes, Seat, Site
from apps.allocation.engine.opening import Opening
from apps.allocation.engine.rooms import Room
from apps.allocation.engine.snapshot import Id
from apps.allocation.engine.standing import standing_of, within_limits

Seats = tuple[Seat, ...]

NOTHING_OFFERED: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class Placed:
    """Head `number` of a run, in a pool, with its standing when it was placed."""

    work: Work
    number: int
    pool: int
    seats: Seats
    standing: int


@dataclass(slots=True)
class Front:
    """A pool's room with what is held in it; `held` None: this standing need not mind holds."""

    pool: int
    room: Room
    holds: Holds | None
    held: list[int] | None

    def take(self, work: Work, number: int) -> Seats | None:
        """Seats for head `number`, or None where it does not fit beside what is held."""
        part: dict[int, int] = {}
        if self.held is not None and self.holds is not None:
            own = self.holds.own.get((work.index, number))
            if own is not None and own[0] == self.pool:
                part = own[1]
            free = self.room.free
            for key, amount in work.shape.amounts:
                if free[key] - self.held[key] + part.get(key, 0) < amount:
                    return None
        seats = self.room.take(work.shape)
        if seats is not None and self.held is not None:
            for key, amount in part.items():
                self.held[key] -= amount
        return seats


class Pass:
    """Everything that changes while one snapshot is decided. Local to one call of `decide`."""

    def __init__(self, kept: Kept, at_most: int) -> None:
        compiled = kept.compiled
        opening = Opening(compiled, kept.sites, kept.seats)
        self.compiled = compiled
        self.shares = kept.shares
        self.ledger: Ledger = opening.ledger
        self.rooms = opening.rooms
        self.sites = opening.sites
        self.linked = opening.linked
        self._opening = opening
        self._fits_empty = kept.fits_empty
        self.kept_lines = kept.lines
        self.placed: list[Placed] = []
        self._at_most = at_most
        self.strict = _strict_works(compiled.works)
        # Runs that a pool without backfill turned away, and with which standing; those that found
        # a later pool wait no more.
        self.turned: dict[int, dict[int, tuple[Work, int]]] = {
            number: {} for number, pool in enumerate(compiled.pools) if not pool.has_backfill
        }
        self.walks = 0
        self.matches = 0
        self.rounds = 0

    @property
    def likely_seats(self) -> dict[Id, Seats]:
        """By task, where running work sits of which nobody wrote it down."""
        return self._opening.likely_seats()

    @property
    def left(self) -> int:
        """How many more tasks may start in this pass."""
        return self._at_most - len(self.placed)

    def front(self, pool: int, holds: Holds | None) -> Front:
        held = None
        if holds is not None and pool in holds.total:
            held = list(holds.total[pool])
        return Front(pool, self.rooms[pool].fork(), holds, held)

    def bound(self, work: Work, pools: Iterable[int]) -> int:
        """At most how many tasks of `work` the pools have room for."""
        shape = work.shape
        rooms = self.rooms
        return sum([rooms[pool].bound(shape) for pool in pools])

    def could_ever_take(self, pool: int, shape: Shape) -> bool:
        """Whether the pool has room for a task of `shape` while it is empty."""
        name = (pool, shape.number)
        found = self._fits_empty.get(name)
        if found is None:
            room = _empty_room(self.compiled, pool, self.sites[pool])
            found = room.bound(shape) > 0
            self._fits_empty[name] = found
        return found

    def turn_away(self, work: Work, pools: Iterable[int], standing: int) -> None:
        """Remember which candidate found no room where nothing below may pass by."""
        for pool in pools:
            if pool in self.turned:
                self.turned[pool][work.index] = (work, standing)

    def forget_turned(self, standing: int) -> None:
        """Before candidates of `standing` are served: only better ones may stand in their way.

        And those only while they are candidates: what else of their policy was placed meanwhile
        may have used up the reservation or the limit that they counted on.
        """
        for pool, turned in self.turned.items():
            self.turned[pool] = {
                index: entry
                for index, entry in turned.items()
                if entry[1] < standing and self._is_candidate(entry[0], standing - 1)
            }

    def _is_candidate(self, work: Work, standing: int) -> bool:
        """Whether the next task of `work` would be offered with this standing or a better one."""
        now = standing_of(self.ledger, work)
        return now is not None and now <= standing and within_limits(self.ledger, work) > 0

    def barrier(
        self, pool: int, standing: int, offered: Mapping[int, int] = NOTHING_OFFERED
    ) -> ServingKey | None:
        """The best place turned away, with at most this standing, by a pool without backfill.

        The pool takes nothing below it.

        Args:
            offered: by work index, how many of its tasks come again and speak for themselves.
        """
        keys = [
            work.serving_key(pool, work.taken + offered.get(index, 0))
            for index, (work, turned_with) in self.turned.get(pool, {}).items()
            if turned_with <= standing and work.taken + offered.get(index, 0) < len(work.run.heads)
        ]
        return min(keys, default=None)

    def may_enter(self, work: Work, pool: int, standing: int) -> bool:
        """Whether no candidate of this or a better standing was turned away before the next task.

        For the time after a match: by what everybody uses now.
        """
        turned = self.turned.get(pool)
        if not turned:
            return True
        key = work.serving_key(pool, work.taken)
        return not any(
            turned_with <= standing
            and other.waiting > 0
            and other.serving_key(pool, other.taken) < key
            and self._is_candidate(other, standing)
            for other, turned_with in turned.values()
        )

    def settle(self, work: Work, pool: int, seats: Seats, standing: int) -> None:
        """Place the next head of `work` for good; ledger and room are charged already."""
        number = work.taken
        work.taken += 1
        self.placed.append(Placed(work, number, pool, seats, standing))

    def seat_in_order(self) -> dict[Id, Id]:
        """Give the earlier tasks of each run its seats in the earlier pools; they are equal.

        A later one may have got its seat by taking back, after the earlier ones sat elsewhere.

        Returns:
            By task, the one that has its seat now.
        """
        by_work: dict[int, list[int]] = {}
        for place, placed in enumerate(self.placed):
            if not placed.work.is_strict:
                by_work.setdefault(placed.work.index, []).append(place)
        instead: dict[Id, Id] = {}
        for places in by_work.values():
            seats = [self.placed[place] for place in places]
            seats.sort(key=lambda one: (one.work.pools.index(one.pool), one.number))
            for place, seat, number in zip(
                places, seats, sorted(one.number for one in seats), strict=True
            ):
                instead[seat.work.head(seat.number).task] = seat.work.head(number).task
                self.placed[place] = replace(seat, number=number)
        return instead

    def blocked_pools(self, work: Work, number: int, ahead: dict[int, int]) -> set[int]:
        """Pools where strict order lets head `number` of `work` not start yet.

        Args:
            ahead: by work index, how many of its tasks are placed for now beyond `taken`.
        """
        blocked: set[int] = set()
        if not work.is_strict:
            return blocked
        key = work.strict_key(number)
        for other in self.strict[work.policy]:
            first = other.taken + ahead.get(other.index, 0)
            if first < len(other.run.heads):
                if other.strict_key(first) < key:
                    blocked.update(other.pools)
            elif other.run.count > first and other.strict_key(first - 1) < key:
                blocked.update(other.pools)
        return blocked


def _empty_room(compiled: Compiled, number: int, site: Site | None) -> Room:
    find_nodes = partial(Nodes.of, site, site.empty()) if site else None
    return Room(list(compiled.capacities[number]), find_nodes)


def _strict_works(works: list[Work]) -> dict[int, list[Work]]:
    found: dict[int, list[Work]] = {}
    for work in works:
        if work.is_strict and work.run.heads:
            found.setdefault(work.policy, []).append(work)
    return found
