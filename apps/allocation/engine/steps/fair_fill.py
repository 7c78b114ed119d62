"""The step Fair fill: over-quota work by fair shares, one task at a time."""

from __future__ import annotations

from collections.abc import Iterable

from apps.allocation.engine.compile.compiled_snapshot import GroupState
from apps.allocation.engine.quota.fair_shares import FairShare
from apps.allocation.engine.quota.holds import Holds
from apps.allocation.engine.quota.tiers import budget
from apps.allocation.engine.state.working_state import PoolOffer, WorkingState


def fill_by_fair_share(
    state: WorkingState, tier: int, eligible: list[GroupState], holds: Holds | None
) -> int:
    """Place the tasks of one tier, each where it leaves the least share. Returns how many."""
    return _FairFill(state, tier, eligible, holds).fill()


class _FairFill:
    def __init__(
        self, state: WorkingState, tier: int, eligible: list[GroupState], holds: Holds | None
    ) -> None:
        self.state = state
        self.tier = tier
        self.holds = holds
        self.shares = state.shares
        self.pool_offers: dict[int, PoolOffer] = {}
        # By policy: its own groups that are still open, and its chosen next one.
        self.open_groups: dict[int, list[GroupState]] = {}
        for group in eligible:
            self.open_groups.setdefault(group.policy, []).append(group)
        self.chosen: dict[int, GroupState | None] = {}
        self.alive = {one for group in eligible for one in group.chain}
        self.roots = sorted({group.chain[0] for group in eligible})

    def fill(self) -> int:
        """Place until every group is closed. Returns how many tasks were placed."""
        count = 0
        self.state.forget_turned(self.tier)
        while self.state.left:
            group = self._least(self.roots)
            if group is None:
                break
            if self._place(group):
                count += 1
            else:
                self.open_groups[group.policy].remove(group)
            for policy in group.chain:
                self.chosen.pop(policy, None)
        for pool, pool_offer in self.pool_offers.items():
            self.state.free_capacities[pool] = pool_offer.capacity
        return count

    def _least(self, policies: Iterable[int]) -> GroupState | None:
        """The next task of the child that it leaves the least share; equal: the earlier child."""
        best: tuple[FairShare, int, GroupState] | None = None
        for policy in policies:
            if policy not in self.chosen:
                self.chosen[policy] = self._next(policy)
            group = self.chosen[policy]
            if group is None:
                continue
            share = self.shares.after(self.state.ledger, policy, group.shape.amounts)
            if best is None or (share, policy) < best[:2]:
                best = (share, policy, group)
        return None if best is None else best[2]

    def _next(self, policy: int) -> GroupState | None:
        children = [one for one in self.state.compiled.children[policy] if one in self.alive]
        if children:
            return self._least(children)
        waiting = [group for group in self.open_groups.get(policy, ()) if group.waiting > 0]
        return min(waiting, key=_key_of_next, default=None)

    def _place(self, group: GroupState) -> bool:
        """Place the next task in the first pool of its list where it fits."""
        if not budget(self.state.ledger, group, self.tier, 1):
            return False
        blocked = self.state.blocked_pools(group, group.placed_count)
        for pool in group.pools:
            if pool in blocked:
                continue
            barrier = self.state.barrier(pool, self.tier)
            if barrier is not None and group.serving_key(pool, group.placed_count) > barrier:
                continue
            pool_offer = self._front(pool)
            members = pool_offer.take(group, group.placed_count)
            if members is not None:
                self.state.ledger.charge(group, 1)
                self.state.place(group, pool, members, self.tier)
                return True
            self.state.turn_away(group, (pool,), self.tier)
        return False

    def _front(self, pool: int) -> PoolOffer:
        if pool not in self.pool_offers:
            self.pool_offers[pool] = self.state.pool_offer(pool, self.holds)
        return self.pool_offers[pool]


def _key_of_next(group: GroupState) -> tuple[object, ...]:
    if group.is_strict:
        return group.strict_key(group.placed_count)
    return group.across_key(group.placed_count)
