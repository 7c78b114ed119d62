"""One taker, one pool, one stage: whom it takes, and by what right (docs/allocation.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from apps.allocation.engine.clearing import Clearing
from apps.allocation.engine.compiled import Work
from apps.allocation.engine.flocks import Flock, least_loss
from apps.allocation.engine.ledger import Ledger
from apps.allocation.engine.nodes import Seat
from apps.allocation.engine.prey import FIRST, Prey, Rights
from apps.allocation.engine.rooms import Room
from apps.allocation.engine.snapshot import Held, Id, Preemption
from apps.allocation.engine.standing import covers_wholly, within_limits

# The stages: others' work; own work until the policy covers the taker, and others' with it; own.
OTHERS, BOTH, OWN = range(3)

Order = tuple[object, ...]


@dataclass(slots=True, eq=False)
class Victim:
    """A task taken, where it sat, and for whom.

    `is_inherited`: its first taker was placed in this pass and taken itself, so that it counts for
    the next one, whose rights do not tell about it.
    """

    flock: Flock
    held: Held
    seats: tuple[Seat, ...]
    beneficiary: Id
    is_inherited: bool = False


class Grounds:
    """What a taker's rights to its victims rest on, to be judged again when one is put back."""

    def __init__(self, rights: Rights, work: Work, pool: int, stage: int, *, is_over: bool) -> None:
        self.rights = rights
        self.ledger: Ledger = rights.ledger
        self.work = work
        self.place = work.serving_key(pool, work.taken)
        self.pool = pool
        self.stage = stage
        self.is_over = is_over
        self.level: Preemption = self.ledger.compiled.levels[pool]
        self.missing: frozenset[int] = frozenset()

    def right(self, flock: Flock, held: Held) -> int | None:
        """The right to take that very task by the usage of the moment, None: there is none."""
        work = self.work
        if flock.policy != work.policy:
            if self.stage == OWN:
                return None
            return self.rights.over_others(work, flock, self.level, is_over=self.is_over)
        if self.stage == OTHERS or (self.stage == BOTH and self._is_covered()):
            return None
        has_right = self.rights.over_own(
            work,
            self.place,
            flock,
            held,
            level=self.level,
            missing=self.missing,
            is_over=self.is_over,
        )
        return FIRST if has_right else None

    def _is_covered(self) -> bool:
        return covers_wholly(self.ledger, self.work.policy, self.work.shape.amounts)

    def are_rightful(self, victims: list[Victim]) -> bool:
        """Whether each victim is within the taker's rights when it is taken, one after the other.

        All of them are given up in the ledger, and the taker is not charged.
        """
        for one in victims:
            one.flock.book(self.ledger, 1)
        found = True
        for one in victims:
            found = found and (one.is_inherited or self.right(one.flock, one.held) is not None)
            one.flock.book(self.ledger, -1)
        return found

    def gives_rights(self, victim: Victim) -> bool:
        """Whether others' rights may depend on its being taken.

        When usage outside the taker's own path falls, rights are only lost.
        """
        return victim.flock.chain[0] == self.work.chain[0]


class Claim:
    """The search: victims one by one, rights judged afresh after each."""

    def __init__(
        self,
        grounds: Grounds,
        prey: Prey,
        room: Room,
        seats: Callable[[Flock, Held], tuple[Seat, ...]],
    ) -> None:
        self.grounds = grounds
        self.work = grounds.work
        self._ledger = grounds.ledger
        self._seats = seats
        self._clearing = Clearing(room, self.work.shape)
        self._beneficiary = self.work.head(self.work.taken).task
        self._candidates = self._find_candidates(prey)
        self._signal: object = None
        self._short: frozenset[int] = frozenset()
        self._limits: tuple[tuple[int, int], ...] = ()
        self._heap: list[tuple[Order, int, Flock]] = []
        short = self._clearing.short()
        grounds.missing = short | {key for _, key in self._short_limits()}

    def _find_candidates(self, prey: Prey) -> list[Flock]:
        pool, policy = self.grounds.pool, self.work.policy
        found = [] if self.grounds.stage == OTHERS else list(prey.own(pool, policy))
        if self.grounds.stage != OWN:
            found += [flock for flock in prey.over(pool) if flock.policy != policy]
        return found

    def run(self) -> list[Victim] | None:
        """The victims that make room, given up already; None: nobody is touched."""
        taken: list[Victim] = []
        while not self._fits():
            flock = self._worst()
            if flock is None:
                for victim in reversed(taken):
                    self._put_back(victim)
                return None
            held = flock.first()
            victim = Victim(flock, held, self._seats(flock, held), self._beneficiary)
            self._give_up(victim)
            taken.append(victim)
        return self._needed(taken)

    def _needed(self, taken: list[Victim]) -> list[Victim]:
        """Put back, last taken first, whom neither room nor rights need, until nobody is left."""
        needed = list(taken)
        is_settled = False
        while not is_settled:
            is_settled = True
            is_needed_for_rights = False
            for victim in reversed(tuple(needed)):
                self._put_back(victim)
                rest = [one for one in needed if one is not victim]
                has_room = self._fits()
                if has_room and self._keeps_rights(victim, rest):
                    needed = rest
                    is_settled = not is_needed_for_rights
                else:
                    is_needed_for_rights = is_needed_for_rights or has_room
                    self._give_up(victim)
        return needed

    def _keeps_rights(self, spared: Victim, rest: list[Victim]) -> bool:
        return not self.grounds.gives_rights(spared) or self.grounds.are_rightful(rest)

    def _fits(self) -> bool:
        return self._clearing.fits() and within_limits(self._ledger, self.work) > 0

    def _give_up(self, victim: Victim) -> None:
        self._clearing.give(victim.flock.shape, victim.seats)
        victim.flock.book(self._ledger, -1)
        victim.flock.left.remove(victim.held)

    def _put_back(self, victim: Victim) -> None:
        self._clearing.retake(victim.flock.shape, victim.seats)
        victim.flock.book(self._ledger, 1)
        victim.flock.put_back(victim.held)

    def _worst(self) -> Flock | None:
        """The flock whose next task is taken now, of those that the stage and rights allow.

        Within a search a flock only falls back in the order, and only loses rights, until
        something of the taker's own changes: then everything is looked at anew.
        """
        signal = self._situation()
        if signal != self._signal:
            self._signal = signal
            self._fill()
        heap = self._heap
        while heap:
            order, number, flock = heap[0]
            now = self._order(flock)
            if now is None:
                heappop(heap)
            elif now != order:
                heapreplace(heap, (now, number, flock))
            else:
                return flock
        return None

    def _situation(self) -> object:
        """What others' usefulness and the taker's rights depend on, but for the victims' usage."""
        ledger = self._ledger
        amounts = self.work.shape.amounts
        self._short = self._clearing.short()
        self._limits = tuple(self._short_limits())
        covers = tuple([covers_wholly(ledger, one, amounts) for one in self.work.chain])
        rights = self.grounds.rights
        shares: tuple[object, ...] = ()
        if rights.is_fair:
            shares = tuple(rights.shares.after(ledger, one, amounts) for one in self.work.chain)
        return (self._short, self._limits, covers, shares)

    def _fill(self) -> None:
        self._heap = []
        for number, flock in enumerate(self._candidates):
            order = self._order(flock)
            if order is not None:
                self._heap.append((order, number, flock))
        heapify(self._heap)

    def _order(self, flock: Flock) -> Order | None:
        """Worst first (docs/allocation.md, "Taking back"); None: it is not taken now."""
        if not flock.left or not self._is_useful(flock):
            return None
        held = flock.first()
        tier = self.grounds.right(flock, held)
        if tier is None:
            return None
        shares = self.grounds.rights.shares_along(self.work, flock)
        return (
            flock.policy == self.work.policy,
            not flock.is_removed,
            tier,
            tuple([(-infinite, -share) for infinite, share in shares]),
            flock.priority,
            -flock.policy,
            least_loss(held),
        )

    def _is_useful(self, flock: Flock) -> bool:
        """Whether it holds anything that the taker lacks."""
        for key, _ in flock.none_more:
            if key in self._short:
                return True
            if any(key == one and policy in flock.chain for policy, one in self._limits):
                return True
        return False

    def _short_limits(self) -> Iterator[tuple[int, int]]:
        """(policy, key) of the limits that keep the taker out."""
        ledger = self._ledger
        work = self.work
        for policy in work.chain:
            limits = ledger.compiled.limits[policy]
            user_limits = ledger.compiled.user_limits[policy]
            for key, amount in work.shape.amounts:
                is_counted = key in limits and not (work.has_exceeded and policy == work.policy)
                if is_counted and ledger.counted(policy, key) + amount > limits[key]:
                    yield policy, key
                elif work.run.user is not None and key in user_limits:
                    used = ledger.user_usage(policy, work.run.user)[key]
                    if used + amount > user_limits[key]:
                        yield policy, key
