"""What failed searches had released: a later search that releases no more fails as well.

Without it, many waiting groups that differ only in their requests would release and restore the
same victims one after another.
"""

from __future__ import annotations

from dataclasses import dataclass

from apps.allocation.engine.capacity.free_capacity import FreeCapacity
from apps.allocation.engine.compile.compiled_snapshot import ServingKey
from apps.allocation.engine.model.snapshot import PreemptionMode
from apps.allocation.engine.quota.tiers import covers_wholly, exceeded_limits
from apps.allocation.engine.steps.preemption.candidates import Candidates
from apps.allocation.engine.steps.preemption.entitlement import (
    BOTH,
    OTHERS,
    OWN,
    ChosenVictim,
    Entitlement,
)

Key = tuple[object, ...]
Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _FailedSearch:
    """The capacity with all victims released, and what that was of the beneficiary's policies.

    `place` and `priority`: of the beneficiary. Own work that a later or lower one may preempt, it
    could preempt too.
    """

    version: Version
    capacity: FreeCapacity
    released: dict[int, dict[int, int]]
    place: ServingKey
    priority: int


class FailedSearches:
    """By everything that rights depend on, except the request."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._found: dict[Key, _FailedSearch] = {}

    def record(
        self,
        entitlement: Entitlement,
        capacity: FreeCapacity,
        victims: list[ChosenVictim],
        version: Version,
    ) -> None:
        """That a search failed with these victims, all there were. They are restored by now."""
        if not self._is_any_useful(entitlement, capacity):
            return
        group = entitlement.group
        with_victims = capacity.fork()
        released: dict[int, dict[int, int]] = {one: {} for one in group.chain}
        for victim in victims:
            with_victims.give(victim.candidate.shape, victim.members)
            for policy in released.keys() & set(victim.candidate.chain):
                for key, amount in victim.candidate.shape.amounts:
                    released[policy][key] = released[policy].get(key, 0) + amount
        if entitlement.rights.is_fair and any(released.values()):
            return
        found = _FailedSearch(
            version, with_victims, released, entitlement.place, group.queued.priority
        )
        if _has_same_cover(entitlement, found):
            self._found[_key(entitlement, entitlement.stage)] = found

    def rule_out(self, entitlement: Entitlement, capacity: FreeCapacity, version: Version) -> bool:
        """Whether a search would find no more, and that is not enough."""
        if not self._is_any_useful(entitlement, capacity):
            return False
        # Where the policy never comes to cover the beneficiary, own work alone is no more.
        stages = (BOTH, OWN) if entitlement.stage == OWN else (entitlement.stage,)
        return any(
            _says_no(entitlement, self._found.get(_key(entitlement, stage)), version)
            for stage in stages
        )

    def _is_any_useful(self, entitlement: Entitlement, capacity: FreeCapacity) -> bool:
        """Whether victims do not depend on what of the request is missing."""
        group = entitlement.group
        ledger = entitlement.ledger
        amounts = group.shape.amounts
        common = self._candidates.common_keys(entitlement.pool)
        reserved = ledger.compiled.reserved[group.policy]
        return (
            any(key in common for key, _ in amounts)
            and all(key in common or capacity.free[key] >= amount for key, amount in amounts)
            and (
                entitlement.stage == OTHERS
                or all(amount <= reserved.get(key, 0) for key, amount in amounts)
            )
            and not any(exceeded_limits(ledger, group))
        )


def _key(entitlement: Entitlement, stage: int) -> Key:
    group = entitlement.group
    rights = entitlement.rights
    ledger = entitlement.ledger
    amounts = group.shape.amounts
    covers = tuple([covers_wholly(ledger, one, amounts) for one in group.chain])
    shares: tuple[object, ...] = ()
    if rights.is_fair:
        shares = tuple([rights.shares.after(ledger, one, amounts) for one in group.chain])
    is_ranked = entitlement.level is PreemptionMode.RANK
    return (
        entitlement.pool,
        stage,
        group.chain,
        group.has_exceeded,
        group.queued.is_preemptible,
        entitlement.is_over_quota,
        covers,
        shares,
        group.prefixes[entitlement.pool][:3] if is_ranked else None,
    )


def _says_no(entitlement: Entitlement, found: _FailedSearch | None, version: Version) -> bool:
    if found is None or found.version != version:
        return False
    group = entitlement.group
    return (
        entitlement.place >= found.place
        and group.queued.priority <= found.priority
        and _has_same_cover(entitlement, found)
        and not found.capacity.bound(group.shape)
    )


def _has_same_cover(entitlement: Entitlement, found: _FailedSearch) -> bool:
    """Whether the same policies cover the beneficiary with all victims released as without."""
    ledger = entitlement.ledger
    amounts = entitlement.group.shape.amounts
    for policy in entitlement.group.chain:
        released = found.released[policy]
        less = tuple([(key, amount - released.get(key, 0)) for key, amount in amounts])
        if covers_wholly(ledger, policy, less) != covers_wholly(ledger, policy, amounts):
            return False
    return True
