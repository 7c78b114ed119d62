"""The end of a match: pools offer what is free to whoever prefers it, until nobody moves."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from operator import itemgetter

from apps.allocation.engine.compiled import ServingKey, Work
from apps.allocation.engine.matching import Trial
from apps.allocation.engine.offering import Turn
from apps.allocation.engine.standing import budget
from apps.allocation.engine.working import Front, Pass, Seats


@dataclass(slots=True)
class Sitting:
    """Where one head sits for now: its place in the run's pools, and its seats.

    `turn` counts who came to sit first; it stays when a head moves.
    """

    place: int
    seats: Seats
    turn: int


def sweep(state: Pass, trial: Trial, candidates: list[Work]) -> int:
    """Sweep, then settle everything that sits. Returns how many tasks were placed."""
    sittings = _sittings(trial)
    swept = _Sweep(state, trial, candidates, sittings)
    while swept.once():
        pass
    return _settle(state, trial, candidates, sittings)


def _sittings(trial: Trial) -> dict[int, list[Sitting]]:
    """By work index, in order of heads; who was offered first came first."""
    found: dict[int, list[Sitting]] = {}
    offered: list[tuple[Turn, Sitting]] = []
    for unit in trial.units:
        into = found.setdefault(unit.work.index, [])
        head = unit.first
        for place, pool in enumerate(unit.pools):
            at = unit.work.pools.index(pool)
            for seats in unit.seats[place]:
                into.append(Sitting(at, seats, 0))
                offered.append((unit.turn(head), into[-1]))
                head += 1
    offered.sort(key=itemgetter(0))
    for turn, (_, sitting) in enumerate(offered):
        sitting.turn = turn
    return found


class _Sweep:
    def __init__(
        self,
        state: Pass,
        trial: Trial,
        candidates: list[Work],
        sittings: dict[int, list[Sitting]],
    ) -> None:
        self.state = state
        self.trial = trial
        self.sittings = sittings
        self.linked: dict[int, list[Work]] = {}
        for work in candidates:
            sittings.setdefault(work.index, [])
            for pool in work.pools:
                self.linked.setdefault(pool, []).append(work)
        self.works = {work.index: work for work in candidates}
        self._turns = count(sum(len(sitting) for sitting in sittings.values()))

    def once(self) -> bool:
        """All pools in order of their names (the order of their indices)."""
        moved = False
        for pool in sorted(self.linked):
            moved = self._offer(pool) or moved
        return moved

    def front(self, pool: int) -> Front:
        front = self.trial.fronts.get(pool)
        if front is None:
            front = self.state.front(pool, self.trial.holds)
            self.trial.fronts[pool] = front
        return front

    def _offer(self, pool: int) -> bool:
        heap = self._asked(pool)
        barrier = self._barrier(pool)
        moved = False
        while heap:
            key, index, number = heappop(heap)
            work = self.works[index]
            if barrier is not None and key > barrier:
                break
            if not self._would_move(work, number, pool):
                continue
            if self._take(work, number, pool):
                moved = True
                self._push(heap, work, pool, number + 1)
                self._ask_again(heap, work, pool)
            elif pool in self.state.turned and self._may_start(work, number, pool):
                seated = len(self.sittings[work.index])
                if number == seated:
                    self.state.turn_away(work, (pool,), self.trial.standing)
                    break
                # It has a later pool, so it stands in nobody's way; those behind it may.
                self._push(heap, work, pool, seated)
        return moved

    def _barrier(self, pool: int) -> ServingKey | None:
        """Without those of this standing: they are all asked here, in their order."""
        if pool not in self.state.turned:
            return None
        offered = {index: len(sitting) for index, sitting in self.sittings.items()}
        return self.state.barrier(pool, self.trial.standing - 1, offered)

    def _asked(self, pool: int) -> list[tuple[ServingKey, int, int]]:
        """The first head of each run that would rather sit in the pool, as a heap."""
        heap: list[tuple[ServingKey, int, int]] = []
        front = self.front(pool)
        for work in self.linked[pool]:
            # With backfill, who has no room here has no say either.
            if pool in self.state.turned or front.room.bound(work.shape) > 0:
                self._push(heap, work, pool, 0)
        heapify(heap)
        return heap

    def _push(
        self, heap: list[tuple[ServingKey, int, int]], work: Work, pool: int, start: int
    ) -> None:
        """The first head from `start` on that would rather sit in `pool`."""
        place = work.pools.index(pool)
        sitting = self.sittings[work.index]
        number = start
        while number < len(sitting) and sitting[number].place <= place:
            number += 1
        if number <= len(sitting) and work.taken + number < len(work.run.heads):
            heappush(heap, (work.serving_key(pool, work.taken + number), work.index, number))

    def _would_move(self, work: Work, number: int, pool: int) -> bool:
        """Whether the head still would rather sit in `pool`; it may have been asked twice."""
        sitting = self.sittings[work.index]
        if number == len(sitting):
            return True
        return number < len(sitting) and sitting[number].place > work.pools.index(pool)

    def _ask_again(self, heap: list[tuple[ServingKey, int, int]], work: Work, pool: int) -> None:
        """Once a task of a strict policy has its place, those that had to wait for it come."""
        if work.is_strict:
            for other in self.linked[pool]:
                if other.policy == work.policy and other is not work:
                    self._push(heap, other, pool, 0)

    def _may_start(self, work: Work, number: int, pool: int) -> bool:
        """Whether budgets and strict order let it into `pool`, if there were room."""
        sitting = self.sittings[work.index]
        if number == len(sitting) and not budget(self.state.ledger, work, self.trial.standing, 1):
            return False
        if not work.is_strict:
            return True
        ahead = {index: len(sitting) for index, sitting in self.sittings.items()}
        return pool not in self.state.blocked_pools(work, work.taken + number, ahead)

    def _take(self, work: Work, number: int, pool: int) -> bool:
        if not self._may_start(work, number, pool):
            return False
        seats = self.front(pool).take(work, work.taken + number)
        if seats is None:
            return False
        sitting = self.sittings[work.index]
        place = work.pools.index(pool)
        if number < len(sitting):
            before = sitting[number]
            self.front(work.pools[before.place]).room.give(work.shape, before.seats)
            sitting[number] = Sitting(place, seats, before.turn)
        else:
            self.state.ledger.charge(work, 1)
            sitting.append(Sitting(place, seats, next(self._turns)))
        return True


def _settle(
    state: Pass, trial: Trial, candidates: list[Work], sittings: dict[int, list[Sitting]]
) -> int:
    for pool, front in trial.fronts.items():
        state.rooms[pool] = front.room
    settled = sum(len(sitting) for sitting in sittings.values())
    if settled > state.left:
        _stand_up(state, candidates, sittings)
        settled = state.left
    for work in candidates:
        for sitting in sittings[work.index]:
            state.settle(work, work.pools[sitting.place], sitting.seats, trial.standing)
    return settled


def _stand_up(state: Pass, candidates: list[Work], sittings: dict[int, list[Sitting]]) -> None:
    """Who came to sit last leaves, until no more sit than may start in this pass."""
    turns = sorted(one.turn for sitting in sittings.values() for one in sitting)
    first_out = turns[state.left]
    for work in candidates:
        sitting = sittings[work.index]
        while sitting and sitting[-1].turn >= first_out:
            last = sitting.pop()
            state.rooms[work.pools[last.place]].give(work.shape, last.seats)
            state.ledger.charge(work, -1)
