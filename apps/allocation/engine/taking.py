"""Step 3 of a pass: taking capacity back for tasks without room (docs/allocation.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from apps.allocation.engine.compiled import Work
from apps.allocation.engine.moving import Movable, Moved, find_moves
from apps.allocation.engine.nodes import Seat, seats_of
from apps.allocation.engine.prey import FIRST, Flock, Rights, find_flocks, least_loss
from apps.allocation.engine.snapshot import Held, Id, Preemption
from apps.allocation.engine.standing import (
    covers_wholly,
    is_over_quota,
    standing_of,
    within_limits,
)
from apps.allocation.engine.working import Pass

# The stages: others' work; own work until the policy covers the taker, and others' with it; own.
OTHERS, BOTH, OWN = range(3)


@dataclass(slots=True)
class Victim:
    """A task taken, where it sat, and for whom."""

    flock: Flock
    held: Held
    seats: tuple[Seat, ...]
    beneficiary: Id


class Taking:
    """What could be taken in this pass, and what was."""

    def __init__(self, state: Pass) -> None:
        self.state = state
        self.flocks = find_flocks(state.compiled, state.linked)
        self.rights = Rights(state.ledger, state.shares, self.flocks)
        self.victims: list[Victim] = []
        self.moved: list[Moved] = []
        self._failed: dict[int, int] = {}

    def take_for(self, standing: int, candidates: list[Work]) -> int:
        """Try the tasks of one standing in the order across pools. Returns how many got room."""
        count = 0
        if not self.flocks:
            return count
        self.rights.forget_shares()
        waiting = [work for work in candidates if work.waiting > 0]
        for work in sorted(waiting, key=lambda one: one.across_key(one.taken)):
            while self._is_worth_asking(work, standing):
                if not self._take(work, standing):
                    self._failed[work.index] = self._changes
                    break
                count += 1
        return count

    @property
    def _changes(self) -> int:
        """Grows with everything that could change who may take from whom."""
        return len(self.state.placed) + len(self.victims)

    def _is_worth_asking(self, work: Work, standing: int) -> bool:
        """Not again before anything has changed since it failed."""
        if (
            work.waiting <= 0
            or not self.state.left
            or self._failed.get(work.index) == self._changes
        ):
            return False
        return standing_of(self.state.ledger, work) == standing

    def _take(self, work: Work, standing: int) -> bool:
        """Make room for the next task of a run and place it."""
        blocked = self.state.blocked_pools(work, work.taken, {})
        pools = [
            pool
            for pool in work.pools
            if pool not in blocked and self.state.may_enter(work, pool, standing)
        ]
        for pool in pools:
            # Somebody else's victims may have left room.
            if self._fits(work, pool):
                self._place(work, pool, [], standing)
                return True
        pools = [pool for pool in pools if pool in self.flocks]
        return self._move_others(work, pools, standing) or self._preempt(work, pools, standing)

    def _move_others(self, work: Work, pools: list[int], standing: int) -> bool:
        if not self.state.compiled.snapshot.settings.has_consolidation:
            return False
        return any(self._move(work, pool, standing) for pool in pools)

    def _preempt(self, work: Work, pools: list[int], standing: int) -> bool:
        is_over = is_over_quota(standing, self.state.compiled.depth)
        pools = [
            pool
            for pool in pools
            if self.rights.may_have_prey(work, pool, standing)
            and self.state.could_ever_take(pool, work.shape)
        ]
        for stage in (OTHERS, BOTH, OWN):
            for pool in pools:
                victims = _Attempt(self, work, pool, stage, is_over=is_over).run()
                if victims is not None:
                    self._place(work, pool, victims, standing)
                    return True
        return False

    def _fits(self, work: Work, pool: int) -> bool:
        return (
            self.state.rooms[pool].bound(work.shape) > 0
            and within_limits(self.state.ledger, work) > 0
            and self.state.compiled.levels[pool] is not Preemption.NONE
        )

    def _place(self, work: Work, pool: int, victims: list[Victim], standing: int) -> None:
        seats = self.state.rooms[pool].take(work.shape)
        if seats is None:
            raise AssertionError("a task that fits has seats")
        self.state.ledger.charge(work, 1)
        self.state.settle(work, pool, seats, standing)
        self.victims += victims
        self.rights.forget_shares()

    def _move(self, work: Work, pool: int, standing: int) -> bool:
        """Make room by moving others inside the pool, if that is enough."""
        if not within_limits(self.state.ledger, work):
            return False
        movables = [
            Movable(flock, held, self.seats(flock, held))
            for flock in self.flocks[pool]
            for held in flock.left
        ]
        movables.sort(key=lambda one: least_loss(one.held))
        plan = find_moves(self.state.rooms[pool], work, movables)
        if plan is None:
            return False
        self.state.rooms[pool] = plan.room
        for one in plan.moved:
            one.flock.left.remove(one.held)
        self.moved += plan.moved
        self.state.ledger.charge(work, 1)
        self.state.settle(work, pool, plan.seats, standing)
        self.rights.forget_shares()
        return True

    def give_up(self, victim: Victim) -> None:
        """Take a victim's room and usage away."""
        self.state.rooms[victim.flock.pool].give(victim.flock.shape, victim.seats)
        self._book(victim, -1)
        victim.flock.left.remove(victim.held)

    def put_back(self, victim: Victim) -> None:
        self.state.rooms[victim.flock.pool].retake(victim.flock.shape, victim.seats)
        self._book(victim, 1)
        victim.flock.left.insert(0, victim.held)

    def _book(self, victim: Victim, sign: int) -> None:
        flock = victim.flock
        amounts = tuple((key, sign * amount) for key, amount in flock.shape.amounts)
        self.state.ledger.book(
            flock.chain,
            amounts,
            is_preemptible=True,
            is_exempt=flock.is_exempt,
            user=flock.user,
        )

    def victim(self, flock: Flock, beneficiary: Id) -> Victim:
        """The next victim of a flock, with the seats that it has."""
        held = flock.first()
        return Victim(flock, held, self.seats(flock, held), beneficiary)

    def seats(self, flock: Flock, held: Held) -> tuple[Seat, ...]:
        site = self.state.sites[flock.pool]
        seats = self.state.likely_seats.get(held.task)
        if seats is None:
            seats = seats_of(site, held.members) if site else ()
        return seats

    def spare_whom_possible(self) -> None:
        """At the end of the pass: who fits beside everything placed stays, last taken first."""
        spared = []
        for victim in reversed(self.victims):
            room = self.state.rooms[victim.flock.pool]
            if room.could_retake(victim.flock.shape, victim.seats) and self._is_allowed(victim):
                self.put_back(victim)
                spared.append(victim)
        self.victims = [one for one in self.victims if all(one is not other for other in spared)]

    def _is_allowed(self, victim: Victim) -> bool:
        """Whether every limit above it still holds with the victim."""
        ledger = self.state.ledger
        compiled = self.state.compiled
        flock = victim.flock
        for policy in flock.chain:
            limits = compiled.limits[policy]
            user_limits = compiled.user_limits[policy] if flock.user is not None else {}
            for key, amount in flock.shape.amounts:
                is_counted = key in limits and not (flock.is_exempt and policy == flock.policy)
                if is_counted and ledger.counted(policy, key) + amount > limits[key]:
                    return False
                if flock.user is not None and key in user_limits:
                    used = ledger.user_usage(policy, flock.user)[key]
                    if used + amount > user_limits[key]:
                        return False
        return True


class _Attempt:
    """One taker, one pool, one stage: victims one by one, rights judged afresh after each."""

    def __init__(self, taking: Taking, work: Work, pool: int, stage: int, *, is_over: bool) -> None:
        self.taking = taking
        self.state = taking.state
        self.work = work
        self.pool = pool
        self.stage = stage
        self.is_over = is_over
        self.level = self.state.compiled.levels[pool]
        self.beneficiary = work.head(work.taken).task
        self.missing = self._missing()

    def run(self) -> list[Victim] | None:
        """The victims that make room, given up already; None: nobody is touched."""
        taken: list[Victim] = []
        while not self._fits():
            flock = self._worst()
            if flock is None:
                for victim in reversed(taken):
                    self.taking.put_back(victim)
                return None
            victim = self.taking.victim(flock, self.beneficiary)
            self.taking.give_up(victim)
            taken.append(victim)
        needed = []
        for victim in reversed(taken):
            self.taking.put_back(victim)
            if not self._fits():
                self.taking.give_up(victim)
                needed.append(victim)
        return needed[::-1]

    def _fits(self) -> bool:
        room = self.state.rooms[self.pool]
        return room.bound(self.work.shape) > 0 and within_limits(self.state.ledger, self.work) > 0

    def _missing(self) -> set[int]:
        """Keys that are short in the pool or in a limit; where nodes are short, all of them."""
        missing = self._short_in_pool()
        for _, key in self._short_limits():
            missing.add(key)
        return missing

    def _short_in_pool(self) -> set[int]:
        room = self.state.rooms[self.pool]
        amounts = self.work.shape.amounts
        short = {key for key, amount in amounts if room.free[key] < amount}
        if not short and room.bound(self.work.shape) == 0:
            short = {key for key, _ in amounts}
        return short

    def _short_limits(self) -> Iterator[tuple[int, int]]:
        """(policy, key) of the limits that keep the taker out."""
        ledger = self.state.ledger
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

    def _worst(self) -> Flock | None:
        """The flock whose next task is taken now, of those that the stage and rights allow."""
        short = self._short_in_pool()
        limits = list(self._short_limits())
        best: tuple[tuple[object, ...], Flock] | None = None
        for flock in self.taking.flocks[self.pool]:
            if not flock.left or not _is_useful(flock, short, limits):
                continue
            tier = self._right(flock)
            if tier is None:
                continue
            key = self._order(flock, tier)
            if best is None or key < best[0]:
                best = (key, flock)
        return None if best is None else best[1]

    def _right(self, flock: Flock) -> int | None:
        rights = self.taking.rights
        if flock.policy == self.work.policy:
            if self.stage == OTHERS:
                return None
            if self.stage == BOTH and self._is_covered():
                return None
            number = self.work.taken
            has_right = rights.over_own(self.work, number, flock, self.level, self.missing)
            return FIRST if has_right else None
        if self.stage == OWN:
            return None
        return rights.over_others(self.work, flock, self.level, is_over=self.is_over)

    def _is_covered(self) -> bool:
        return covers_wholly(self.state.ledger, self.work.policy, self.work.shape.amounts)

    def _order(self, flock: Flock, tier: int) -> tuple[object, ...]:
        """Worst first (docs/allocation.md, "Taking back")."""
        is_own = flock.policy == self.work.policy
        shares = self.taking.rights.shares_along(self.work, flock)
        held = flock.first()
        return (
            is_own,
            not flock.is_removed,
            tier,
            tuple((-infinite, -share) for infinite, share in shares),
            flock.priority,
            -flock.policy,
            -max(held.started_us, held.checkpointed_us or held.started_us),
            held.task,
        )


def _is_useful(flock: Flock, short: set[int], limits: list[tuple[int, int]]) -> bool:
    """Whether it holds anything that the taker lacks."""
    for key, _ in flock.shape.amounts:
        if key in short:
            return True
        if any(key == one and policy in flock.chain for policy, one in limits):
            return True
    return False
