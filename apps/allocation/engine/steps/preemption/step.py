"""The step Preempt: preemption for tasks that do not fit (docs/allocation.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush

from apps.allocation.engine.capacity.nodes import MemberAssignment, assignments_of
from apps.allocation.engine.compile.compiled_snapshot import GroupState
from apps.allocation.engine.model.snapshot import Id, PreemptionMode, RunningTask
from apps.allocation.engine.quota.holds import find_holds
from apps.allocation.engine.quota.tiers import (
    covers_wholly,
    is_over_quota,
    tier_of,
    within_limits,
)
from apps.allocation.engine.state.working_state import WorkingState
from apps.allocation.engine.steps.preemption.candidate_groups import (
    CandidateGroup,
    find_candidate_groups,
)
from apps.allocation.engine.steps.preemption.candidates import Candidates
from apps.allocation.engine.steps.preemption.consolidation import (
    MovableTask,
    MovePlan,
    NoMoves,
    Relocation,
    find_moves,
)
from apps.allocation.engine.steps.preemption.displacement import Displaceable
from apps.allocation.engine.steps.preemption.entitlement import (
    BOTH,
    OTHERS,
    OWN,
    ChosenVictim,
    Entitlement,
)
from apps.allocation.engine.steps.preemption.failed_searches import Version
from apps.allocation.engine.steps.preemption.rights import PreemptionRights
from apps.allocation.engine.steps.preemption.versions import PreemptionVersions
from apps.allocation.engine.steps.preemption.victim_restore import can_restore
from apps.allocation.engine.steps.preemption.victims import VictimFinder


class PreemptionStep:
    """The candidates of this pass, and the victims."""

    def __init__(self, state: WorkingState) -> None:
        self.state = state
        self.rights = PreemptionRights(state.ledger, state.shares)
        self.is_possible = state.compiled.snapshot.settings.has_consolidation or any(
            level is not PreemptionMode.NONE for level in state.compiled.levels
        )
        self._has_candidates = False
        self.moved: list[Relocation] = []
        # All victims, in order: running work, and what this pass had placed itself.
        self._stopped: list[ChosenVictim] = []
        self._entitlements: dict[Id, Entitlement] = {}
        self._versions = PreemptionVersions(len(state.compiled.pools), len(state.compiled.policies))
        # By group: the tier and the version with which an attempt failed.
        self._failed: dict[int, tuple[int, int]] = {}
        self._no_moves: dict[int, NoMoves] = {}
        # How often victims were restored: that may give new rights.
        self._restored = 0

    @cached_property
    def _found(self) -> tuple[Candidates, Displaceable]:
        """The candidates: looked up when a group first may have a right to any of them."""
        self._has_candidates = True
        candidates = Candidates(
            self.rights,
            find_candidate_groups(self.state.compiled, self.state.stopping_or_waiting),
            self._versions,
        )
        displaceable = Displaceable(self.state, candidates, self._versions)
        displaceable.notice_placed()
        return candidates, displaceable

    @cached_property
    def victim_finder(self) -> VictimFinder:
        return VictimFinder(self.candidates, self.members)

    @property
    def candidates(self) -> Candidates:
        return self._found[0]

    @property
    def displaceable(self) -> Displaceable:
        return self._found[1]

    @property
    def victims(self) -> list[ChosenVictim]:
        """Running work that is preempted."""
        return [one for one in self._stopped if one.candidate.group is None]

    def preempt_for(self, tier: int, eligible: list[GroupState]) -> int:
        """Try the tasks of one tier in the order across pools. Returns how many were placed."""
        if not self.is_possible:
            return 0
        self._notice_placed()
        count = 0
        tried = [group for group in eligible if self._is_worth_trying(group, tier)]
        # The next tasks of all groups in one order: a group does not bring its later ones forward.
        turns = [(group.across_key(group.placed_count), group.index, group) for group in tried]
        heapify(turns)
        while turns:
            _, index, group = heappop(turns)
            if not self._is_worth_trying(group, tier):
                continue
            if self._take(group, tier):
                count += 1
                if group.waiting > 0:
                    heappush(turns, (group.across_key(group.placed_count), index, group))
            else:
                self._failed[group.index] = (tier, self._version(group))
        return count

    def _notice_placed(self) -> None:
        if self._has_candidates:
            self.displaceable.notice_placed()

    def _version(self, group: GroupState) -> int:
        """Grows with everything that could give a group missing capacity, rights or budget."""
        is_concerned_by_all = self.rights.is_fair or group.is_strict or bool(self.state.turned)
        if not self._has_candidates:
            return len(self.state.placed) if is_concerned_by_all else 0
        if is_concerned_by_all:
            return self._versions.placements + len(self._stopped) + len(self.moved)
        pools, policies = self._versions.pools, self._versions.policies
        return sum([pools[pool] for pool in group.pools]) + sum(
            [policies[policy] for policy in group.chain]
        )

    def _is_worth_trying(self, group: GroupState, tier: int) -> bool:
        """Not again before anything that concerns it has changed since it failed."""
        if group.waiting <= 0 or not self.state.left:
            return False
        failed = self._failed.get(group.index)
        if failed is not None and failed == (tier, self._version(group)):
            return False
        return tier_of(self.state.ledger, group) == tier

    def _take(self, group: GroupState, tier: int) -> bool:
        """Preempt for the next task of a group and place it."""
        pools = self._open_pools(group, tier)
        has_budget = within_limits(self.state.ledger, group) > 0
        if has_budget:
            for pool in pools:
                # The victims of another beneficiary may have left enough.
                if self._fits(group, pool):
                    self._place(group, pool, [], tier)
                    return True
            if self._move_others(group, pools, tier):
                return True
        return self._preempt(group, pools, tier)

    def _open_pools(self, group: GroupState, tier: int) -> Sequence[int]:
        """Those of its list that no earlier task keeps it out of."""
        state = self.state
        if not group.is_strict and not state.turned:
            return group.pools
        blocked = state.blocked_pools(group, group.placed_count)
        return [
            pool
            for pool in group.pools
            if pool not in blocked
            and state.may_enter(group.serving_key(pool, group.placed_count), pool, tier)
        ]

    def _fits(self, group: GroupState, pool: int) -> bool:
        return (
            self.state.compiled.levels[pool] is not PreemptionMode.NONE
            and self.state.free_capacities[pool].bound(group.shape) > 0
        )

    def _preempt(self, group: GroupState, pools: Sequence[int], tier: int) -> bool:
        if not self.rights.may_exist(group, pools):
            return False
        over_quota = is_over_quota(tier, self.state.compiled.depth)
        others = {
            pool
            for pool in pools
            if self.candidates.may_have(group, pool, is_over_quota=over_quota)
        }
        own = {pool for pool in pools if self.candidates.may_have_own(group, pool)}
        if not others and not own:
            return False
        covers = covers_wholly(self.state.ledger, group.policy, group.shape.amounts)
        # Own work first may bring rights over others; while the policy covers the beneficiary,
        # own work is not preempted for that, so there is nothing new to try.
        among = {OTHERS: others, BOTH: set() if covers else own, OWN: own}
        for stage in (OTHERS, BOTH, OWN):
            for pool in pools:
                if pool in among[stage] and self.state.could_ever_take(pool, group.shape):
                    entitlement = Entitlement(
                        self.rights, group, pool, stage, is_over_quota=over_quota
                    )
                    found = self.victim_finder.find(
                        entitlement, self.state.free_capacities[pool], self._searched_version()
                    )
                    if found is not None:
                        by, victims = found
                        self._entitlements[group.head(group.placed_count).task] = by
                        self._place(group, pool, victims, tier)
                        return True
        return False

    def _searched_version(self) -> Version:
        return (self._restored, self._versions.placements, len(self._stopped), len(self.moved))

    def _place(self, group: GroupState, pool: int, victims: list[ChosenVictim], tier: int) -> None:
        """Victims are released in the ledger, not yet in the free capacity."""
        state = self.state
        capacity = state.free_capacities[pool]
        for victim in victims:
            capacity.give(victim.candidate.shape, victim.members)
            if victim.candidate.group is not None:
                self._inherit(victim)
        members = capacity.take(group.shape)
        if members is None:
            raise AssertionError("a task that fits has members")
        state.ledger.charge(group, 1)
        state.place(group, pool, members, tier)
        self._stopped += victims
        self._note_fallen(victims)
        self._notice_placed()

    def _note_fallen(self, victims: list[ChosenVictim]) -> None:
        for victim in victims:
            self._versions.pools[victim.candidate.pool] += 1
            for policy in victim.candidate.chain:
                self._versions.policies[policy] += 1
            self.candidates.refresh(victim.candidate.chain)

    def _inherit(self, victim: ChosenVictim) -> None:
        """A task of this pass is preempted: its own victims count for its beneficiary."""
        self.displaceable.withdraw(victim.running_task.task)
        self._entitlements.pop(victim.running_task.task, None)
        for one in self._stopped:
            if one.beneficiary == victim.running_task.task:
                one.beneficiary = victim.beneficiary
                one.is_inherited = True
        for moved in self.moved:
            if moved.beneficiary == victim.running_task.task:
                moved.beneficiary = victim.beneficiary

    def members(
        self, candidate: CandidateGroup, running_task: RunningTask
    ) -> tuple[MemberAssignment, ...]:
        if candidate.group is not None:
            return self.displaceable.entries[running_task.task].members
        layout = self.state.layouts[candidate.pool]
        members = self.state.likely_members.get(running_task.task)
        if members is None:
            members = assignments_of(layout, running_task.members) if layout else ()
        return members

    def _move_others(self, group: GroupState, pools: Sequence[int], tier: int) -> bool:
        if not self.state.compiled.snapshot.settings.has_consolidation:
            return False
        return any(self._move(group, pool, tier) for pool in pools)

    def _move(self, group: GroupState, pool: int, tier: int) -> bool:
        """Move other tasks inside the pool, if that is enough."""
        version = self._versions.pools[pool]
        capacity = self.state.free_capacities[pool]
        no_moves = self._no_moves.setdefault(pool, NoMoves())
        if capacity.nodes is None or no_moves.is_vain(group.shape, version):
            return False
        is_short = any(capacity.free[key] < amount for key, amount in group.shape.amounts)
        if is_short or self._is_held(group, pool, tier):
            return False
        plan = find_moves(capacity, group, self._movables(pool))
        if plan is None:
            no_moves.note(group.shape, version)
            return False
        self._carry_out(group, pool, plan, tier)
        return True

    def _movables(self, pool: int) -> list[MovableTask]:
        return [
            MovableTask(candidate, running_task, self.members(candidate, running_task))
            for candidate in self.candidates.candidate_groups.get(pool, ())
            if candidate.group is None
            for running_task in candidate.left
            if running_task.is_movable
        ]

    def _is_held(self, group: GroupState, pool: int, tier: int) -> bool:
        """Whether what is free is held for others: moves need no right, but they give none."""
        state = self.state
        if state.compiled.levels[pool] is not PreemptionMode.NONE:
            return False
        if not is_over_quota(tier, state.compiled.depth):
            return False
        holds = find_holds(
            state.compiled, state.ledger, state.free_capacities, state.could_ever_take
        )
        held = holds.total.get(pool)
        free = state.free_capacities[pool].free
        return held is not None and any(
            free[key] - held[key] < amount for key, amount in group.shape.amounts
        )

    def _carry_out(self, group: GroupState, pool: int, plan: MovePlan, tier: int) -> None:
        self.state.free_capacities[pool] = plan.capacity
        for one in plan.moved:
            one.candidate.left.remove(one.running_task)
        self.moved += plan.moved
        self.state.ledger.charge(group, 1)
        self.state.place(group, pool, plan.members, tier)
        self._versions.pools[pool] += 1
        self.displaceable.notice_placed()

    def restore_victims(self) -> bool:
        """At the end of the pass, restore the victims that still fit, the last chosen first.

        Returns:
            Whether any victim was restored: that may have made a policy over again.
        """
        count = len(self._stopped)
        is_settled = False
        while not is_settled:
            is_settled = True
            for victim in reversed(tuple(self._stopped)):
                if can_restore(self.state, victim) and self._keeps_rights(victim):
                    self._restore(victim)
                    is_settled = False
        has_restored = len(self._stopped) < count
        if has_restored:
            self._failed.clear()
            self._restored += 1
        return has_restored

    def _keeps_rights(self, victim: ChosenVictim) -> bool:
        """Whether its beneficiary would have had a right to its other victims without it.

        By current usage, without the beneficiary. Where that says nothing, because what came later
        took the right away even with the victim, the victim is not needed for its sake.
        """
        entitlement = self._entitlements.get(victim.beneficiary)
        if entitlement is None:
            return True
        all_ = [one for one in self._stopped if one.beneficiary == victim.beneficiary]
        rest = [one for one in all_ if one is not victim]
        if not entitlement.may_lose([victim], rest):
            return True
        self.state.ledger.charge(entitlement.group, -1)
        has_right = entitlement.are_rightful(all_)
        victim.candidate.book(self.state.ledger, 1)
        keeps_right = entitlement.are_rightful(rest)
        victim.candidate.book(self.state.ledger, -1)
        self.state.ledger.charge(entitlement.group, 1)
        return keeps_right or not has_right

    def _restore(self, victim: ChosenVictim) -> None:
        candidate = victim.candidate
        self.state.free_capacities[candidate.pool].retake(candidate.shape, victim.members)
        candidate.book(self.state.ledger, 1)
        candidate.restore(victim.running_task)
        if candidate.group is not None:
            self.displaceable.restore(victim.running_task.task)
        self._stopped = [one for one in self._stopped if one is not victim]
        self.candidates.refresh(candidate.chain)

    def finish(self) -> None:
        """At the end, make what was placed and displaced wait again, and give the placements of
        each group to its earlier tasks.
        """
        if self._has_candidates:
            self._rename_beneficiaries(self.displaceable.finish())
        self._rename_beneficiaries(self.state.placements_in_order())

    def _rename_beneficiaries(self, names: Mapping[Id, Id]) -> None:
        stopped: list[ChosenVictim | Relocation] = [*self._stopped, *self.moved]
        for one in stopped:
            one.beneficiary = names.get(one.beneficiary, one.beneficiary)

    def displaced(self) -> tuple[Id, ...]:
        """What waits although this pass had placed it."""
        return self.displaceable.displaced() if self._has_candidates else ()
