"""The basis of a beneficiary's rights to its victims (docs/allocation.md, "Preemption")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from apps.allocation.engine.capacity.nodes import MemberAssignment
from apps.allocation.engine.compile.compiled_snapshot import GroupState
from apps.allocation.engine.model.snapshot import Id, PreemptionMode, RunningTask
from apps.allocation.engine.quota.ledger import Ledger
from apps.allocation.engine.quota.tiers import covers_wholly
from apps.allocation.engine.steps.preemption.candidate_groups import CandidateGroup
from apps.allocation.engine.steps.preemption.rights import (
    FIRST,
    PreemptionRights,
    divergence_level,
)

# The stages: others' work; own work until the policy covers the beneficiary, and others' with it;
# own.
OTHERS, BOTH, OWN = range(3)


@dataclass(slots=True, eq=False)
class ChosenVictim:
    """A preempted task, the placement of its members, and its beneficiary.

    `depends_on` when it was chosen, as of its entitlement. `is_inherited`: its first beneficiary
    was placed and preempted in this pass, so it counts for the next one, whose rights say nothing
    about it.
    """

    candidate: CandidateGroup
    running_task: RunningTask
    members: tuple[MemberAssignment, ...]
    beneficiary: Id
    depends_on: int | None
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

    def may_reach(self, candidate: CandidateGroup) -> bool:
        """Whether it could have a right to any work of the candidate's policy."""
        if candidate.policy == self.group.policy:
            return self.stage != BOTH or not self._is_covered()
        return self.rights.may_reach(
            self.group, candidate.chain, self.level, is_over_quota=self.is_over_quota
        )

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

    def depends_on(self, candidate: CandidateGroup) -> int | None:
        """The policy of the beneficiary whose usage must not rise for the right, if there is one.

        That to own work, and that of a better place, does not go when usage rises.
        """
        group = self.group
        if candidate.policy == group.policy:
            return None
        if self.is_over_quota and self.rights.ranks_above(group, candidate, self.level):
            return None
        return group.chain[divergence_level(group.chain, candidate.chain)]

    def may_lose(self, restored: Sequence[ChosenVictim], victims: Sequence[ChosenVictim]) -> bool:
        """Whether a right to these victims may go when others are restored."""
        risen = {policy for one in restored for policy in one.candidate.chain}
        return any(not one.is_inherited and one.depends_on in risen for one in victims)


class Headroom:
    """Which victims may be restored without the loss of a right, asked from the last to the first.

    A victim restored raises usage when later ones are judged, and of those only the ones matter to
    which the beneficiary has the right because its policy covers it. So it is enough to remember
    how much that usage may still rise. Not with fair shares.
    """

    def __init__(self, entitlement: Entitlement) -> None:
        group, ledger = entitlement.group, entitlement.ledger
        self._amounts = group.shape.amounts
        self._reserved = ledger.compiled.reserved
        # Of the beneficiary's policies: usage with all victims released, then as the next one was
        # chosen.
        self._usage = {policy: list(ledger.usage[policy]) for policy in group.chain}
        # By policy and key: how much the usage may still rise.
        self._left: dict[tuple[int, int], int] = {}

    def allows(self, victim: ChosenVictim) -> bool:
        """Whether rights allow it to be restored; `restore` or `keep` it then."""
        allowed = True
        for policy, key, amount in self._rise(victim):
            self._usage[policy][key] += amount
            allowed = allowed and amount <= self._left.get((policy, key), amount)
        return allowed

    def restore(self, victim: ChosenVictim) -> None:
        for policy, key, amount in self._rise(victim):
            if (policy, key) in self._left:
                self._left[policy, key] -= amount

    def keep(self, victim: ChosenVictim) -> None:
        policy = victim.depends_on
        if policy is None or victim.is_inherited:
            return
        reserved = self._reserved[policy]
        for key, amount in self._amounts:
            if key in reserved:
                left = reserved[key] - self._usage[policy][key] - amount
                self._left[policy, key] = min(left, self._left.get((policy, key), left))

    def _rise(self, victim: ChosenVictim) -> Iterator[tuple[int, int, int]]:
        for policy in victim.candidate.chain:
            if policy in self._usage:
                for key, amount in victim.candidate.shape.amounts:
                    yield policy, key, amount
