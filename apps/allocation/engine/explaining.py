"""Why what still waits waits: one dominant reason for each run, then the rest, with numbers."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from apps.allocation.engine.compiled import UNCOUNTED, Compiled, Work
from apps.allocation.engine.flocks import find_protected
from apps.allocation.engine.holds import Holds
from apps.allocation.engine.lines import Lines
from apps.allocation.engine.plan import Wait
from apps.allocation.engine.prey import Rights
from apps.allocation.engine.quantities import GPU
from apps.allocation.engine.reasons import Code, Detail, Reason
from apps.allocation.engine.rooms import Room
from apps.allocation.engine.snapshot import Id, Run
from apps.allocation.engine.standing import covers, is_over_quota, standing_of, within_limits
from apps.allocation.engine.working import Pass

_task_of = attrgetter("task")


def explain(state: Pass, holds: Holds | None, rights: Rights) -> tuple[Wait, ...]:
    """A `Wait` for every run of which something is left, in the order of the snapshot's runs."""
    explaining = _Explaining(state, holds, rights)
    waits = [explaining.wait(work) for work in state.compiled.works if work.run.count > work.taken]
    waits += [_paused(state.compiled, index, run) for index, run in state.compiled.paused]
    waits.sort(key=lambda wait: wait.run)
    return tuple(waits)


def all_disabled(compiled: Compiled) -> tuple[Wait, ...]:
    """What a pass answers while resource management is off."""
    reasons = (Reason(Code.DISABLED),)
    runs = enumerate(compiled.snapshot.runs)
    return tuple(_whole_run(index, run, reasons) for index, run in runs)


def _whole_run(index: int, run: Run, reasons: tuple[Reason, ...]) -> Wait:
    tasks = tuple(head.task for head in run.heads)
    return Wait(index, run.queue, tasks, run.count, 1, reasons)


def _paused(compiled: Compiled, index: int, run: Run) -> Wait:
    queue = next(one for one in compiled.snapshot.queues if one.id == run.queue)
    chain = compiled.chains[compiled.policy_index[queue.policy]]
    details = [Detail(queue=queue.id)] if queue.is_paused else []
    details += [
        Detail(policy=compiled.policies[one].id)
        for one in reversed(chain)
        if compiled.policies[one].is_paused
    ]
    return _whole_run(index, run, (Reason(Code.PAUSED, tuple(details)),))


class _Explaining:
    def __init__(self, state: Pass, holds: Holds | None, rights: Rights) -> None:
        self.state = state
        self.rights = rights
        self.protected = find_protected(state.compiled)
        self.compiled = state.compiled
        self.holds = holds
        self.lines = Lines(state)
        self.stopping = _stopping(self.compiled)
        self.shorts: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        self.shortages: dict[tuple[int, int], Detail] = {}
        self.capacities: dict[tuple[int, tuple[int, ...]], Reason] = {}
        self.holders: dict[int, tuple[Id, Id]] = {}
        if holds is not None:
            self.holders = _first_holders(self.compiled, holds)

    def wait(self, work: Work) -> Wait:
        place = self.lines.place(work)
        return Wait(
            run=work.index,
            queue=work.queue.id,
            tasks=tuple(map(_task_of, work.run.heads[work.taken :])),
            count=work.run.count - work.taken,
            place=place,
            reasons=tuple(self._reasons(work, place)),
        )

    def _reasons(self, work: Work, place: int) -> list[Reason]:
        """The dominant one first."""
        if not work.pools:
            return list(self._closed(work))
        if work.waiting > 0:
            found = [*self._drained_for(work), *self._rights(work), *self._room(work)]
            found += self._outranked(work)
        else:
            found = list(self._rights(work))
        if place > 1 or not found:
            found.append(Reason(Code.BEHIND, (Detail(queue=work.queue.id, place=place),)))
        if len(work.pools) < len(work.linked_pools):
            found += self._closed(work)
        return found

    def _closed(self, work: Work) -> Iterator[Reason]:
        """Pools that take nothing now, or no pool at all."""
        if not work.linked_pools:
            yield Reason(Code.NO_POOL)
            return
        pools = [self.compiled.pools[one] for one in work.linked_pools]
        paused = tuple(Detail(pool=pool.id) for pool in pools if pool.is_paused)
        if paused:
            yield Reason(Code.PAUSED, paused)
        unserved = tuple(
            Detail(pool=pool.id) for pool in pools if not pool.has_server and not pool.is_paused
        )
        if unserved:
            yield Reason(Code.NO_SERVER, unserved)

    def _drained_for(self, work: Work) -> Iterator[Reason]:
        """Work that is stopping so that this very task may start."""
        if not self.stopping:
            return
        task = work.head(work.taken).task
        details = tuple(
            Detail(pool=pool, tasks=tasks)
            for (pool, taker), tasks in self.stopping.items()
            if taker == task
        )
        if details:
            yield Reason(Code.DRAINING, details)

    def _rights(self, work: Work) -> Iterator[Reason]:
        if not within_limits(self.state.ledger, work):
            yield Reason(Code.LIMIT, tuple(self._limits(work)))
        if not work.run.is_preemptible:
            short = tuple(self._uncovered(work, work.chain))
            if short:
                yield Reason(Code.NEEDS_RESERVATION, short)
        elif not work.queue.allows_over_quota:
            short = tuple(self._uncovered(work, work.chain[:1]))
            if short or work.has_exceeded:
                yield Reason(Code.OVER_QUOTA_NOT_ALLOWED, short)

    def _limits(self, work: Work) -> Iterator[Detail]:
        ledger = self.state.ledger
        user = work.run.user
        for policy in reversed(work.chain):
            id_ = self.compiled.policies[policy].id
            limits = self.compiled.limits[policy]
            if work.has_exceeded and policy == work.policy:
                limits = {}
            user_limits = self.compiled.user_limits[policy] if user is not None else {}
            for key, amount in work.shape.amounts:
                name = self.compiled.keys[key]
                if key in limits:
                    used = ledger.counted(policy, key)
                    if used + amount > limits[key]:
                        yield Detail(
                            policy=id_, key=name, usage=used, limit=limits[key], needed=amount
                        )
                if key in user_limits and user is not None:
                    used = ledger.user_usage(policy, user)[key]
                    if used + amount > user_limits[key]:
                        yield Detail(
                            policy=id_,
                            user=user,
                            key=name,
                            usage=used,
                            limit=user_limits[key],
                            needed=amount,
                        )

    def _uncovered(self, work: Work, chain: tuple[int, ...]) -> Iterator[Detail]:
        ledger = self.state.ledger
        for policy in reversed(chain):
            if covers(ledger, policy, work):
                continue
            id_ = self.compiled.policies[policy].id
            reserved = self.compiled.reserved[policy]
            used = (ledger.usage if work.run.is_preemptible else ledger.fixed)[policy]
            named = [one for one in work.shape.amounts if one[0] in reserved]
            # Where the reservation names nothing of it, what is asked for is not reserved at all.
            for key, amount in named or work.shape.amounts[:1]:
                limit = reserved.get(key, 0)
                if not named or used[key] + amount > limit:
                    yield Detail(
                        policy=id_,
                        key=self.compiled.keys[key],
                        usage=used[key],
                        limit=limit,
                        needed=amount,
                    )

    def _room(self, work: Work) -> Iterator[Reason]:
        """Per pool of the list: no room, room that is held, or strict order in front of it."""
        short = self._short_pools(work)
        if len(short) < len(work.pools):
            yield from self._not_let_in(work, [one for one in work.pools if one not in short])
        if short:
            yield from self._protected(work, short)
            yield self._capacity(work, short)
            yield from self._draining(short)

    def _short_pools(self, work: Work) -> tuple[int, ...]:
        """Pools without room, the same for all work of one shape and list of pools."""
        name = (work.shape.number, work.pools)
        found = self.shorts.get(name)
        if found is None:
            rooms = self.state.rooms
            found = tuple([one for one in work.pools if not rooms[one].bound(work.shape)])
            self.shorts[name] = found
        return found

    def _not_let_in(self, work: Work, pools: list[int]) -> Iterator[Reason]:
        """What keeps it out of pools that have room for it."""
        blocked = self.state.blocked_pools(work, work.taken, {})
        behind = [one for one in pools if one in blocked]
        held = [self._held(work, one) for one in pools if one not in blocked]
        if behind:
            details = dict.fromkeys(self.lines.strictly_behind(work, one) for one in behind)
            yield Reason(Code.BEHIND, tuple(details))
        if any(held):
            yield Reason(Code.HELD, tuple(detail for detail in held if detail))

    def _protected(self, work: Work, pools: tuple[int, ...]) -> Iterator[Reason]:
        """Work that it has a right to, but that may not be stopped yet."""
        standing = standing_of(self.state.ledger, work) if self.protected else None
        if standing is None:
            return
        is_over = is_over_quota(standing, self.compiled.depth)
        details = []
        for pool in pools:
            level = self.compiled.levels[pool]
            safe = [
                one
                for one in self.protected.get(pool, ())
                if one.flock.policy != work.policy
                and self.rights.over_others(work, one.flock, level, is_over=is_over) is not None
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
            yield Reason(Code.PROTECTED, tuple(details))

    def _capacity(self, work: Work, short: tuple[int, ...]) -> Reason:
        """The same for all work of one shape that the same pools have no room for."""
        found = self.capacities.get((work.shape.number, short))
        if found is None:
            found = Reason(Code.CAPACITY, tuple(self._shortage(work, one) for one in short))
            self.capacities[work.shape.number, short] = found
        return found

    def _shortage(self, work: Work, pool: int) -> Detail:
        """Needed and free, the same for all work of one shape."""
        found = self.shortages.get((pool, work.shape.number))
        if found is None:
            found = self._find_shortage(work, pool)
            self.shortages[pool, work.shape.number] = found
        return found

    def _find_shortage(self, work: Work, pool: int) -> Detail:
        room = self.state.rooms[pool]
        facts = self.compiled.pools[pool]
        largest = None
        for key, amount in work.shape.amounts:
            if room.free[key] < amount:
                if self.state.sites[pool] is not None:
                    largest = self._largest(work, room, key)
                return Detail(
                    pool=facts.id,
                    key=self.compiled.keys[key],
                    needed=amount,
                    free=max(room.free[key], 0),
                    limit=facts.capacity.get(self.compiled.keys[key]),
                    largest=largest,
                )
        key, amount = self._short_on_nodes(work, pool)
        name = self.compiled.keys[key]
        if room.nodes is not None:
            largest = self._largest(work, room, key)
        return Detail(
            pool=facts.id,
            key=name,
            needed=amount,
            free=max(room.free[key], 0),
            limit=facts.capacity.get(name),
            largest=largest,
        )

    def _largest(self, work: Work, room: Room, key: int) -> int:
        """The most of a key that one node could give, which is nothing where the pool is full."""
        free = room.free[key]
        if free <= 0 or room.nodes is None:
            return 0
        return min(free, room.nodes.largest(self.compiled.keys[key], work.shape))

    def _short_on_nodes(self, work: Work, pool: int) -> tuple[int, int]:
        """The key, and a member's amount of it, that no node has; GPUs when it is a mixture."""
        nodes = self.state.rooms[pool].nodes
        member = sorted(work.shape.member, key=lambda one: self.compiled.keys[one[0]] != GPU)
        for key, amount in member:
            if nodes is not None and nodes.largest(self.compiled.keys[key], work.shape) < amount:
                return key, amount
        # Who asks for nothing still needs a node that takes work.
        return member[0] if member else (self.compiled.key_index[GPU], 0)

    def _held(self, work: Work, pool: int) -> Detail | None:
        if self.holds is None or pool not in self.holds.total:
            return None
        standing = standing_of(self.state.ledger, work)
        if standing is None or not is_over_quota(standing, self.compiled.depth):
            return None
        if self.state.front(pool, self.holds).take(work, work.taken) is not None:
            return None
        free = self.state.rooms[pool].free
        total = self.holds.total[pool]
        key, amount = next(
            (one for one in work.shape.amounts if free[one[0]] - total[one[0]] < one[1]),
            work.shape.amounts[0],
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
        """Work that stops in those pools without a taker: its room comes back soon."""
        if not self.stopping:
            return
        pools = {self.compiled.pools[one].id for one in short}
        details = tuple(
            Detail(pool=pool, tasks=tasks)
            for (pool, taker), tasks in self.stopping.items()
            if taker is None and pool in pools
        )
        if details:
            yield Reason(Code.DRAINING, details)

    def _outranked(self, work: Work) -> Iterator[Reason]:
        details = self.lines.ahead(work)
        if details:
            yield Reason(Code.OUTRANKED, details)


def _stopping(compiled: Compiled) -> dict[tuple[Id, Id | None], tuple[Id, ...]]:
    """Stopping tasks by pool and by the task that takes their room."""
    found: dict[tuple[Id, Id | None], list[Id]] = {}
    for group in compiled.snapshot.running:
        if group.is_stopping:
            for held in group.tasks:
                found.setdefault((group.pool, held.stops_for), []).append(held.task)
    return {key: tuple(sorted(tasks)) for key, tasks in found.items()}


def _first_holders(compiled: Compiled, holds: Holds) -> dict[int, tuple[Id, Id]]:
    """By pool: policy and task of the first that holds something there."""
    works = {work.index: work for work in compiled.works}
    found: dict[int, tuple[Id, Id]] = {}
    for (index, number), (pool, _) in holds.own.items():
        work = works[index]
        found.setdefault(pool, (work.queue.policy, work.head(number).task))
    return found
