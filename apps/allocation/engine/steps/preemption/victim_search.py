"""The search for victims: one beneficiary, one pool, one stage (docs/allocation.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush, heapreplace
from itertools import count

from apps.allocation.engine.capacity.free_capacity import FreeCapacity
from apps.allocation.engine.capacity.nodes import MemberAssignment
from apps.allocation.engine.capacity.simulated_capacity import SimulatedCapacity
from apps.allocation.engine.model.snapshot import RunningTask
from apps.allocation.engine.quota.tiers import covers_wholly, exceeded_limits, within_limits
from apps.allocation.engine.steps.preemption.candidate_groups import CandidateGroup, least_loss
from apps.allocation.engine.steps.preemption.candidates import Candidates
from apps.allocation.engine.steps.preemption.entitlement import (
    OTHERS,
    OWN,
    ChosenVictim,
    Entitlement,
    Headroom,
)
from apps.allocation.engine.steps.preemption.rights import FIRST

Order = tuple[object, ...]


class VictimSearch:
    """The search: victims one by one, rights judged again after each."""

    def __init__(
        self,
        entitlement: Entitlement,
        candidates: Candidates,
        capacity: FreeCapacity,
        members: Callable[[CandidateGroup, RunningTask], tuple[MemberAssignment, ...]],
    ) -> None:
        self.entitlement = entitlement
        self.group = entitlement.group
        self._ledger = entitlement.ledger
        self._members_of = members
        self._capacity = SimulatedCapacity(capacity, self.group.shape)
        self._beneficiary = self.group.head(self.group.placed_count).task
        self._candidates = self._find_candidates(candidates)
        # In turn; where the search fails, all that could be released.
        self.chosen: list[ChosenVictim] = []
        self.needed: list[ChosenVictim] = []
        self.needs_rights = False
        self._signal: object = None
        self._short: frozenset[int] = frozenset()
        self._limits: tuple[tuple[int, int], ...] = ()
        self._policies: list[tuple[Order, int, _CandidatesOfPolicy]] = []
        short = self._capacity.short()
        entitlement.missing = short | {key for _, key in exceeded_limits(self._ledger, self.group)}

    def _find_candidates(self, candidates: Candidates) -> list[list[CandidateGroup]]:
        """By policy, worst first."""
        pool, policy = self.entitlement.pool, self.group.policy
        found = [] if self.entitlement.stage == OTHERS else [candidates.own(pool, policy)]
        if self.entitlement.stage != OWN:
            over = candidates.over(pool)
            found += [several for other, several in over.items() if other != policy]
        return found

    def search(self) -> list[ChosenVictim] | None:
        """The victims that make the beneficiary fit, released already; None: no preemption.

        Where capacity does not need some of them, but the right to others does, there are none
        yet, and `needs_rights` is set.
        """
        if not self._release_enough():
            self._undo(self.chosen)
            return None
        is_fair = self.entitlement.rights.is_fair
        self.needed = self._needed_by_shares() if is_fair else self._needed()
        if not self.needs_rights:
            return self.needed
        self._undo(self.needed)
        return None

    def resume(self) -> list[ChosenVictim]:
        """After `needs_rights`: the victims, with those that only the right to others needs."""
        for victim in self.needed:
            victim.candidate.book(self._ledger, -1)
            victim.candidate.left.remove(victim.running_task)
        return self.needed

    def keep_rightful(self) -> None:
        """Leave out candidates to which only other victims would give a right."""
        self._candidates = [
            [
                candidate
                for candidate in several
                if candidate.left
                and self.entitlement.right(candidate, candidate.first()) is not None
            ]
            for several in self._candidates
        ]

    def _release_enough(self) -> bool:
        while not self._fits():
            candidate = self._worst()
            if candidate is None:
                return False
            running_task = candidate.first()
            victim = ChosenVictim(
                candidate,
                running_task,
                self._members_of(candidate, running_task),
                self._beneficiary,
                self.entitlement.depends_on(candidate),
            )
            self._give_up(victim)
            self.chosen.append(victim)
        return True

    def _needed(self) -> list[ChosenVictim]:
        """Restore, the last chosen first, each victim that neither capacity nor rights need."""
        headroom = Headroom(self.entitlement)
        needed: list[ChosenVictim] = []
        for victim in reversed(self.chosen):
            is_allowed = headroom.allows(victim)
            if self._restore_unless_needed(victim):
                if is_allowed:
                    headroom.restore(victim)
                    continue
                self._give_up(victim)
                self.needs_rights = True
            headroom.keep(victim)
            needed.append(victim)
        return needed[::-1]

    def _needed_by_shares(self) -> list[ChosenVictim]:
        """The same with fair shares, where every right depends on the usage of others as well."""
        needed = self.chosen
        is_settled = False
        while not is_settled:
            restored: set[ChosenVictim] = set()
            are_rightful = self._restore_unneeded(needed, needed[::-1], restored)
            # What was kept for its rights may not be needed for them any more.
            is_settled = are_rightful or not restored
            self.needs_rights = not are_rightful
            needed = [one for one in needed if one not in restored]
        return needed

    def _restore_unneeded(
        self,
        chosen: list[ChosenVictim],
        turns: Sequence[ChosenVictim],
        restored: set[ChosenVictim],
    ) -> bool:
        """Restore what capacity does not need, in as large parts as leave the rights.

        Returns:
            False where any is only needed for the right to others.
        """
        if self._restore_at_once(chosen, turns, restored):
            return True
        if len(turns) > 1:
            middle = len(turns) // 2
            for part in (turns[:middle], turns[middle:]):
                self._restore_unneeded(chosen, part, restored)
        return False

    def _restore_at_once(
        self,
        chosen: list[ChosenVictim],
        turns: Sequence[ChosenVictim],
        restored: set[ChosenVictim],
    ) -> bool:
        """Restore all of `turns` that capacity does not need, or none where rights need any."""
        unneeded = [one for one in turns if self._restore_unless_needed(one)]
        restored.update(unneeded)
        rest = [one for one in chosen if one not in restored]
        if not self.entitlement.may_lose(unneeded, rest) or self.entitlement.are_rightful(rest):
            return True
        restored.difference_update(unneeded)
        for victim in unneeded:
            self._give_up(victim)
        return False

    def _restore_unless_needed(self, victim: ChosenVictim) -> bool:
        self._restore(victim)
        if self._fits():
            return True
        self._give_up(victim)
        return False

    def _fits(self) -> bool:
        return self._capacity.fits() and within_limits(self._ledger, self.group) > 0

    def _give_up(self, victim: ChosenVictim) -> None:
        self._capacity.give(victim.candidate.shape, victim.members)
        victim.candidate.book(self._ledger, -1)
        victim.candidate.left.remove(victim.running_task)

    def _restore(self, victim: ChosenVictim) -> None:
        self._capacity.retake(victim.candidate.shape, victim.members)
        victim.candidate.book(self._ledger, 1)
        victim.candidate.restore(victim.running_task)

    def _undo(self, victims: list[ChosenVictim]) -> None:
        """Restore all, except in the simulated capacity, which is not used again."""
        for victim in reversed(victims):
            victim.candidate.book(self._ledger, 1)
            victim.candidate.restore(victim.running_task)

    def _worst(self) -> CandidateGroup | None:
        """The candidate group with the next victim, of those that the stage and rights allow.

        Within a search a group only falls back in the order, and only loses rights, until
        something of the beneficiary's own changes: then everything is ordered again.
        """
        signal = self._situation()
        if signal != self._signal:
            self._signal = signal
            self._policies = [
                ((), number, _CandidatesOfPolicy(several))
                for number, several in enumerate(self._candidates)
                if several and self.entitlement.may_reach(several[0])
            ]
        policies = self._policies
        while policies:
            order, number, of_policy = policies[0]
            found = of_policy.worst(self._order_in_policy)
            if found is None:
                heappop(policies)
                continue
            now = self._order(*found)
            if now == order:
                return found[1]
            heapreplace(policies, (now, number, of_policy))
        return None

    def _situation(self) -> object:
        """What others' usefulness and the beneficiary's rights depend on, without the victims'."""
        ledger = self._ledger
        amounts = self.group.shape.amounts
        self._short = self._capacity.short()
        self._limits = tuple(exceeded_limits(self._ledger, self.group))
        if self.entitlement.stage == OWN:
            # Rights to own work do not grow.
            return (self._short, self._limits)
        covers = tuple([covers_wholly(ledger, one, amounts) for one in self.group.chain])
        rights = self.entitlement.rights
        shares: tuple[object, ...] = ()
        if rights.is_fair:
            shares = tuple(rights.shares.after(ledger, one, amounts) for one in self.group.chain)
        return (self._short, self._limits, covers, shares)

    def _order_in_policy(self, candidate: CandidateGroup) -> Order | None:
        """None: it is no candidate now."""
        if not candidate.left or not self._is_useful(candidate):
            return None
        running_task = candidate.first()
        right = self.entitlement.right(candidate, running_task)
        return None if right is None else (right, candidate.priority, least_loss(running_task))

    def _order(self, in_policy: Order, candidate: CandidateGroup) -> Order:
        """Worst first (docs/allocation.md, "Preemption")."""
        right, *rest = in_policy
        shares = self.entitlement.rights.shares_along(self.group, candidate)
        return (
            candidate.policy == self.group.policy,
            not candidate.is_removed,
            right,
            tuple([(-infinite, -share) for infinite, share in shares]),
            rest[0],
            -candidate.policy,
            rest[1],
        )

    def _is_useful(self, candidate: CandidateGroup) -> bool:
        """Whether it holds anything that the beneficiary lacks."""
        for key, _ in candidate.none_more:
            if key in self._short:
                return True
            if any(key == one and policy in candidate.chain for policy, one in self._limits):
                return True
        return False


class _CandidatesOfPolicy:
    """The candidates of one policy, worst first, each judged when its turn comes.

    Their shares are the same, so that none has to be ordered again when those change.
    """

    def __init__(self, several: list[CandidateGroup]) -> None:
        self._rest = iter(several)
        self._serial = count()
        # The last of those that were not judged yet is marked.
        self._heap: list[tuple[Order, int, CandidateGroup, bool]] = []
        self._enter_next()

    def worst(
        self, order_of: Callable[[CandidateGroup], Order | None]
    ) -> tuple[Order, CandidateGroup] | None:
        heap = self._heap
        while heap:
            order, _, candidate, is_last = heap[0]
            now = order_of(candidate)
            if now == order:
                return order, candidate
            heappop(heap)
            if is_last:
                self._enter_next()
            if now is not None:
                heappush(heap, (now, next(self._serial), candidate, False))
        return None

    def _enter_next(self) -> None:
        """With the best order that it could have."""
        for candidate in self._rest:
            if candidate.left:
                order = (FIRST, *candidate.order())
                heappush(self._heap, (order, next(self._serial), candidate, True))
                return
