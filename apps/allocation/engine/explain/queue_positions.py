"""Which tasks come first: in a queue, in a strict policy, and in a pool's serving order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from apps.allocation.engine.compile.compiled_snapshot import GroupState
from apps.allocation.engine.model.reasons import Detail
from apps.allocation.engine.model.snapshot import Id
from apps.allocation.engine.quota.tiers import tier_of, within_limits
from apps.allocation.engine.state.working_state import WorkingState

# As many policies as a reason names.
NAMED_POLICIES = 3

# Of a pool's serving list: tier, place in the pool, index of the group (-1: placed already), its
# policy, how many.
ServingEntry = tuple[int, int, int, int, int, int, Id, int, Id, int]


# The order of groups in their queue: by priority, then the non-preemptible ones first.
_Rank = tuple[int, int]


def _rank(group: GroupState) -> _Rank:
    return (-group.queued.priority, 1 if group.queued.is_preemptible else 0)


class _Equals(NamedTuple):
    """The groups of one queue and rank: how many tasks wait ahead of them, how many in them.

    `heads` are their loaded waiting tasks in order, as (submitted_us, task).
    """

    ahead: int
    total: int
    heads: list[tuple[int, Id]]

    @classmethod
    def of(cls, groups: Sequence[GroupState], *, ahead: int) -> _Equals:
        total = 0
        heads: list[tuple[int, Id]] = []
        for group in groups:
            total += group.queued.count - group.placed_count
            if len(groups) == 1:
                # Nothing of its own comes before its first task.
                break
            rest = group.queued.heads[group.placed_count :]
            heads += [(head.submitted_us, head.task) for head in rest]
        return cls(ahead, total, sorted(heads))


class QueuePositions:
    """Positions at the end of a pass, each computed once for all groups."""

    def __init__(self, state: WorkingState) -> None:
        self._state = state
        # By queue and rank the groups with waiting tasks, and by queue the ranks in order.
        self._equals: dict[tuple[Id, _Rank], _Equals] = {}
        self._ahead: dict[int, dict[int, Detail]] | None = None
        self._strict_firsts: dict[tuple[int, int], GroupState] = {}
        self._rank_all()

    def _rank_all(self) -> None:
        """Put the groups of each queue in order, once: a queue may hold thousands of groups."""
        groups: dict[Id, dict[_Rank, list[GroupState]]] = {}
        for group in self._state.compiled.groups:
            if group.queued.count > group.placed_count:
                ranks = groups.setdefault(group.queue.id, {})
                ranks.setdefault(_rank(group), []).append(group)
        for queue, ranks in groups.items():
            ahead = 0
            for rank in sorted(ranks):
                equals = _Equals.of(ranks[rank], ahead=ahead)
                self._equals[queue, rank] = equals
                ahead += equals.total

    def position(self, group: GroupState) -> int:
        """The position of the first waiting task of a group in its queue, from 1."""
        equals = self._equals[group.queue.id, _rank(group)]
        if group.waiting <= 0:
            own = group.queued.count - group.placed_count
            return 1 + equals.ahead + equals.total - own
        first = group.head(group.placed_count)
        return 1 + equals.ahead + bisect_left(equals.heads, (first.submitted_us, first.task))

    def strictly_behind(self, group: GroupState, pool: int) -> Detail:
        """The first task of its policy that strict order wants to start before it in `pool`."""
        first = self._strict_firsts.get((group.policy, pool))
        if first is None:
            strict = self._state.strict[group.policy]
            first = min(
                (one for one in strict if pool in one.pools and one.waiting),
                key=lambda one: one.strict_key(one.placed_count),
            )
            self._strict_firsts[group.policy, pool] = first
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
        state = self._state
        return {
            pool: state.memo.get(
                ("ahead", pool),
                (state.version, serving_list),
                partial(self._counted, pool, serving_list),
            )
            for pool, serving_list in self._entries().items()
        }

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
