"""Which task has a right to preempt which, by current usage, and which tasks are candidates."""

from __future__ import annotations

from collections.abc import Iterable

from apps.allocation.engine.compile.compiled_snapshot import Amounts, GroupState, ServingKey
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
        # The largest share of all policies, on which turn of the ledger.
        self._largest: FairShare = (0, 0)
        self._largest_turn = -1

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
        turn = sum(ledger.turns)
        if self._largest_turn != turn:
            policies = range(len(ledger.usage))
            self._largest = max([self.shares.after(ledger, one, ()) for one in policies])
            self._largest_turn = turn
        amounts = group.shape.amounts
        return any(self.shares.after(ledger, one, amounts) < self._largest for one in group.chain)

    def is_covered(self, group: GroupState) -> bool:
        """Whether some policy of its path covers it by that policy's whole usage."""
        amounts = group.shape.amounts
        if group.has_exceeded:
            return False
        return any(covers_wholly(self.ledger, policy, amounts) for policy in group.chain)

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
        return FIRST if is_over_quota and self._ranks_above(group, candidate, level) else None

    def _ranks_above(
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
        ledger = self.ledger
        share = self.shares.after(ledger, mine, group.shape.amounts)
        if share >= self.shares.after(ledger, theirs, ledger.without_leaving(theirs, ())):
            return None
        less = tuple((key, -amount) for key, amount in candidate.shape.amounts)
        without = ledger.without_leaving(theirs, less)
        return FIRST if share <= self.shares.after(self.ledger, theirs, without) else SECOND_CHOICE

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
        if is_over_quota and self._ranks_above(group, candidate, level):
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


WatchedGroups = dict[Amounts, tuple[CandidateGroup, set[int]]]


class Candidates:
    """What may be preempted, by pool, and what of it belongs to policies that are over.

    Victims only make policies less over, so this bounds what a beneficiary can find in other
    policies. It is looked up again only when a policy starts or stops being over.
    """

    def __init__(
        self, rights: PreemptionRights, candidate_groups: dict[int, list[CandidateGroup]]
    ) -> None:
        self.candidate_groups = candidate_groups
        self._rights = rights
        self._levels = rights.ledger.compiled.levels
        self._own: dict[tuple[int, int], list[CandidateGroup]] = {}
        self._over: dict[int, list[CandidateGroup]] = {}
        self._largest: dict[int, FairShare] = {}
        # By policy and keys: a group to ask with, and the pools where it may be preempted.
        self._watched: dict[int, WatchedGroups] = {}
        self._flags: dict[tuple[int, Amounts], bool] = {}
        # By pool: grows with everything that gives others more candidates there.
        self.versions = [0] * len(self._levels)
        for found in candidate_groups.values():
            for candidate in found:
                self._enter(candidate)

    def add(self, candidate: CandidateGroup) -> None:
        """Add a candidate group."""
        self.candidate_groups.setdefault(candidate.pool, []).append(candidate)
        self._enter(candidate)
        if candidate.pool in self._over and self.is_candidate(candidate):
            self._over[candidate.pool].append(candidate)

    def _enter(self, candidate: CandidateGroup) -> None:
        if self._levels[candidate.pool] is PreemptionMode.NONE:
            return
        self._own.setdefault((candidate.pool, candidate.policy), []).append(candidate)
        for policy in dict.fromkeys((candidate.chain[0], candidate.policy)):
            watched = self._watched.setdefault(policy, {})
            watched.setdefault(candidate.none_more, (candidate, set()))[1].add(candidate.pool)

    def own(self, pool: int, policy: int) -> list[CandidateGroup]:
        return self._own.get((pool, policy), [])

    def over(self, pool: int) -> list[CandidateGroup]:
        """What others could preempt at most."""
        found = self._over.get(pool)
        if found is None:
            found = [
                candidate
                for candidate in self.candidate_groups.get(pool, ())
                if self.is_candidate(candidate)
            ]
            self._over[pool] = found
        return found

    def is_candidate(self, candidate: CandidateGroup) -> bool:
        """Whether others could have a right to it."""
        level = self._levels[candidate.pool]
        if level is PreemptionMode.NONE:
            return False
        return self._is_over_reservation(candidate.policy, candidate) or (
            level is PreemptionMode.RANK
            and self._is_over_reservation(candidate.chain[0], candidate)
        )

    def _is_over_reservation(self, policy: int, candidate: CandidateGroup) -> bool:
        if candidate.is_exempt:
            return True
        name = (policy, candidate.none_more)
        found = self._flags.get(name)
        if found is None:
            found = self._rights.is_over_reservation(policy, candidate)
            self._flags[name] = found
        return found

    def refresh(self, chain: Iterable[int]) -> None:
        """Take in that the usage of these policies has changed."""
        self._largest.clear()
        for policy in chain:
            for keys, (candidate, pools) in self._watched.get(policy, {}).items():
                is_over_reservation = not self._rights.covers_rest(policy, candidate)
                if self._flags.get((policy, keys)) is not is_over_reservation:
                    self._flags[policy, keys] = is_over_reservation
                    for pool in pools:
                        self._over.pop(pool, None)
                        self.versions[pool] += is_over_reservation

    def may_have(self, group: GroupState, pool: int, *, is_over_quota: bool) -> bool:
        """Whether a search in other policies could find anything; most beneficiaries end here.

        A beneficiary that no policy of its path covers and whose share is not smaller has no first
        victim, and rights over others grow only with victims.
        """
        candidates = self.over(pool)
        if not candidates:
            return False
        if is_over_quota and self._levels[pool] is PreemptionMode.RANK:
            return True
        rights = self._rights
        amounts = group.shape.amounts
        if rights.is_covered(group):
            return True
        return rights.is_fair and any(
            rights.shares.after(rights.ledger, policy, amounts) < self._largest_share(pool)
            for policy in group.chain
        )

    def may_have_own(self, group: GroupState, pool: int) -> bool:
        """Whether it could preempt anything of its own policy."""
        level = self._levels[pool]
        own = self.own(pool, group.policy)
        if level is PreemptionMode.NONE or not own:
            return False
        if not group.queued.is_preemptible or level is PreemptionMode.RANK:
            return True
        return level is PreemptionMode.PRIORITY and any(
            candidate.priority < group.queued.priority for candidate in own
        )

    def _largest_share(self, pool: int) -> FairShare:
        """The largest of all policies that have candidates in `pool`."""
        found = self._largest.get(pool)
        if found is None:
            rights = self._rights
            policies = {policy for candidate in self.over(pool) for policy in candidate.chain}
            found = max(rights.shares.after(rights.ledger, one, ()) for one in sorted(policies))
            self._largest[pool] = found
        return found
