"""Over-quota work by fair shares: one task at a time to whom it leaves the least share."""

from __future__ import annotations

from collections.abc import Iterable

from apps.allocation.engine.compiled import Work
from apps.allocation.engine.fair import FairShare
from apps.allocation.engine.holds import Holds
from apps.allocation.engine.standing import budget
from apps.allocation.engine.working import Front, Pass


class Filling:
    """The filling of one standing."""

    def __init__(
        self, state: Pass, standing: int, candidates: list[Work], holds: Holds | None
    ) -> None:
        self.state = state
        self.standing = standing
        self.holds = holds
        self.shares = state.shares
        self.fronts: dict[int, Front] = {}
        # By policy: its own runs that are still in it, and its chosen next one.
        self.lines: dict[int, list[Work]] = {}
        for work in candidates:
            self.lines.setdefault(work.policy, []).append(work)
        self.chosen: dict[int, Work | None] = {}
        self.alive = {one for work in candidates for one in work.chain}
        self.roots = sorted({work.chain[0] for work in candidates})

    def fill(self) -> int:
        """Place until every run is closed. Returns how many tasks were placed."""
        count = 0
        self.state.forget_turned(self.standing)
        while self.state.left:
            work = self._least(self.roots)
            if work is None:
                break
            if self._place(work):
                count += 1
            else:
                self.lines[work.policy].remove(work)
            for policy in work.chain:
                self.chosen.pop(policy, None)
        for pool, front in self.fronts.items():
            self.state.rooms[pool] = front.room
        return count

    def _least(self, policies: Iterable[int]) -> Work | None:
        """The next task of the child whom it leaves the least share; equal: the earlier one."""
        best: tuple[FairShare, int, Work] | None = None
        for policy in policies:
            if policy not in self.chosen:
                self.chosen[policy] = self._next(policy)
            work = self.chosen[policy]
            if work is None:
                continue
            share = self.shares.after(self.state.ledger, policy, work.shape.amounts)
            if best is None or (share, policy) < best[:2]:
                best = (share, policy, work)
        return None if best is None else best[2]

    def _next(self, policy: int) -> Work | None:
        children = [one for one in self.state.compiled.children[policy] if one in self.alive]
        if children:
            return self._least(children)
        waiting = [work for work in self.lines.get(policy, ()) if work.waiting > 0]
        return min(waiting, key=_key_of_next, default=None)

    def _place(self, work: Work) -> bool:
        """Place the next task in the first pool of its list that has room."""
        if not budget(self.state.ledger, work, self.standing, 1):
            return False
        blocked = self.state.blocked_pools(work, work.taken, {})
        for pool in work.pools:
            if pool in blocked:
                continue
            barrier = self.state.barrier(pool, self.standing)
            if barrier is not None and work.serving_key(pool, work.taken) > barrier:
                continue
            front = self._front(pool)
            seats = front.take(work, work.taken)
            if seats is not None:
                self.state.ledger.charge(work, 1)
                self.state.settle(work, pool, seats, self.standing)
                return True
            self.state.turn_away(work, (pool,), self.standing)
        return False

    def _front(self, pool: int) -> Front:
        if pool not in self.fronts:
            self.fronts[pool] = self.state.front(pool, self.holds)
        return self.fronts[pool]


def _key_of_next(work: Work) -> tuple[object, ...]:
    if work.is_strict:
        return work.strict_key(work.taken)
    return work.across_key(work.taken)
