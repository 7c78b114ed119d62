"""The search for victims: one beneficiary, one pool, one stage (docs/allocation.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from apps.allocation.engine.capacity.free_capacity import FreeCapacity
from apps.allocation.engine.capacity.nodes import MemberAssignment
from apps.allocation.engine.capacity.simulated_capacity import SimulatedCapacity
from apps.allocation.engine.compile.compiled_snapshot import GroupState
from apps.allocation.engine.model.snapshot import Id, PreemptionMode, RunningTask
from apps.allocation.engine.quota.ledger import Ledger
from apps.allocation.engine.quota.tiers import covers_wholly, within_limits
from apps.allocation.engine.steps.preemption.candidate_groups import CandidateGroup, least_loss
from apps.allocation.engine.steps.preemption.candidates import Candidates
from apps.allocation.engine.steps.preemption.rights import FIRST, PreemptionRights

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

    def gives_rights(self, victim: ChosenVictim) -> bool:
        """Whether others' rights may depend on this victim.

        When usage outside the beneficiary's own path falls, rights are only lost.
        """
        return victim.candidate.chain[0] == self.group.chain[0]


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
        self._signal: object = None
        self._short: frozenset[int] = frozenset()
        self._limits: tuple[tuple[int, int], ...] = ()
        self._heap: list[tuple[Order, int, CandidateGroup]] = []
        short = self._capacity.short()
        entitlement.missing = short | {key for _, key in self._short_limits()}

    def _find_candidates(self, candidates: Candidates) -> list[CandidateGroup]:
        pool, policy = self.entitlement.pool, self.group.policy
        found = [] if self.entitlement.stage == OTHERS else list(candidates.own(pool, policy))
        if self.entitlement.stage != OWN:
            found += [
                candidate for candidate in candidates.over(pool) if candidate.policy != policy
            ]
        return found

    def search(self) -> list[ChosenVictim] | None:
        """The victims that make the beneficiary fit, released already; None: no preemption."""
        chosen: list[ChosenVictim] = []
        while not self._fits():
            candidate = self._worst()
            if candidate is None:
                for victim in reversed(chosen):
                    self._restore(victim)
                return None
            running_task = candidate.first()
            victim = ChosenVictim(
                candidate,
                running_task,
                self._members_of(candidate, running_task),
                self._beneficiary,
            )
            self._give_up(victim)
            chosen.append(victim)
        return self._needed(chosen)

    def _needed(self, chosen: list[ChosenVictim]) -> list[ChosenVictim]:
        """Restore, the last chosen first, each victim that neither capacity nor rights need."""
        needed = list(chosen)
        is_settled = False
        while not is_settled:
            is_settled = True
            is_needed_for_rights = False
            for victim in reversed(tuple(needed)):
                self._restore(victim)
                rest = [one for one in needed if one is not victim]
                has_capacity = self._fits()
                if has_capacity and self._keeps_rights(victim, rest):
                    needed = rest
                    is_settled = not is_needed_for_rights
                else:
                    is_needed_for_rights = is_needed_for_rights or has_capacity
                    self._give_up(victim)
        return needed

    def _keeps_rights(self, restored: ChosenVictim, rest: list[ChosenVictim]) -> bool:
        return not self.entitlement.gives_rights(restored) or self.entitlement.are_rightful(rest)

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
            order, number, candidate = heap[0]
            now = self._order(candidate)
            if now is None:
                heappop(heap)
            elif now != order:
                heapreplace(heap, (now, number, candidate))
            else:
                return candidate
        return None

    def _situation(self) -> object:
        """What others' usefulness and the beneficiary's rights depend on, without the victims'."""
        ledger = self._ledger
        amounts = self.group.shape.amounts
        self._short = self._capacity.short()
        self._limits = tuple(self._short_limits())
        covers = tuple([covers_wholly(ledger, one, amounts) for one in self.group.chain])
        rights = self.entitlement.rights
        shares: tuple[object, ...] = ()
        if rights.is_fair:
            shares = tuple(rights.shares.after(ledger, one, amounts) for one in self.group.chain)
        return (self._short, self._limits, covers, shares)

    def _fill(self) -> None:
        self._heap = []
        for number, candidate in enumerate(self._candidates):
            order = self._order(candidate)
            if order is not None:
                self._heap.append((order, number, candidate))
        heapify(self._heap)

    def _order(self, candidate: CandidateGroup) -> Order | None:
        """Worst first (docs/allocation.md, "Preemption"); None: it is no candidate now."""
        if not candidate.left or not self._is_useful(candidate):
            return None
        running_task = candidate.first()
        right = self.entitlement.right(candidate, running_task)
        if right is None:
            return None
        shares = self.entitlement.rights.shares_along(self.group, candidate)
        return (
            candidate.policy == self.group.policy,
            not candidate.is_removed,
            right,
            tuple([(-infinite, -share) for infinite, share in shares]),
            candidate.priority,
            -candidate.policy,
            least_loss(running_task),
        )

    def _is_useful(self, candidate: CandidateGroup) -> bool:
        """Whether it holds anything that the beneficiary lacks."""
        for key, _ in candidate.none_more:
            if key in self._short:
                return True
            if any(key == one and policy in candidate.chain for policy, one in self._limits):
                return True
        return False

    def _short_limits(self) -> Iterator[tuple[int, int]]:
        """(policy, key) of the limits that keep the beneficiary out."""
        ledger = self._ledger
        group = self.group
        for policy in group.chain:
            limits = ledger.compiled.limits[policy]
            user_limits = ledger.compiled.user_limits[policy]
            for key, amount in group.shape.amounts:
                is_counted = key in limits and not (group.has_exceeded and policy == group.policy)
                if is_counted and ledger.counted(policy, key) + amount > limits[key]:
                    yield policy, key
                elif group.queued.user is not None and key in user_limits:
                    used = ledger.user_usage(policy, group.queued.user)[key]
                    if used + amount > user_limits[key]:
                        yield policy, key
