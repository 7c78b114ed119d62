"""Which task has a right to preempt which, by current usage."""

from __future__ import annotations

from collections.abc import Iterable

from apps.allocation.engine.compile.compiled_snapshot import GroupState, ServingKey
from apps.allocation.engine.model.snapshot import OverQuotaMode, PreemptionMode, RunningTask
from apps.allocation.engine.quota.fair_shares import FairShare, FairShares
from apps.allocation.engine.quota.ledger import Ledger
from apps.allocation.engine.quota.tiers import covers_wholly
from apps.allocation.engine.steps.preemption.candidate_groups import CandidateGroup

# Rights, the better first; under fair shares every first choice comes before a second one.
FIRST, SECOND_CHOICE = 0, 1


class PreemptionRights:
    """Who may take capacity from whom."""

    def __init__(self, ledger: Ledger, shares: FairShares) -> None:
        self.ledger = ledger
        self.shares = shares
        settings = ledger.compiled.snapshot.settings
        self.is_fair = settings.over_quota is OverQuotaMode.FAIR_SHARE
        # By pool: whether a task of it may ever take work of its own policy, though preemptible.
        self._can_preempt_own = [
            level not in (PreemptionMode.NONE, PreemptionMode.RECLAIM)
            for level in ledger.compiled.levels
        ]
        # The largest share of all policies, with which version of the ledger.
        self._largest: FairShare = (0, 0)
        self._largest_version = -1

    def may_exist(self, group: GroupState, pools: Iterable[int]) -> bool:
        """Whether any right is possible, whatever runs; for most waiting groups none is.

        Own work needs a higher level than `reclaim`, or a beneficiary that is not preemptible.
        """
        if not group.queued.is_preemptible or self.is_covered(group) or self._is_poorer(group):
            return True
        return any(map(self._can_preempt_own.__getitem__, pools))

    def _is_poorer(self, group: GroupState) -> bool:
        """Whether with the task it has, on some level, a smaller share than another policy now."""
        if not self.is_fair:
            return False
        ledger = self.ledger
        version = sum(ledger.versions)
        if self._largest_version != version:
            policies = range(len(ledger.usage))
            self._largest = max([self.shares.after(ledger, one, ()) for one in policies])
            self._largest_version = version
        amounts = group.shape.amounts
        return any(self.shares.after(ledger, one, amounts) < self._largest for one in group.chain)

    def is_covered(self, group: GroupState) -> bool:
        """Whether some policy of its path covers it by that policy's whole usage."""
        amounts = group.shape.amounts
        if group.has_exceeded:
            return False
        return any(covers_wholly(self.ledger, policy, amounts) for policy in group.chain)

    def may_reach(
        self,
        group: GroupState,
        chain: tuple[int, ...],
        level: PreemptionMode,
        *,
        is_over_quota: bool,
    ) -> bool:
        """Whether any work of another policy, with this path, could be within its rights."""
        part = divergence_level(group.chain, chain)
        mine, theirs = group.chain[part], chain[part]
        if not group.has_exceeded and covers_wholly(self.ledger, mine, group.shape.amounts):
            return True
        if self.is_fair:
            return self._has_smaller_share(group, mine, theirs)
        return is_over_quota and level is PreemptionMode.RANK

    def over_others(
        self,
        group: GroupState,
        candidate: CandidateGroup,
        level: PreemptionMode,
        *,
        is_over_quota: bool,
    ) -> int | None:
        """Right to another policy's work: FIRST, SECOND_CHOICE, or None.

        Args:
            is_over_quota: the beneficiary's tier is over quota.
        """
        part = divergence_level(group.chain, candidate.chain)
        if not all(
            self.is_over_reservation(policy, candidate) for policy in candidate.chain[part:]
        ):
            # No better rank helps: the victim's policy would reclaim it at once.
            return None
        mine, theirs = group.chain[part], candidate.chain[part]
        if not group.has_exceeded and covers_wholly(self.ledger, mine, group.shape.amounts):
            return FIRST
        if self.is_fair and (choice := self._fairer(group, mine, candidate, theirs)) is not None:
            return choice
        return FIRST if is_over_quota and self.ranks_above(group, candidate, level) else None

    def ranks_above(
        self, group: GroupState, candidate: CandidateGroup, level: PreemptionMode
    ) -> bool:
        """At the level `rank`: over-quota work with a worse place, not merely submitted later."""
        if level is not PreemptionMode.RANK or self.is_fair:
            return False
        return group.prefixes[candidate.pool][:3] < candidate.place and self.is_over_reservation(
            candidate.chain[0], candidate
        )

    def _fairer(
        self, group: GroupState, mine: int, candidate: CandidateGroup, theirs: int
    ) -> int | None:
        if not self._has_smaller_share(group, mine, theirs):
            return None
        ledger = self.ledger
        share = self.shares.after(ledger, mine, group.shape.amounts)
        less = tuple((key, -amount) for key, amount in candidate.shape.amounts)
        without = ledger.without_leaving(theirs, less)
        return FIRST if share <= self.shares.after(self.ledger, theirs, without) else SECOND_CHOICE

    def _has_smaller_share(self, group: GroupState, mine: int, theirs: int) -> bool:
        ledger = self.ledger
        share = self.shares.after(ledger, mine, group.shape.amounts)
        return share < self.shares.after(ledger, theirs, ledger.without_leaving(theirs, ()))

    def is_over_reservation(self, policy: int, candidate: CandidateGroup) -> bool:
        """Whether the policy is over for running work that its usage includes."""
        return candidate.is_exempt or not self.covers_rest(policy, candidate)

    def covers_rest(self, policy: int, candidate: CandidateGroup) -> bool:
        """Whether the rest of the policy's work is within its reservation, in these keys."""
        rest = candidate.none_more
        leaving = self.ledger.leaving.get(policy)
        if leaving is not None:
            rest = tuple([(key, -leaving[key]) for key, _ in rest])
        return covers_wholly(self.ledger, policy, rest)

    def over_own(
        self,
        group: GroupState,
        place: ServingKey,
        candidate: CandidateGroup,
        running_task: RunningTask,
        *,
        level: PreemptionMode,
        missing: frozenset[int],
        is_over_quota: bool,
    ) -> bool:
        """Right to a task of the beneficiary's own policy.

        Args:
            place: the beneficiary's in the pool.
            missing: keys that the beneficiary lacks in the pool or in a limit.
            is_over_quota: the beneficiary's tier is over quota.
        """
        if is_over_quota and self.ranks_above(group, candidate, level):
            return True
        if candidate.serving_key(running_task) <= place:
            return False
        if not group.queued.is_preemptible and candidate.priority <= group.queued.priority:
            return True
        if (
            level in (PreemptionMode.NONE, PreemptionMode.RECLAIM)
            or candidate.priority >= group.queued.priority
        ):
            return False
        if group.has_exceeded and not candidate.is_exempt:
            # Never within a reservation: otherwise its victim's policy could reclaim it.
            return False
        reserved = self.ledger.compiled.reserved[group.policy]
        return all(
            amount <= reserved.get(key, 0) for key, amount in group.shape.amounts if key in missing
        )

    def shares_along(self, group: GroupState, candidate: CandidateGroup) -> tuple[FairShare, ...]:
        """Shares of the victim's policies, from where its path diverges from the beneficiary's."""
        if not self.is_fair:
            return ()
        part = divergence_level(group.chain, candidate.chain)
        return tuple(self.shares.after(self.ledger, one, ()) for one in candidate.chain[part:])


def divergence_level(mine: tuple[int, ...], theirs: tuple[int, ...]) -> int:
    """The first level from the top at which two paths differ.

    Work that still runs in a policy which has children by now ends its path above theirs; it is
    judged by its own policy.
    """
    for level, (one, other) in enumerate(zip(mine, theirs, strict=False)):
        if one != other:
            return level
    return min(len(mine), len(theirs)) - 1
