"""Which tasks come first: in a queue, in a strict policy, and in a pool's serving order."""

from __future__ import annotations

from apps.allocation.engine.compiled_snapshot import GroupState
from apps.allocation.engine.engine_cache import ServingEntry
from apps.allocation.engine.reasons import Detail
from apps.allocation.engine.snapshot import Id
from apps.allocation.engine.tiers import tier_of, within_limits
from apps.allocation.engine.working_state import WorkingState

# As many policies as a reason names.
NAMED_POLICIES = 3


class QueuePositions:
    """Positions at the end of a pass, each computed once for all groups."""

    def __init__(self, state: WorkingState) -> None:
        self._state = state
        self._by_queue: dict[Id, list[GroupState]] = {}
        for group in state.compiled.groups:
            if group.queued.count > group.placed_count:
                self._by_queue.setdefault(group.queue.id, []).append(group)
        self._ahead: dict[int, dict[int, Detail]] | None = None

    def place(self, group: GroupState) -> int:
        """The place of the first waiting task of a group in its queue, from 1."""
        place = 1
        for other in self._by_queue[group.queue.id]:
            if other is not group:
                place += _waiting_before(other, group)
        return place

    def strictly_behind(self, group: GroupState, pool: int) -> Detail:
        """The first task of its policy that strict order wants to start before it in `pool`."""
        first = min(
            (one for one in self._state.strict[group.policy] if pool in one.pools and one.waiting),
            key=lambda one: one.strict_key(one.placed_count),
        )
        return Detail(policy=group.queue.policy, tasks=(first.head(first.placed_count).task,))

    def ahead(self, group: GroupState) -> tuple[Detail, ...]:
        """Per pool of its list, how many tasks that pool serves before this one, and whose."""
        if self._ahead is None:
            self._ahead = self._count_all()
        index = group.index
        details = [self._ahead[pool].get(index) for pool in group.pools if pool in self._ahead]
        return tuple([detail for detail in details if detail is not None])

    def _count_all(self) -> dict[int, dict[int, Detail]]:
        """By pool and group: tasks of better tier, or of the same and earlier in the order.

        Counted are those that this pass placed in the pool, and those that wait for it and that
        no limit blocks. A serving list that is as it was in the last pass is not counted again.
        """
        cached = self._state.cached_lists
        found: dict[int, dict[int, Detail]] = {}
        for pool, serving_list in self._entries().items():
            if pool not in cached or cached[pool][0] != serving_list:
                cached[pool] = (serving_list, self._counted(pool, serving_list))
            found[pool] = cached[pool][1]
        return found

    def _counted(self, pool: int, serving_list: list[ServingEntry]) -> dict[int, Detail]:
        id_ = self._state.compiled.pools[pool].id
        found: dict[int, Detail] = {}
        total = 0
        policies: tuple[Id, ...] = ()
        for *_, index, policy, count in sorted(serving_list):
            if total and index >= 0:
                found[index] = Detail(pool=id_, count=total, policies=policies)
            total += count
            if len(policies) < NAMED_POLICIES and policy not in policies:
                policies = (*policies, policy)
        return found

    def _entries(self) -> dict[int, list[ServingEntry]]:
        ledger = self._state.ledger
        entries: dict[int, list[ServingEntry]] = {}
        for placed in self._state.placed:
            key = placed.group.serving_key(placed.pool, placed.number)
            entry = (placed.tier, *key, -1, placed.group.queue.policy, 1)
            entries.setdefault(placed.pool, []).append(entry)
        for group in self._state.compiled.groups:
            tier = tier_of(ledger, group) if group.waiting > 0 else None
            if tier is not None and within_limits(ledger, group):
                head = group.queued.heads[group.placed_count]
                rest = (head.submitted_us, head.task, group.index, group.queue.policy)
                count = group.queued.count - group.placed_count
                for pool in group.pools:
                    entry = (tier, *group.prefixes[pool], *rest, count)
                    entries.setdefault(pool, []).append(entry)
        return entries


def _waiting_before(other: GroupState, group: GroupState) -> int:
    """How many waiting tasks of `other`, of the same queue, come before the first of `group`."""
    mine = (-group.queued.priority, 1 if group.queued.is_preemptible else 0)
    theirs = (-other.queued.priority, 1 if other.queued.is_preemptible else 0)
    if theirs != mine:
        return other.queued.count - other.placed_count if theirs < mine else 0
    if group.waiting <= 0:
        return other.queued.count - other.placed_count
    first = group.head(group.placed_count)
    return sum(
        1
        for head in other.queued.heads[other.placed_count :]
        if (head.submitted_us, head.task) < (first.submitted_us, first.task)
    )
