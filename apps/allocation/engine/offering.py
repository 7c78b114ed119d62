"""Step 1 of a pass: each policy offers its candidates of one standing, within its budgets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from apps.allocation.engine.compiled import ServingKey, Work
from apps.allocation.engine.standing import budget, is_within_budgets
from apps.allocation.engine.working import Pass, Seats

# Place across pools; those that strict order leaves at the same place, in strict order.
Turn = tuple[ServingKey, int]


@dataclass(slots=True)
class Unit:
    """`count` equal tasks of a run from head `first` on, offered to `pools` in this order.

    `kept` and `seats` say, by place in `pools`, how many sit there and where. `turns` are those
    that strict order leaves to tasks of a strict policy, one for each.
    """

    work: Work
    first: int
    count: int
    pools: tuple[int, ...]
    turns: list[Turn] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    seats: list[list[Seats]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = [0] * len(self.pools)
        self.seats = [[] for _ in self.pools]

    @property
    def found(self) -> int:
        return sum(self.kept)

    def first_at(self, place: int) -> int:
        """The number of the first head that sits in, or proposes to, the pool at `place`."""
        return self.first + sum(self.kept[:place])

    def turn(self, head: int) -> Turn:
        """Who is offered first has the lower one."""
        return self.turns[head - self.first] if self.turns else (self.work.across_key(head), 0)


def offer(state: Pass, standing: int, candidates: list[Work], caps: dict[int, int]) -> list[Unit]:
    """What is offered, charged to the ledger already.

    Args:
        candidates: runs whose next task has this standing.
        caps: by work index, how many of a run may be offered; those beyond found no room.
    """
    return _Offering(state, standing, caps).run(candidates)


class _Offering:
    def __init__(self, state: Pass, standing: int, caps: dict[int, int]) -> None:
        self.state = state
        self.standing = standing
        self.caps = caps
        self.units: list[Unit] = []
        self.offered: dict[int, int] = {}
        self.lines: dict[int, _StrictLine] = {}
        # By work index.
        self._latest: dict[int, Unit] = {}

    def run(self, candidates: list[Work]) -> list[Unit]:
        """Only runs below the same top policy share budgets: the others do not mind each other."""
        trees: dict[int, list[Work]] = {}
        for work in candidates:
            trees.setdefault(work.chain[0], []).append(work)
        for works in trees.values():
            if not self._offer_all(works):
                self._offer_in_order(works)
        return self.units

    def _offer_all(self, works: list[Work]) -> bool:
        """Offer all that there may be room for, if the budgets suffice whatever the order is."""
        if self.state.turned or any(work.is_strict for work in works):
            return False
        ledger = self.state.ledger
        counts = [min(work.waiting, self._room(work, work.pools)) for work in works]
        offers = [(work, count) for work, count in zip(works, counts, strict=True) if count > 0]
        for work, count in offers:
            ledger.charge(work, count)
        if all(is_within_budgets(ledger, work, self.standing) for work, _ in offers):
            self.units += [Unit(work, work.taken, count, work.pools) for work, count in offers]
            return True
        for work, count in offers:
            ledger.charge(work, -count)
        return False

    def _offer_in_order(self, candidates: list[Work]) -> None:
        """Through all heads in the order across pools, as many at once as nobody interrupts.

        The tasks of a strict policy come in strict order, none before the place of an earlier one.
        """
        works = {work.index: work for work in candidates if not work.is_strict}
        heap: list[tuple[ServingKey, int, int]] = [
            (work.across_key(work.taken), index, work.taken)
            for index, work in works.items()
            if work.waiting > 0
        ]
        wanted = {work.index for work in candidates if work.is_strict}
        for policy in sorted({work.policy for work in candidates if work.is_strict}):
            line = _StrictLine(self.state.strict[policy], wanted)
            self.lines[policy] = line
            heap += [(key, -1 - policy, 0) for key in line.places()]
        heapify(heap)
        while heap:
            key, index, number = heappop(heap)
            if index < 0:
                self._offer_strict(self.lines[-1 - index], key)
                continue
            work = works[index]
            stop = _uninterrupted(work, number, heap[0][0] if heap else None)
            if self._offer_many(work, stop - number) and stop < len(work.run.heads):
                heappush(heap, (work.across_key(stop), index, stop))

    def _offer_many(self, work: Work, wanted: int) -> bool:
        """Offer the next `wanted` of a run; False when it has come to its end before."""
        before = self.offered.get(work.index, 0)
        room = self._room(work, work.pools) - before
        # One more than there is room for tells whether that one is a candidate at all.
        count = budget(self.state.ledger, work, self.standing, min(wanted, room + 1))
        if count > room:
            self.state.turn_away(work, work.pools, self.standing)
            count = room
        if count > 0:
            self._charge(work, count, work.pools, before)
        return count == wanted

    def _room(self, work: Work, pools: tuple[int, ...]) -> int:
        """How many of a run can be worth offering."""
        bound = self.state.bound(work, pools)
        return min(bound, self.caps.get(work.index, bound))

    def _offer_strict(self, line: _StrictLine, key: ServingKey) -> None:
        """Offer the next task of a strict policy where no earlier one still waits."""
        work = line.next()
        if work is None:
            return
        pools = tuple(pool for pool in work.pools if pool not in line.blocked)
        before = self.offered.get(work.index, 0)
        is_candidate = (
            work.index in line.wanted and budget(self.state.ledger, work, self.standing, 1) > 0
        )
        if is_candidate and self._room(work, pools) > before:
            self._charge(work, 1, pools, before).turns.append((key, line.at))
            return
        if is_candidate:
            self.state.turn_away(work, pools, self.standing)
        line.block(work)

    def _charge(self, work: Work, count: int, pools: tuple[int, ...], before: int) -> Unit:
        """Offer `count` more tasks of a run to `pools`. Returns the unit that they belong to."""
        self.state.ledger.charge(work, count)
        self.offered[work.index] = before + count
        unit = self._latest.get(work.index)
        if unit is not None and unit.pools == pools:
            unit.count += count
        else:
            unit = Unit(work, work.taken + before, count, pools)
            self._latest[work.index] = unit
            self.units.append(unit)
        return unit


class _StrictLine:
    """The waiting tasks of a strict policy in their order, and the pools closed to the rest."""

    def __init__(self, works: list[Work], wanted: set[int]) -> None:
        self.wanted = wanted
        self.blocked: set[int] = set()
        self._waiting: set[int] = set()
        self._line = sorted(
            (
                (work.strict_key(number), work.index, number, work)
                for work in works
                for number in range(work.taken, len(work.run.heads))
            ),
            key=lambda entry: entry[:2],
        )
        self.at = 0

    def places(self) -> Iterator[ServingKey]:
        """The place across pools of each task in turn."""
        latest: ServingKey | None = None
        for _, _, number, work in self._line:
            key = work.across_key(number)
            latest = key if latest is None else max(latest, key)
            yield latest

    def next(self) -> Work | None:
        """The next one, None where it waits because an equal one before it does."""
        _, index, _, work = self._line[self.at]
        self.at += 1
        return None if index in self._waiting else work

    def block(self, work: Work) -> None:
        """`work` waits: what comes later does not start in its pools; nor do its own others."""
        self.blocked.update(work.pools)
        self._waiting.add(work.index)


def _uninterrupted(work: Work, number: int, key: ServingKey | None) -> int:
    """Up to which head nobody else's next one, at `key`, comes in between."""
    heads = work.run.heads
    if key is None or work.across < key[:4]:
        return len(heads)
    return max(
        number + 1, bisect_left(heads, key[4:], key=lambda head: (head.submitted_us, head.task))
    )
