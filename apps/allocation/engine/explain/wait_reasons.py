"""Why tasks still wait: for each group one dominant reason, then the rest, with numbers."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from apps.allocation.engine.capacity.free_capacity import FreeCapacity
from apps.allocation.engine.compile.compiled_snapshot import UNCOUNTED, CompiledSnapshot, GroupState
from apps.allocation.engine.explain.queue_positions import QueuePositions
from apps.allocation.engine.model.plan import Wait
from apps.allocation.engine.model.quantities import GPU
from apps.allocation.engine.model.reasons import Detail, Reason, ReasonCode
from apps.allocation.engine.model.snapshot import Id, QueuedGroup
from apps.allocation.engine.quota.holds import Holds
from apps.allocation.engine.quota.tiers import (
    covers,
    is_over_quota,
    limit_uses,
    tier_of,
    within_limits,
)
from apps.allocation.engine.state.working_state import WorkingState
from apps.allocation.engine.steps.preemption.candidate_groups import find_protected
from apps.allocation.engine.steps.preemption.rights import PreemptionRights

_task_of = attrgetter("task")


def explain(state: WorkingState, holds: Holds | None, rights: PreemptionRights) -> tuple[Wait, ...]:
    """A `Wait` for every group with tasks left, in the order of the snapshot's groups."""
    explainer = _Explainer(state, holds, rights)
    waits = [
        explainer.wait(group)
        for group in state.compiled.groups
        if group.queued.count > group.placed_count
    ]
    waits += [_excluded(state.compiled, index, queued) for index, queued in state.compiled.excluded]
    waits.sort(key=lambda wait: wait.index)
    return tuple(waits)


def all_disabled(compiled: CompiledSnapshot) -> tuple[Wait, ...]:
    """The result of a pass while resource management is off."""
    reasons = (Reason(ReasonCode.DISABLED),)
    queued_groups = enumerate(compiled.snapshot.queued_groups)
    return tuple(_whole_group(index, queued, reasons) for index, queued in queued_groups)


def _whole_group(index: int, queued: QueuedGroup, reasons: tuple[Reason, ...]) -> Wait:
    tasks = tuple(head.task for head in queued.heads)
    return Wait(index, queued.queue, tasks, queued.count, 1, reasons)


def _excluded(compiled: CompiledSnapshot, index: int, queued: QueuedGroup) -> Wait:
    """Of a group that is paused, or has a budget above it that is spent."""
    queue = compiled.queues[queued.queue]
    chain = compiled.chains[compiled.policy_index[queue.policy]]
    policies = [compiled.policies[one] for one in reversed(chain)]
    paused = [Detail(queue=queue.id)] if queue.is_paused else []
    paused += [Detail(policy=one.id) for one in policies if one.is_paused]
    spent = [Detail(policy=one.id) for one in policies if one.is_spent]
    found = ((ReasonCode.PAUSED, paused), (ReasonCode.BUDGET, spent))
    reasons = tuple(Reason(code, tuple(details)) for code, details in found if details)
    return _whole_group(index, queued, reasons)


class _Explainer:
    def __init__(self, state: WorkingState, holds: Holds | None, rights: PreemptionRights) -> None:
        self.state = state
        self.rights = rights
        self.protected = find_protected(state.compiled)
        self.compiled = state.compiled
        self.holds = holds
        self.positions = QueuePositions(state)
        self.stopping = _stopping(self.compiled)
        self.shorts: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        self.shortages: dict[tuple[int, int], Detail] = {}
        self.capacities: dict[tuple[int, tuple[int, ...]], Reason] = {}
        self.holders: dict[int, tuple[Id, Id]] = {}
        if holds is not None:
            self.holders = _first_holders(self.compiled, holds)

    def wait(self, group: GroupState) -> Wait:
        position = self.positions.position(group)
        return Wait(
            index=group.index,
            queue=group.queue.id,
            tasks=tuple(map(_task_of, group.queued.heads[group.placed_count :])),
            count=group.queued.count - group.placed_count,
            position=position,
            reasons=tuple(self._reasons(group, position)),
        )

    def _reasons(self, group: GroupState, position: int) -> list[Reason]:
        """The dominant one first."""
        if not group.pools:
            return list(self._closed(group))
        if group.waiting > 0:
            found = [
                *self._drained_for(group),
                *self._rights(group),
                *self._capacity_reasons(group),
            ]
            found += self._outranked(group)
        else:
            found = list(self._rights(group))
        if position > 1 or not found:
            found.append(
                Reason(ReasonCode.BEHIND, (Detail(queue=group.queue.id, position=position),))
            )
        if len(group.pools) < len(group.linked_pools):
            found += self._closed(group)
        return found

    def _closed(self, group: GroupState) -> Iterator[Reason]:
        """Pools that accept nothing now, or no pool at all."""
        if not group.linked_pools:
            yield Reason(ReasonCode.NO_POOL)
            return
        pools = [self.compiled.pools[one] for one in group.linked_pools]
        paused = tuple(Detail(pool=pool.id) for pool in pools if pool.is_paused)
        if paused:
            yield Reason(ReasonCode.PAUSED, paused)
        unserved = tuple(
            Detail(pool=pool.id) for pool in pools if not pool.has_server and not pool.is_paused
        )
        if unserved:
            yield Reason(ReasonCode.NO_SERVER, unserved)

    def _drained_for(self, group: GroupState) -> Iterator[Reason]:
        """Work that is stopping so that this very task may start."""
        if not self.stopping:
            return
        task = group.head(group.placed_count).task
        details = tuple(
            Detail(pool=pool, tasks=tasks)
            for (pool, beneficiary), tasks in self.stopping.items()
            if beneficiary == task
        )
        if details:
            yield Reason(ReasonCode.DRAINING, details)

    def _rights(self, group: GroupState) -> Iterator[Reason]:
        if not within_limits(self.state.ledger, group):
            yield Reason(ReasonCode.LIMIT, tuple(self._limits(group)))
        if not group.queued.is_preemptible:
            short = tuple(self._uncovered(group, group.chain))
            if short:
                yield Reason(ReasonCode.NEEDS_RESERVATION, short)
        elif not group.queue.allows_over_quota:
            short = tuple(self._uncovered(group, group.chain[:1]))
            if short or group.has_exceeded:
                yield Reason(ReasonCode.OVER_QUOTA_NOT_ALLOWED, short)

    def _limits(self, group: GroupState) -> Iterator[Detail]:
        """The nearest policy first."""
        uses = [one for one in limit_uses(self.state.ledger, group) if one.is_exceeded]
        for one in sorted(uses, key=lambda use: -group.chain.index(use.policy)):
            yield Detail(
                policy=self.compiled.policies[one.policy].id,
                user=group.queued.user if one.is_of_user else None,
                key=self.compiled.keys[one.key],
                usage=one.used,
                limit=one.limit,
                needed=one.amount,
            )

    def _uncovered(self, group: GroupState, chain: tuple[int, ...]) -> Iterator[Detail]:
        ledger = self.state.ledger
        for policy in reversed(chain):
            if covers(ledger, policy, group):
                continue
            id_ = self.compiled.policies[policy].id
            reserved = self.compiled.reserved[policy]
            used = (ledger.usage if group.queued.is_preemptible else ledger.non_preemptible)[policy]
            named = [one for one in group.shape.amounts if one[0] in reserved]
            # Where the reservation names no key of it, nothing of the request is reserved.
            for key, amount in named or group.shape.amounts[:1]:
                limit = reserved.get(key, 0)
                if not named or used[key] + amount > limit:
                    yield Detail(
                        policy=id_,
                        key=self.compiled.keys[key],
                        usage=used[key],
                        limit=limit,
                        needed=amount,
                    )

    def _capacity_reasons(self, group: GroupState) -> Iterator[Reason]:
        """Per pool of the list: no capacity, held capacity, or an earlier task of strict order."""
        short = self._short_pools(group)
        if len(short) < len(group.pools):
            yield from self._not_let_in(group, [one for one in group.pools if one not in short])
        if short:
            yield from self._protected(group, short)
            yield self._capacity(group, short)
            yield from self._draining(short)

    def _short_pools(self, group: GroupState) -> tuple[int, ...]:
        """Pools where it does not fit, the same for all work of one shape and list of pools."""
        name = (group.shape.number, group.pools)
        found = self.shorts.get(name)
        if found is None:
            free_capacities = self.state.free_capacities
            found = tuple(
                [one for one in group.pools if not free_capacities[one].bound(group.shape)]
            )
            self.shorts[name] = found
        return found

    def _not_let_in(self, group: GroupState, pools: list[int]) -> Iterator[Reason]:
        """What keeps it out of pools where it fits."""
        blocked = self.state.blocked_pools(group, group.placed_count)
        behind = [one for one in pools if one in blocked]
        held = [self._held(group, one) for one in pools if one not in blocked]
        if behind:
            details = dict.fromkeys(self.positions.strictly_behind(group, one) for one in behind)
            yield Reason(ReasonCode.BEHIND, tuple(details))
        if any(held):
            yield Reason(ReasonCode.HELD, tuple(detail for detail in held if detail))

    def _protected(self, group: GroupState, pools: tuple[int, ...]) -> Iterator[Reason]:
        """Work that it has a right to, but that may not be stopped yet."""
        tier = tier_of(self.state.ledger, group) if self.protected else None
        if tier is None:
            return
        over_quota = is_over_quota(tier, self.compiled.depth)
        details = []
        for pool in pools:
            level = self.compiled.levels[pool]
            safe = [
                one
                for one in self.protected.get(pool, ())
                if one.candidate.policy != group.policy
                and self.rights.over_others(group, one.candidate, level, is_over_quota=over_quota)
                is not None
            ]
            if safe:
                until = min(one.until_us for one in safe)
                details.append(
                    Detail(
                        pool=self.compiled.pools[pool].id,
                        tasks=tuple(sorted(one.task for one in safe)),
                        until_us=until if until < UNCOUNTED else None,
                    )
                )
        if details:
            yield Reason(ReasonCode.PROTECTED, tuple(details))

    def _capacity(self, group: GroupState, short: tuple[int, ...]) -> Reason:
        """The same for all work of one shape that does not fit into the same pools."""
        found = self.capacities.get((group.shape.number, short))
        if found is None:
            found = Reason(ReasonCode.CAPACITY, tuple(self._shortage(group, one) for one in short))
            self.capacities[group.shape.number, short] = found
        return found

    def _shortage(self, group: GroupState, pool: int) -> Detail:
        """Needed and free, the same for all work of one shape."""
        found = self.shortages.get((pool, group.shape.number))
        if found is None:
            found = self._find_shortage(group, pool)
            self.shortages[pool, group.shape.number] = found
        return found

    def _find_shortage(self, group: GroupState, pool: int) -> Detail:
        capacity = self.state.free_capacities[pool]
        facts = self.compiled.pools[pool]
        largest = None
        for key, amount in group.shape.amounts:
            if capacity.free[key] < amount:
                if self.state.layouts[pool] is not None:
                    largest = self._largest(group, capacity, key)
                return Detail(
                    pool=facts.id,
                    key=self.compiled.keys[key],
                    needed=amount,
                    free=max(capacity.free[key], 0),
                    limit=facts.capacity.get(self.compiled.keys[key]),
                    largest=largest,
                )
        key, amount = self._short_on_nodes(group, pool)
        name = self.compiled.keys[key]
        if capacity.nodes is not None:
            largest = self._largest(group, capacity, key)
        return Detail(
            pool=facts.id,
            key=name,
            needed=amount,
            free=max(capacity.free[key], 0),
            limit=facts.capacity.get(name),
            largest=largest,
        )

    def _largest(self, group: GroupState, capacity: FreeCapacity, key: int) -> int:
        """The most of a key that one node could give, which is nothing where the pool is full."""
        free = capacity.free[key]
        if free <= 0 or capacity.nodes is None:
            return 0
        return min(free, capacity.nodes.largest(self.compiled.keys[key], group.shape))

    def _short_on_nodes(self, group: GroupState, pool: int) -> tuple[int, int]:
        """The key, and a member's amount of it, that no node has; GPUs when it is a mixture."""
        nodes = self.state.free_capacities[pool].nodes
        member = sorted(group.shape.member, key=lambda one: self.compiled.keys[one[0]] != GPU)
        for key, amount in member:
            if nodes is not None and nodes.largest(self.compiled.keys[key], group.shape) < amount:
                return key, amount
        # A task that requests nothing still needs a node that accepts work.
        return member[0] if member else (self.compiled.key_index[GPU], 0)

    def _held(self, group: GroupState, pool: int) -> Detail | None:
        if self.holds is None or pool not in self.holds.total:
            return None
        tier = tier_of(self.state.ledger, group)
        if tier is None or not is_over_quota(tier, self.compiled.depth):
            return None
        if self.state.pool_offer(pool, self.holds).take(group, group.placed_count) is not None:
            return None
        free = self.state.free_capacities[pool].free
        total = self.holds.total[pool]
        key, amount = next(
            (one for one in group.shape.amounts if free[one[0]] - total[one[0]] < one[1]),
            group.shape.amounts[0],
        )
        policy, task = self.holders[pool]
        return Detail(
            pool=self.compiled.pools[pool].id,
            policy=policy,
            tasks=(task,),
            key=self.compiled.keys[key],
            needed=amount,
            free=free[key],
            limit=total[key],
        )

    def _draining(self, short: tuple[int, ...]) -> Iterator[Reason]:
        """Work that stops in those pools without a beneficiary: its capacity is free soon."""
        if not self.stopping:
            return
        pools = {self.compiled.pools[one].id for one in short}
        details = tuple(
            Detail(pool=pool, tasks=tasks)
            for (pool, beneficiary), tasks in self.stopping.items()
            if beneficiary is None and pool in pools
        )
        if details:
            yield Reason(ReasonCode.DRAINING, details)

    def _outranked(self, group: GroupState) -> Iterator[Reason]:
        details = self.positions.ahead(group)
        if details:
            yield Reason(ReasonCode.OUTRANKED, details)


def _stopping(compiled: CompiledSnapshot) -> dict[tuple[Id, Id | None], tuple[Id, ...]]:
    """Stopping tasks by pool and by the task that gets their capacity."""
    found: dict[tuple[Id, Id | None], list[Id]] = {}
    for group in compiled.snapshot.running:
        if group.is_stopping:
            for running_task in group.tasks:
                found.setdefault((group.pool, running_task.stops_for), []).append(running_task.task)
    return {key: tuple(sorted(tasks)) for key, tasks in found.items()}


def _first_holders(compiled: CompiledSnapshot, holds: Holds) -> dict[int, tuple[Id, Id]]:
    """By pool: policy and task of the first that holds something there."""
    groups = {group.index: group for group in compiled.groups}
    found: dict[int, tuple[Id, Id]] = {}
    for (index, number), (pool, _) in holds.own.items():
        group = groups[index]
        found.setdefault(pool, (group.queue.policy, group.head(number).task))
    return found
