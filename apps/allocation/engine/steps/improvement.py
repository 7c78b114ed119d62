"""The step Improve: pools offer what is free to tasks that prefer it, until none moves."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from operator import itemgetter

from apps.allocation.engine.compile.compiled_snapshot import GroupState, ServingKey, StrictKey
from apps.allocation.engine.quota.tiers import budget
from apps.allocation.engine.state.working_state import MemberAssignments, PoolOffer, WorkingState
from apps.allocation.engine.steps.match import TentativeMatch
from apps.allocation.engine.steps.offer import Turn


@dataclass(slots=True)
class Assignment:
    """The assignment of one head: the place of its pool in the group's list, and its members.

    `turn` says which head was assigned first; it stays when a head moves.
    """

    place: int
    members: MemberAssignments
    turn: int


def improve_match(state: WorkingState, match: TentativeMatch, eligible: list[GroupState]) -> int:
    """Improve the match and make it final. Returns how many tasks were placed."""
    assignments = _assignments(match)
    improvement = _Improvement(state, match, eligible, assignments)
    while improvement.once():
        pass
    return _place(state, match, eligible, assignments)


def _assignments(match: TentativeMatch) -> dict[int, list[Assignment]]:
    """By group index, in order of heads; heads that were offered first come first."""
    found: dict[int, list[Assignment]] = {}
    offered: list[tuple[Turn, Assignment]] = []
    for offer in match.offers:
        into = found.setdefault(offer.group.index, [])
        head = offer.first
        for place, pool in enumerate(offer.pools):
            at = offer.group.pools.index(pool)
            for members in offer.members[place]:
                into.append(Assignment(at, members, 0))
                offered.append((offer.turn(head), into[-1]))
                head += 1
    offered.sort(key=itemgetter(0))
    for turn, (_, assignment) in enumerate(offered):
        assignment.turn = turn
    return found


class _Improvement:
    def __init__(
        self,
        state: WorkingState,
        match: TentativeMatch,
        eligible: list[GroupState],
        assignments: dict[int, list[Assignment]],
    ) -> None:
        self.state = state
        self.match = match
        self.assignments = assignments
        self.groups_by_pool: dict[int, list[GroupState]] = {}
        for group in eligible:
            assignments.setdefault(group.index, [])
            for pool in group.pools:
                self.groups_by_pool.setdefault(pool, []).append(group)
        self.groups = {group.index: group for group in eligible}
        # By strict policy its first waiting tasks, until one of its tasks has an assignment.
        self._firsts: dict[int, dict[int, StrictKey]] = {}
        self._turns = count(sum(len(assigned) for assigned in assignments.values()))

    def once(self) -> bool:
        """Go through all pools in order of their names (the order of their indices)."""
        moved = False
        for pool in sorted(self.groups_by_pool):
            moved = self._offer(pool) or moved
        return moved

    def pool_offer(self, pool: int) -> PoolOffer:
        pool_offer = self.match.pool_offers.get(pool)
        if pool_offer is None:
            pool_offer = self.state.pool_offer(pool, self.match.holds)
            self.match.pool_offers[pool] = pool_offer
        return pool_offer

    def _offer(self, pool: int) -> bool:
        heap = self._interested(pool)
        barrier = self._barrier(pool)
        moved = False
        while heap:
            key, index, number = heappop(heap)
            group = self.groups[index]
            if barrier is not None and key > barrier:
                break
            if not self._would_move(group, number, pool):
                continue
            if self._take(group, number, pool):
                moved = True
                self._push(heap, group, pool, number + 1)
                self._push_unblocked(heap, group, pool)
            elif pool in self.state.turned and self._may_start(group, number, pool):
                assigned_count = len(self.assignments[group.index])
                if number == assigned_count:
                    self.state.turn_away(group, (pool,), self.match.tier)
                    break
                # It has a later pool, so it blocks no other task; those behind it may.
                self._push(heap, group, pool, assigned_count)
        return moved

    def _barrier(self, pool: int) -> ServingKey | None:
        """Without groups of this tier: they are all served here, in their order."""
        if pool not in self.state.turned:
            return None
        offered = {index: len(assigned) for index, assigned in self.assignments.items()}
        return self.state.barrier(pool, self.match.tier - 1, offered)

    def _interested(self, pool: int) -> list[tuple[ServingKey, int, int]]:
        """The first head of each group that prefers the pool, as a heap."""
        heap: list[tuple[ServingKey, int, int]] = []
        pool_offer = self.pool_offer(pool)
        for group in self.groups_by_pool[pool]:
            # With backfill, a group that does not fit here does not matter.
            if pool in self.state.turned or pool_offer.capacity.bound(group.shape) > 0:
                self._push(heap, group, pool, 0)
        heapify(heap)
        return heap

    def _push(
        self,
        heap: list[tuple[ServingKey, int, int]],
        group: GroupState,
        pool: int,
        start: int,
        *,
        up_to: StrictKey | None = None,
    ) -> None:
        """Push the first head from `start` on that prefers `pool`, unless it is behind `up_to`."""
        place = group.pools.index(pool)
        assigned = self.assignments[group.index]
        number = start
        while number < len(assigned) and assigned[number].place <= place:
            number += 1
        head = group.placed_count + number
        if number > len(assigned) or head >= len(group.queued.heads):
            return
        if up_to is None or group.strict_key(head) <= up_to:
            heappush(heap, (group.serving_key(pool, head), group.index, number))

    def _would_move(self, group: GroupState, number: int, pool: int) -> bool:
        """Whether the head still prefers `pool`; it may have been pushed twice."""
        assigned = self.assignments[group.index]
        if number == len(assigned):
            return True
        return number < len(assigned) and assigned[number].place > group.pools.index(pool)

    def _push_unblocked(
        self, heap: list[tuple[ServingKey, int, int]], group: GroupState, pool: int
    ) -> None:
        """Once a task of a strict policy has its assignment, push those that waited for it."""
        if group.is_strict:
            first = self._strict_firsts(group.policy).get(pool)
            for other in self.groups_by_pool[pool]:
                if other.policy == group.policy and other is not group:
                    self._push(heap, other, pool, 0, up_to=first)

    def _may_start(self, group: GroupState, number: int, pool: int) -> bool:
        """Whether budgets and strict order let it into `pool`, if it fitted."""
        assigned = self.assignments[group.index]
        if number == len(assigned) and not budget(self.state.ledger, group, self.match.tier, 1):
            return False
        if not group.is_strict:
            return True
        first = self._strict_firsts(group.policy).get(pool)
        return first is None or group.strict_key(group.placed_count + number) <= first

    def _strict_firsts(self, policy: int) -> dict[int, StrictKey]:
        found = self._firsts.get(policy)
        if found is None:
            ahead = {index: len(assigned) for index, assigned in self.assignments.items()}
            found = self._firsts[policy] = self.state.strict_firsts(policy, ahead)
        return found

    def _take(self, group: GroupState, number: int, pool: int) -> bool:
        if not self._may_start(group, number, pool):
            return False
        members = self.pool_offer(pool).take(group, group.placed_count + number)
        if members is None:
            return False
        assigned = self.assignments[group.index]
        place = group.pools.index(pool)
        if number < len(assigned):
            before = assigned[number]
            self.pool_offer(group.pools[before.place]).capacity.give(group.shape, before.members)
            assigned[number] = Assignment(place, members, before.turn)
        else:
            self.state.ledger.charge(group, 1)
            assigned.append(Assignment(place, members, next(self._turns)))
            self._firsts.pop(group.policy, None)
        return True


def _place(
    state: WorkingState,
    match: TentativeMatch,
    eligible: list[GroupState],
    assignments: dict[int, list[Assignment]],
) -> int:
    for pool, pool_offer in match.pool_offers.items():
        state.free_capacities[pool] = pool_offer.capacity
    placed_count = sum(len(assigned) for assigned in assignments.values())
    if placed_count > state.left:
        _withdraw_last(state, eligible, assignments)
        placed_count = state.left
    for group in eligible:
        for assignment in assignments[group.index]:
            state.place(group, group.pools[assignment.place], assignment.members, match.tier)
    return placed_count


def _withdraw_last(
    state: WorkingState, eligible: list[GroupState], assignments: dict[int, list[Assignment]]
) -> None:
    """Withdraw the latest assignments until no more are left than may start in this pass."""
    turns = sorted(one.turn for assigned in assignments.values() for one in assigned)
    first_out = turns[state.left]
    for group in eligible:
        assigned = assignments[group.index]
        while assigned and assigned[-1].turn >= first_out:
            last = assigned.pop()
            state.free_capacities[group.pools[last.place]].give(group.shape, last.members)
            state.ledger.charge(group, -1)
