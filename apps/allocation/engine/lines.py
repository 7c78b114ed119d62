"""Who stands before whom: in a queue, in a strict policy, and in a pool's serving order."""

from __future__ import annotations

from apps.allocation.engine.compiled import Work
from apps.allocation.engine.keeping import Entry
from apps.allocation.engine.reasons import Detail
from apps.allocation.engine.snapshot import Id
from apps.allocation.engine.standing import standing_of, within_limits
from apps.allocation.engine.working import Pass

# As many policies as a reason names.
NAMED_POLICIES = 3


class Lines:
    """Places at the end of a pass, each counted once for all."""

    def __init__(self, state: Pass) -> None:
        self._state = state
        self._by_queue: dict[Id, list[Work]] = {}
        for work in state.compiled.works:
            if work.run.count > work.taken:
                self._by_queue.setdefault(work.queue.id, []).append(work)
        self._ahead: dict[int, dict[int, Detail]] | None = None

    def place(self, work: Work) -> int:
        """The place of the first waiting task of a run in its queue, from 1."""
        place = 1
        for other in self._by_queue[work.queue.id]:
            if other is not work:
                place += _waiting_before(other, work)
        return place

    def strictly_behind(self, work: Work, pool: int) -> Detail:
        """The first task of its policy that strict order wants to start before it in `pool`."""
        first = min(
            (one for one in self._state.strict[work.policy] if pool in one.pools and one.waiting),
            key=lambda one: one.strict_key(one.taken),
        )
        return Detail(policy=work.queue.policy, tasks=(first.head(first.taken).task,))

    def ahead(self, work: Work) -> tuple[Detail, ...]:
        """Per pool of its list, how many tasks that pool serves before this one, and whose."""
        if self._ahead is None:
            self._ahead = self._count_all()
        index = work.index
        details = [self._ahead[pool].get(index) for pool in work.pools if pool in self._ahead]
        return tuple([detail for detail in details if detail is not None])

    def _count_all(self) -> dict[int, dict[int, Detail]]:
        """By pool and run: tasks of better standing, or of the same and earlier in the order.

        Counted are those that this pass placed in the pool, and those that wait for it and that
        no limit keeps back. A line that is as it was in the last pass is not counted again.
        """
        kept = self._state.kept_lines
        found: dict[int, dict[int, Detail]] = {}
        for pool, line in self._entries().items():
            if pool not in kept or kept[pool][0] != line:
                kept[pool] = (line, self._counted(pool, line))
            found[pool] = kept[pool][1]
        return found

    def _counted(self, pool: int, line: list[Entry]) -> dict[int, Detail]:
        id_ = self._state.compiled.pools[pool].id
        found: dict[int, Detail] = {}
        total = 0
        policies: tuple[Id, ...] = ()
        for *_, index, policy, count in sorted(line):
            if total and index >= 0:
                found[index] = Detail(pool=id_, count=total, policies=policies)
            total += count
            if len(policies) < NAMED_POLICIES and policy not in policies:
                policies = (*policies, policy)
        return found

    def _entries(self) -> dict[int, list[Entry]]:
        ledger = self._state.ledger
        entries: dict[int, list[Entry]] = {}
        for placed in self._state.placed:
            key = placed.work.serving_key(placed.pool, placed.number)
            entry = (placed.standing, *key, -1, placed.work.queue.policy, 1)
            entries.setdefault(placed.pool, []).append(entry)
        for work in self._state.compiled.works:
            standing = standing_of(ledger, work) if work.waiting > 0 else None
            if standing is not None and within_limits(ledger, work):
                head = work.run.heads[work.taken]
                rest = (head.submitted_us, head.task, work.index, work.queue.policy)
                count = work.run.count - work.taken
                for pool in work.pools:
                    entry = (standing, *work.prefixes[pool], *rest, count)
                    entries.setdefault(pool, []).append(entry)
        return entries


def _waiting_before(other: Work, work: Work) -> int:
    """How many waiting tasks of `other`, of the same queue, stand before the first of `work`."""
    mine = (-work.run.priority, 1 if work.run.is_preemptible else 0)
    theirs = (-other.run.priority, 1 if other.run.is_preemptible else 0)
    if theirs != mine:
        return other.run.count - other.taken if theirs < mine else 0
    if work.waiting <= 0:
        return other.run.count - other.taken
    first = work.head(work.taken)
    return sum(
        1
        for head in other.run.heads[other.taken :]
        if (head.submitted_us, head.task) < (first.submitted_us, first.task)
    )
