"""The search for victims: one beneficiary, one pool, one stage (docs/allocation.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from apps.allocation.engine.capacity.free_capacity import FreeCapacity
from apps.allocation.engine.capacity.nodes import MemberAssignment
from apps.allocation.engine.capacity.simulated_capacity import SimulatedCapacity
from apps.allocation.engine.compile.compiled_snapshot import GroupState
from apps.allocation.engine.model.snapshot import Id, PreemptionMode, RunningTask
from apps.allocation.engine.quota.ledger import Ledger
from apps.allocation.engine.quota.tiers import covers_wholly, short_limits, within_limits
from apps.allocation.engine.steps.preemption.candidate_groups import CandidateGroup, least_loss
from apps.allocation.engine.steps.preemption.candidates import Candidates
from apps.allocation.engine.steps.preemption.rights import (
    FIRST,
    PreemptionRights,
    divergence_level,
)

# The stages: others' work; own work until the policy covers the beneficiary, and others' with it;
# own.
OTHERS, BOTH, OWN = range(3)

Order = tuple[object, ...]


@dataclass(slots=True, eq=False)
class ChosenVictim:
    """A preempted task, the placement of its members, and its beneficiary.

    `is_inherited`: its first beneficiary was placed and preempted in this pass, so it counts for
    the next one, whose rights say nothing about it.
    """

    candidate: CandidateGroup
    running_task: RunningTask
    members: tuple[MemberAssignment, ...]
    beneficiary: Id
    is_inherited: bool = False


class Entitlement:
    """The basis of a beneficiary's rights to its victims, judged again when one is restored."""

    def __init__(
        self,
        rights: PreemptionRights,
        group: GroupState,
        pool: int,
        stage: int,
        *,
        is_over_quota: bool,
    ) -> None:
        self.rights = rights
        self.ledger: Ledger = rights.ledger
        self.group = group
        self.place = group.serving_key(pool, group.placed_count)
        self.pool = pool
        self.stage = stage
        self.is_over_quota = is_over_quota
        self.level: PreemptionMode = self.ledger.compiled.levels[pool]
        self.missing: frozenset[int] = frozenset()

    def at_stage(self, stage: int) -> Entitlement:
        return Entitlement(
            self.rights, self.group, self.pool, stage, is_over_quota=self.is_over_quota
        )

    def right(self, candidate: CandidateGroup, running_task: RunningTask) -> int | None:
        """The right to preempt that very task by current usage, None: there is none."""
        group = self.group
        if candidate.policy != group.policy:
            if self.stage == OWN:
                return None
            return self.rights.over_others(
                group, candidate, self.level, is_over_quota=self.is_over_quota
            )
        if self.stage == OTHERS or (self.stage == BOTH and self._is_covered()):
            return None
        has_right = self.rights.over_own(
            group,
            self.place,
            candidate,
            running_task,
            level=self.level,
            missing=self.missing,
            is_over_quota=self.is_over_quota,
        )
        return FIRST if has_right else None

    def _is_covered(self) -> bool:
        return covers_wholly(self.ledger, self.group.policy, self.group.shape.amounts)

    def are_rightful(self, victims: list[ChosenVictim]) -> bool:
        """Whether each victim is within the beneficiary's rights when it is chosen, in turn.

        All of them are released in the ledger, and the beneficiary is not charged.
        """
        for one in victims:
            one.candidate.book(self.ledger, 1)
        found = True
        for one in victims:
            found = found and (
                one.is_inherited or self.right(one.candidate, one.running_task) is not None
            )
            one.candidate.book(self.ledger, -1)
        return found

    def may_lose(self, restored: Sequence[ChosenVictim], victims: Sequence[ChosenVictim]) -> bool:
        """Whether a right to these victims may go when others are restored.

        It only does where usage of that very policy rises by which the beneficiary has the right
        to the work of other policies.
        """
        own = self.group.chain
        risen = {policy for one in restored for policy in one.candidate.chain}.intersection(own)
        return bool(risen) and any(
            one.candidate.policy != self.group.policy
            and own[divergence_level(own, one.candidate.chain)] in risen
            for one in victims
        )


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
        self.needs_rights = False
        self._signal: object = None
        self._short: frozenset[int] = frozenset()
        self._limits: tuple[tuple[int, int], ...] = ()
        self._heap: list[tuple[Order, int, CandidateGroup, Iterator[CandidateGroup] | None]] = []
        self._serial = count()
        short = self._capacity.short()
        entitlement.missing = short | {key for _, key in short_limits(self._ledger, self.group)}

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
            self._undo()
            return None
        restored: set[ChosenVictim] = set()
        if self._restore_at_once(self.chosen, self.chosen[::-1], restored):
            return [one for one in self.chosen if one not in restored]
        self.needs_rights = True
        self._undo()
        return None

    def resume(self) -> list[ChosenVictim]:
        """After `needs_rights`: the victims, with those that only the right to others needs."""
        for victim in self.chosen:
            victim.candidate.book(self._ledger, -1)
            victim.candidate.left.remove(victim.running_task)
        return self._needed()

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
            )
            self._give_up(victim)
            self.chosen.append(victim)
        return True

    def _needed(self) -> list[ChosenVictim]:
        """Restore, the last chosen first, each victim that neither capacity nor rights need."""
        needed = self.chosen
        is_settled = False
        while not is_settled:
            restored: set[ChosenVictim] = set()
            are_rightful = self._restore_spare(needed, needed[::-1], restored)
            # What was kept for its rights may not be needed for them any more.
            is_settled = are_rightful or not restored
            needed = [one for one in needed if one not in restored]
        return needed

    def _restore_spare(
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
                self._restore_spare(chosen, part, restored)
        return False

    def _restore_at_once(
        self,
        chosen: list[ChosenVictim],
        turns: Sequence[ChosenVictim],
        restored: set[ChosenVictim],
    ) -> bool:
        """Restore all of `turns` that capacity does not need, or none where rights need any."""
        spare = [one for one in turns if self._restore_unless_needed(one)]
        restored.update(spare)
        rest = [one for one in chosen if one not in restored]
        if not self.entitlement.may_lose(spare, rest) or self.entitlement.are_rightful(rest):
            return True
        restored.difference_update(spare)
        for victim in spare:
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

    def _undo(self) -> None:
        """Restore all, except in the simulated capacity."""
        for victim in reversed(self.chosen):
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
            self._fill()
        heap = self._heap
        while heap:
            order, _, candidate, rest = heap[0]
            now = self._order(candidate)
            if now == order:
                return candidate
            heappop(heap)
            if rest is not None:
                self._enter_next(rest)
            if now is not None:
                heappush(heap, (now, next(self._serial), candidate, None))
        return None

    def _situation(self) -> object:
        """What others' usefulness and the beneficiary's rights depend on, without the victims'."""
        ledger = self._ledger
        amounts = self.group.shape.amounts
        self._short = self._capacity.short()
        self._limits = tuple(short_limits(self._ledger, self.group))
        if self.entitlement.stage == OWN:
            # Rights to own work do not grow.
            return (self._short, self._limits)
        covers = tuple([covers_wholly(ledger, one, amounts) for one in self.group.chain])
        rights = self.entitlement.rights
        shares: tuple[object, ...] = ()
        if rights.is_fair:
            shares = tuple(rights.shares.after(ledger, one, amounts) for one in self.group.chain)
        return (self._short, self._limits, covers, shares)

    def _fill(self) -> None:
        self._heap = []
        for several in self._candidates:
            self._enter_next(iter(several))

    def _enter_next(self, several: Iterator[CandidateGroup]) -> None:
        """The next of a policy, by the best order that it could have now."""
        for candidate in several:
            if candidate.left:
                order = self._order_with(candidate, FIRST, candidate.order())
                heappush(self._heap, (order, next(self._serial), candidate, several))
                return

    def _order(self, candidate: CandidateGroup) -> Order | None:
        """Worst first (docs/allocation.md, "Preemption"); None: it is no candidate now."""
        if not candidate.left or not self._is_useful(candidate):
            return None
        running_task = candidate.first()
        right = self.entitlement.right(candidate, running_task)
        if right is None:
            return None
        return self._order_with(candidate, right, (candidate.priority, least_loss(running_task)))

    def _order_with(
        self, candidate: CandidateGroup, right: int, within_policy: tuple[object, ...]
    ) -> Order:
        shares = self.entitlement.rights.shares_along(self.group, candidate)
        return (
            candidate.policy == self.group.policy,
            not candidate.is_removed,
            right,
            tuple([(-infinite, -share) for infinite, share in shares]),
            within_policy[0],
            -candidate.policy,
            within_policy[1],
        )

    def _is_useful(self, candidate: CandidateGroup) -> bool:
        """Whether it holds anything that the beneficiary lacks."""
        for key, _ in candidate.none_more:
            if key in self._short:
                return True
            if any(key == one and policy in candidate.chain for policy, one in self._limits):
                return True
        return False
