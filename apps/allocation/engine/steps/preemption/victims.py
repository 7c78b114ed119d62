"""The victims of one beneficiary in one pool and stage: which searches are made, in which order."""

from __future__ import annotations

from collections.abc import Callable

from apps.allocation.engine.capacity.free_capacity import FreeCapacity
from apps.allocation.engine.capacity.nodes import MemberAssignment
from apps.allocation.engine.model.snapshot import RunningTask
from apps.allocation.engine.steps.preemption.candidate_groups import CandidateGroup
from apps.allocation.engine.steps.preemption.candidates import Candidates
from apps.allocation.engine.steps.preemption.entitlement import (
    BOTH,
    OWN,
    ChosenVictim,
    Entitlement,
)
from apps.allocation.engine.steps.preemption.failed_searches import FailedSearches, Version
from apps.allocation.engine.steps.preemption.victim_search import VictimSearch

Victims = list[ChosenVictim]


class VictimFinder:
    """Searches, of which none is made that cannot find more than one that failed."""

    def __init__(
        self,
        candidates: Candidates,
        members: Callable[[CandidateGroup, RunningTask], tuple[MemberAssignment, ...]],
    ) -> None:
        self._candidates = candidates
        self._members_of = members
        self._failed = FailedSearches(candidates)

    def find(
        self, entitlement: Entitlement, capacity: FreeCapacity, version: Version
    ) -> tuple[Entitlement, Victims] | None:
        """The victims, released in the ledger, and the entitlement by which they were found."""
        if self._failed.rule_out(entitlement, capacity, version):
            return None
        search = self._search(entitlement, capacity)
        victims = search.search()
        if victims is not None:
            return entitlement, victims
        if search.needs_rights:
            # Those that only give the right to others come last: there may be very many of them.
            return self._find_other(entitlement, capacity) or (entitlement, search.resume())
        self._failed.record(entitlement, capacity, search.chosen, version)
        return None

    def _find_other(
        self, entitlement: Entitlement, capacity: FreeCapacity
    ) -> tuple[Entitlement, Victims] | None:
        """Victims of which each is rightful without the others."""
        rightful = self._search(entitlement, capacity)
        rightful.keep_rightful()
        victims = rightful.search()
        if victims is not None:
            return entitlement, victims
        if entitlement.stage != BOTH:
            return None
        alone = entitlement.at_stage(OWN)
        victims = self._search(alone, capacity).search()
        return None if victims is None else (alone, victims)

    def _search(self, entitlement: Entitlement, capacity: FreeCapacity) -> VictimSearch:
        return VictimSearch(entitlement, self._candidates, capacity, self._members_of)
