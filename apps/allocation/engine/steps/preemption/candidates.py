"""Which tasks may be preempted: what others, and what the own policy, could take at most."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping

from apps.allocation.engine.compile.compiled_snapshot import Amounts, GroupState
from apps.allocation.engine.model.snapshot import PreemptionMode
from apps.allocation.engine.quota.fair_shares import FairShare
from apps.allocation.engine.steps.preemption.candidate_groups import CandidateGroup
from apps.allocation.engine.steps.preemption.rights import PreemptionRights
from apps.allocation.engine.steps.preemption.versions import PreemptionVersions

WatchedGroups = dict[Amounts, tuple[CandidateGroup, set[int]]]


class Candidates:
    """What may be preempted, by pool, and what of it belongs to policies that are over.

    Victims only make policies less over, so this bounds what a beneficiary can find in other
    policies. It is looked up again only when a policy starts or stops being over.
    """

    def __init__(
        self,
        rights: PreemptionRights,
        candidate_groups: dict[int, list[CandidateGroup]],
        versions: PreemptionVersions,
    ) -> None:
        self.candidate_groups = candidate_groups
        self._rights = rights
        self._versions = versions
        self._levels = rights.ledger.compiled.levels
        # Worst first, once they are asked for.
        self._own: dict[tuple[int, int], list[CandidateGroup]] = {}
        self._sorted: set[tuple[int, int]] = set()
        self._common_keys: dict[int, frozenset[int]] = {}
        self._over: dict[int, dict[int, list[CandidateGroup]]] = {}
        self._largest: dict[int, FairShare] = {}
        # By policy and keys: a group to ask with, and the pools where it may be preempted.
        self._watched: dict[int, WatchedGroups] = {}
        self._flags: dict[tuple[int, Amounts], bool] = {}
        for found in candidate_groups.values():
            for candidate in found:
                self._enter(candidate)

    def add(self, candidate: CandidateGroup) -> None:
        """Add a candidate group."""
        self.candidate_groups.setdefault(candidate.pool, []).append(candidate)
        self._enter(candidate)
        if candidate.pool in self._over and self.is_candidate(candidate):
            found = self._over[candidate.pool].setdefault(candidate.policy, [])
            insort(found, candidate, key=CandidateGroup.order)

    def _enter(self, candidate: CandidateGroup) -> None:
        if self._levels[candidate.pool] is PreemptionMode.NONE:
            return
        keys = frozenset(key for key, _ in candidate.none_more)
        self._common_keys[candidate.pool] = keys & self._common_keys.get(candidate.pool, keys)
        name = (candidate.pool, candidate.policy)
        self._own.setdefault(name, []).append(candidate)
        self._sorted.discard(name)
        for policy in dict.fromkeys((candidate.chain[0], candidate.policy)):
            watched = self._watched.setdefault(policy, {})
            watched.setdefault(candidate.none_more, (candidate, set()))[1].add(candidate.pool)

    def common_keys(self, pool: int) -> frozenset[int]:
        """What each of them holds some of."""
        return self._common_keys.get(pool, frozenset())

    def own(self, pool: int, policy: int) -> list[CandidateGroup]:
        """All of one policy, worst first."""
        name = (pool, policy)
        found = self._own.get(name, [])
        if name not in self._sorted:
            found.sort(key=CandidateGroup.order)
            self._sorted.add(name)
        return found

    def over(self, pool: int) -> Mapping[int, list[CandidateGroup]]:
        """By policy, worst first, what others could preempt at most."""
        found = self._over.get(pool)
        if found is None:
            found = {}
            for candidate in self.candidate_groups.get(pool, ()):
                if self.is_candidate(candidate):
                    found.setdefault(candidate.policy, []).append(candidate)
            for several in found.values():
                several.sort(key=CandidateGroup.order)
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
                        self._versions.pools[pool] += is_over_reservation

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
        return level is PreemptionMode.PRIORITY and own[0].priority < group.queued.priority

    def _largest_share(self, pool: int) -> FairShare:
        """The largest of all policies that have candidates in `pool`."""
        found = self._largest.get(pool)
        if found is None:
            rights = self._rights
            chains = rights.ledger.compiled.chains
            policies = {above for policy in self.over(pool) for above in chains[policy]}
            found = max(rights.shares.after(rights.ledger, one, ()) for one in sorted(policies))
            self._largest[pool] = found
        return found
