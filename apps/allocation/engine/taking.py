"""Step 3 of a pass: taking capacity back for tasks without room (docs/allocation.md)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush

from apps.allocation.engine.again import Again
from apps.allocation.engine.claims import BOTH, OTHERS, OWN, Claim, Grounds, Victim
from apps.allocation.engine.compiled import Work
from apps.allocation.engine.flocks import Flock, find_flocks
from apps.allocation.engine.holds import find_holds
from apps.allocation.engine.moving import Movable, Moved, MovePlan, find_moves
from apps.allocation.engine.nodes import Seat, seats_of
from apps.allocation.engine.prey import Prey, Rights
from apps.allocation.engine.snapshot import Held, Id, Preemption
from apps.allocation.engine.sparing import could_stay
from apps.allocation.engine.standing import (
    covers_wholly,
    is_over_quota,
    standing_of,
    within_limits,
)
from apps.allocation.engine.working import Pass


class Taking:
    """What could be taken in this pass, and what was."""

    def __init__(self, state: Pass) -> None:
        self.state = state
        self.rights = Rights(state.ledger, state.shares)
        self.is_possible = state.compiled.snapshot.settings.has_consolidation or any(
            level is not Preemption.NONE for level in state.compiled.levels
        )
        self._has_looked = False
        self.moved: list[Moved] = []
        # All that was taken, in order: running work, and what this pass had placed itself.
        self._taken: list[Victim] = []
        self._grounds: dict[Id, Grounds] = {}
        self._failed: dict[int, tuple[int, int]] = {}
        self._no_moves: dict[tuple[int, int], int] = {}
        # By policy: how often victims or moves may have given its tasks more rights or budget.
        self._fell = [0] * len(state.compiled.policies)

    @cached_property
    def _found(self) -> tuple[Prey, Again]:
        """What could be taken: looked up once somebody may have a right to any of it."""
        self._has_looked = True
        prey = Prey(self.rights, find_flocks(self.state.compiled, self.state.linked))
        again = Again(self.state, prey)
        again.notice_placed()
        return prey, again

    @property
    def prey(self) -> Prey:
        return self._found[0]

    @property
    def again(self) -> Again:
        return self._found[1]

    @property
    def victims(self) -> list[Victim]:
        """Running work that is preempted."""
        return [one for one in self._taken if one.flock.work is None]

    def take_for(self, standing: int, candidates: list[Work]) -> int:
        """Try the tasks of one standing in the order across pools. Returns how many got room."""
        if not self.is_possible:
            return 0
        self._notice_placed()
        count = 0
        asked = [work for work in candidates if self._is_worth_asking(work, standing)]
        # The next tasks of all runs in one order: a run does not bring its later ones forward.
        turns = [(work.across_key(work.taken), work.index, work) for work in asked]
        heapify(turns)
        while turns:
            _, index, work = heappop(turns)
            if not self._is_worth_asking(work, standing):
                continue
            if self._take(work, standing):
                count += 1
                if work.waiting > 0:
                    heappush(turns, (work.across_key(work.taken), index, work))
            else:
                self._failed[work.index] = (standing, self._version(work))
        return count

    def _notice_placed(self) -> None:
        if self._has_looked:
            self.again.notice_placed()

    def _version(self, work: Work) -> int:
        """Grows with everything that could give a run room, rights or budget that it lacked."""
        is_concerned_by_all = self.rights.is_fair or work.is_strict or bool(self.state.turned)
        if not self._has_looked:
            return len(self.state.placed) if is_concerned_by_all else 0
        if is_concerned_by_all:
            return self.again.changes + len(self._taken) + len(self.moved)
        versions = self.prey.versions
        return sum([versions[pool] for pool in work.pools]) + sum(
            [self._fell[policy] + self.again.own[policy] for policy in work.chain]
        )

    def _is_worth_asking(self, work: Work, standing: int) -> bool:
        """Not again before anything that concerns it has changed since it failed."""
        if work.waiting <= 0 or not self.state.left:
            return False
        failed = self._failed.get(work.index)
        if failed is not None and failed == (standing, self._version(work)):
            return False
        return standing_of(self.state.ledger, work) == standing

    def _take(self, work: Work, standing: int) -> bool:
        """Make room for the next task of a run and place it."""
        pools = self._open_pools(work, standing)
        has_budget = within_limits(self.state.ledger, work) > 0
        if has_budget:
            for pool in pools:
                # Somebody else's victims may have left room.
                if self._fits(work, pool):
                    self._place(work, pool, [], standing)
                    return True
            if self._move_others(work, pools, standing):
                return True
        return self._preempt(work, pools, standing)

    def _open_pools(self, work: Work, standing: int) -> Sequence[int]:
        """Those of its list that no earlier task keeps it out of."""
        state = self.state
        if not work.is_strict and not state.turned:
            return work.pools
        blocked = state.blocked_pools(work, work.taken, {})
        return [
            pool
            for pool in work.pools
            if pool not in blocked and state.may_enter(work, pool, standing)
        ]

    def _fits(self, work: Work, pool: int) -> bool:
        return (
            self.state.compiled.levels[pool] is not Preemption.NONE
            and self.state.rooms[pool].bound(work.shape) > 0
        )

    def _preempt(self, work: Work, pools: Sequence[int], standing: int) -> bool:
        if not self.rights.may_exist(work, pools):
            return False
        is_over = is_over_quota(standing, self.state.compiled.depth)
        others = {pool for pool in pools if self.prey.may_have(work, pool, is_over=is_over)}
        own = {pool for pool in pools if self.prey.may_have_own(work, pool)}
        if not others and not own:
            return False
        covers = covers_wholly(self.state.ledger, work.policy, work.shape.amounts)
        # Own work first may bring rights over others; while the policy covers the taker it is
        # not touched, so that there is nothing new to try.
        among = {OTHERS: others, BOTH: set() if covers else own, OWN: own}
        for stage in (OTHERS, BOTH, OWN):
            for pool in pools:
                if pool in among[stage] and self.state.could_ever_take(pool, work.shape):
                    grounds = Grounds(self.rights, work, pool, stage, is_over=is_over)
                    claim = Claim(grounds, self.prey, self.state.rooms[pool], self.seats)
                    victims = claim.run()
                    if victims is not None:
                        self._grounds[work.head(work.taken).task] = grounds
                        self._place(work, pool, victims, standing)
                        return True
        return False

    def _place(self, work: Work, pool: int, victims: list[Victim], standing: int) -> None:
        """Victims are given up in the ledger, not yet in the room."""
        state = self.state
        room = state.rooms[pool]
        for victim in victims:
            room.give(victim.flock.shape, victim.seats)
            if victim.flock.work is not None:
                self._inherit(victim)
        seats = room.take(work.shape)
        if seats is None:
            raise AssertionError("a task that fits has seats")
        state.ledger.charge(work, 1)
        state.settle(work, pool, seats, standing)
        self._taken += victims
        self._note_fallen(victims)
        self._notice_placed()

    def _note_fallen(self, victims: list[Victim]) -> None:
        for victim in victims:
            self.prey.versions[victim.flock.pool] += 1
            for policy in victim.flock.chain:
                self._fell[policy] += 1
            self.prey.refresh(victim.flock.chain)

    def _inherit(self, victim: Victim) -> None:
        """A task of this very pass is taken: whom it had taken counts for its own taker."""
        self.again.withdraw(victim.held.task)
        self._grounds.pop(victim.held.task, None)
        for one in self._taken:
            if one.beneficiary == victim.held.task:
                one.beneficiary = victim.beneficiary
                one.is_inherited = True
        for moved in self.moved:
            if moved.beneficiary == victim.held.task:
                moved.beneficiary = victim.beneficiary

    def seats(self, flock: Flock, held: Held) -> tuple[Seat, ...]:
        if flock.work is not None:
            return self.again.entries[held.task].seats
        site = self.state.sites[flock.pool]
        seats = self.state.likely_seats.get(held.task)
        if seats is None:
            seats = seats_of(site, held.members) if site else ()
        return seats

    def _move_others(self, work: Work, pools: Sequence[int], standing: int) -> bool:
        if not self.state.compiled.snapshot.settings.has_consolidation:
            return False
        return any(self._move(work, pool, standing) for pool in pools)

    def _move(self, work: Work, pool: int, standing: int) -> bool:
        """Make room by moving others inside the pool, if that is enough."""
        name = (pool, work.shape.number)
        version = self.prey.versions[pool]
        room = self.state.rooms[pool]
        if self._no_moves.get(name) == version or room.nodes is None:
            return False
        is_short = any(room.free[key] < amount for key, amount in work.shape.amounts)
        if is_short or self._is_held(work, pool, standing):
            return False
        plan = find_moves(room, work, self._movables(pool))
        if plan is None:
            self._no_moves[name] = version
            return False
        self._carry_out(work, pool, plan, standing)
        return True

    def _movables(self, pool: int) -> list[Movable]:
        return [
            Movable(flock, held, self.seats(flock, held))
            for flock in self.prey.flocks.get(pool, ())
            if flock.work is None
            for held in flock.left
            if held.is_movable
        ]

    def _is_held(self, work: Work, pool: int, standing: int) -> bool:
        """Whether what is free is held for others: moves need no right, but they give none."""
        state = self.state
        if state.compiled.levels[pool] is not Preemption.NONE:
            return False
        if not is_over_quota(standing, state.compiled.depth):
            return False
        holds = find_holds(state.compiled, state.ledger, state.rooms, state.could_ever_take)
        held = holds.total.get(pool)
        free = state.rooms[pool].free
        return held is not None and any(
            free[key] - held[key] < amount for key, amount in work.shape.amounts
        )

    def _carry_out(self, work: Work, pool: int, plan: MovePlan, standing: int) -> None:
        self.state.rooms[pool] = plan.room
        for one in plan.moved:
            one.flock.left.remove(one.held)
        self.moved += plan.moved
        self.state.ledger.charge(work, 1)
        self.state.settle(work, pool, plan.seats, standing)
        self.prey.versions[pool] += 1
        self.again.notice_placed()

    def spare_whom_possible(self) -> bool:
        """At the end of the pass: who fits beside everything placed stays, last taken first.

        Returns:
            Whether anybody was put back: that may have made a policy over again.
        """
        count = len(self._taken)
        is_settled = False
        while not is_settled:
            is_settled = True
            for victim in reversed(tuple(self._taken)):
                if could_stay(self.state, victim) and self._keeps_rights(victim):
                    self._put_back(victim)
                    is_settled = False
        has_spared = len(self._taken) < count
        if has_spared:
            self._failed.clear()
        return has_spared

    def _keeps_rights(self, victim: Victim) -> bool:
        """Whether its beneficiary would have had a right to its other victims without it.

        By the usage of this moment, without the beneficiary. Where that tells nothing, because
        what came later took the right away even with the victim, it is not kept for its sake.
        """
        grounds = self._grounds.get(victim.beneficiary)
        if grounds is None or not grounds.gives_rights(victim):
            return True
        all_ = [one for one in self._taken if one.beneficiary == victim.beneficiary]
        rest = [one for one in all_ if one is not victim]
        self.state.ledger.charge(grounds.work, -1)
        has_right = grounds.are_rightful(all_)
        victim.flock.book(self.state.ledger, 1)
        keeps_right = grounds.are_rightful(rest)
        victim.flock.book(self.state.ledger, -1)
        self.state.ledger.charge(grounds.work, 1)
        return keeps_right or not has_right

    def _put_back(self, victim: Victim) -> None:
        flock = victim.flock
        self.state.rooms[flock.pool].retake(flock.shape, victim.seats)
        flock.book(self.state.ledger, 1)
        flock.put_back(victim.held)
        if flock.work is not None:
            self.again.restore(victim.held.task)
        self._taken = [one for one in self._taken if one is not victim]
        self.prey.refresh(flock.chain)

    def finish(self) -> None:
        """Once nothing moves any more: what was placed and taken again waits on."""
        if not self._has_looked:
            return
        names = self.again.finish()
        everyone: list[Victim | Moved] = [*self._taken, *self.moved]
        for one in everyone:
            one.beneficiary = names.get(one.beneficiary, one.beneficiary)

    def taken_again(self) -> tuple[Id, ...]:
        """What waits on although this pass had placed it."""
        return self.again.taken() if self._has_looked else ()
