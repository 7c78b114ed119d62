"""A slow, plain reading of docs/allocation.md, to check plans against. It shares no code with the
engine but the data of snapshot and plan: everything is added up again from those two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from apps.allocation.engine.model.plan import Plan
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import (
    Id,
    MemberPlacement,
    NodeSnapshot,
    PoolSnapshot,
    PreemptionMode,
    ProfileSnapshot,
    QueuedGroup,
    QueuedTask,
    QueueingMode,
    QueueSnapshot,
    RunningGroup,
    Snapshot,
)

OPTIONAL = ("cpu", "memory_mb", "slot")
FAR = 1 << 60
ServingKey = tuple[int, int, int, int, int, Id]
# ("usage", policy, key), ("fixed", policy, key), ("counted", policy, key),
# ("user", policy, user, key), ("pool", pool, key), ("node", node, key), ("gpu", node, index)
Account = tuple[object, ...]
CAPACITY = frozenset({"pool", "node", "gpu"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One task that holds capacity, wherever it comes from."""

    task: Id
    policy: Id
    profile: Id
    pool: Id
    request: Quantities
    replicas: int
    priority: int
    is_preemptible: bool
    user: Id | None
    is_exempt: bool
    members: tuple[MemberPlacement, ...]
    submitted_us: int
    # Of running work; -1: placed by the plan.
    started_us: int = -1
    checkpointed_us: int | None = None
    preemptions: int = 0
    queue: Id | None = None
    is_stopping: bool = False
    stops_for: Id | None = None

    def total(self, key: str) -> int:
        return self.request.get(key) * self.replicas


class World:
    """The state after a plan: `entries` hold capacity, the heads that are not `placed` wait."""

    def __init__(self, snapshot: Snapshot, entries: Iterable[Entry], placed: set[Id]) -> None:
        self.snapshot = snapshot
        self.entries = list(entries)
        self.placed = placed
        self.pools = {one.id: one for one in snapshot.pools}
        self.profiles = {one.id: one for one in snapshot.profiles}
        self.policies = {one.id: one for one in snapshot.policies}
        self.queues = {one.id: one for one in snapshot.queues}
        self._sums: dict[Account, int] | None = None
        self._chains: dict[Id, list[Id]] = {}
        self._reserved: dict[Id, dict[str, int]] = {}

    def without(self, *tasks: Id) -> World:
        """The same with those tasks gone."""
        left = [entry for entry in self.entries if entry.task not in tasks]
        return World(self.snapshot, left, self.placed - set(tasks))

    def with_entries(self, *entries: Entry) -> World:
        """The same with those tasks in their old place."""
        return World(self.snapshot, [*self.entries, *entries], self.placed)

    # What is held

    def sums(self) -> dict[Account, int]:
        """Everything held, per account; victims that drain and their taker count once."""
        if self._sums is None:
            self._sums = {}
            by_task = {entry.task: entry for entry in self.entries}
            victims: dict[Id, list[Entry]] = {}
            roots = []
            for entry in self.entries:
                if entry.is_stopping and entry.stops_for in by_task:
                    victims.setdefault(entry.stops_for, []).append(entry)
                else:
                    roots.append(entry)
            for entry in roots:
                for account, amount in self._held(entry, victims).items():
                    self._sums[account] = self._sums.get(account, 0) + amount
        return self._sums

    def _held(self, entry: Entry, victims: dict[Id, list[Entry]]) -> dict[Account, int]:
        below: dict[Account, int] = {}
        for victim in victims.get(entry.task, []):
            for account, amount in self._held(victim, victims).items():
                below[account] = below.get(account, 0) + amount
        own: dict[Account, int] = {}
        for account, amount in self._accounts(entry):
            own[account] = own.get(account, 0) + amount
        # What policies use is the taker's already; capacity is held until the victims are gone.
        capacities = {one: amount for one, amount in below.items() if one[0] in CAPACITY}
        return {one: max(own.get(one, 0), capacities.get(one, 0)) for one in {**capacities, **own}}

    def _accounts(self, entry: Entry) -> Iterator[tuple[Account, int]]:
        for key, each in entry.request.items():
            amount = each * entry.replicas
            yield ("pool", entry.pool, key), amount
            for policy in self.chain(entry.policy):
                yield ("usage", policy, key), amount
                if not entry.is_preemptible:
                    yield ("fixed", policy, key), amount
                if not (entry.is_exempt and policy == entry.policy):
                    yield ("counted", policy, key), amount
                yield ("user", policy, entry.user, key), amount
            for member in entry.members:
                yield ("node", member.node, key), each
        for member in entry.members:
            for share in member.devices:
                yield ("gpu", member.node, share.index), share.milli

    # Policies

    def chain(self, policy: Id) -> list[Id]:
        """From the top down."""
        if policy not in self._chains:
            found = [policy]
            while (parent := self.policies[found[0]].parent) is not None:
                found.insert(0, parent)
            self._chains[policy] = found
        return self._chains[policy]

    def reserved(self, policy: Id) -> dict[str, int]:
        if policy not in self._reserved:
            found: dict[str, int] = {}
            for child in self.policies.values():
                if child.parent == policy:
                    for key, amount in self.reserved(child.id).items():
                        found[key] = found.get(key, 0) + amount
            self._reserved[policy] = found | self.policies[policy].reserved.as_dict()
        return self._reserved[policy]

    def usage(self, policy: Id, key: str) -> int:
        return self.sums().get(("usage", policy, key), 0)

    def fixed(self, policy: Id, key: str) -> int:
        return self.sums().get(("fixed", policy, key), 0)

    def counted(self, policy: Id, key: str) -> int:
        return self.sums().get(("counted", policy, key), 0)

    def used_by(self, user: Id | None, policy: Id, key: str) -> int:
        return self.sums().get(("user", policy, user, key), 0)

    # Capacity

    def free(self, pool: PoolSnapshot, key: str) -> int | None:
        """None: the pool does not count the key."""
        if key not in pool.capacity and key in OPTIONAL:
            return None
        return pool.capacity.get(key) - self.sums().get(("pool", pool.id, key), 0)

    def node_free(self, node: NodeSnapshot, key: str) -> int | None:
        if key not in node.capacity and key in OPTIONAL:
            return None
        return node.capacity.get(key) - self.sums().get(("node", node.id, key), 0)

    def gpus_free(self, node: NodeSnapshot) -> list[int]:
        return [
            0
            if index in node.unavailable_gpus
            else 1000 - self.sums().get(("gpu", node.id, index), 0)
            for index in range(node.capacity.get("gpu") // 1000)
        ]

    # Questions about a waiting group

    def policy_of(self, queued: QueuedGroup) -> Id:
        return self.queues[queued.queue].policy

    def profile_of(self, queued: QueuedGroup) -> ProfileSnapshot:
        return self.profiles[self.queues[queued.queue].profile]

    def covers(self, policy: Id, queued: QueuedGroup) -> bool:
        used = self.usage if queued.is_preemptible else self.fixed
        reserved = self.reserved(policy)
        named = [key for key, amount in queued.request.items() if amount > 0 and key in reserved]
        return bool(named) and all(
            used(policy, key) + queued.request.get(key) * queued.replicas <= reserved[key]
            for key in named
        )

    def tier(self, queued: QueuedGroup) -> tuple[bool, ...] | None:
        """True: not covered; comparable, the less the better. None: not admissible now."""
        depth = max(len(self.chain(policy)) for policy in self.policies)
        chain = self.chain(self.policy_of(queued))
        levels = [not self.covers(policy, queued) for policy in chain]
        if queued.can_exceed_limit and queued.is_preemptible:
            levels = [True]
        if not queued.is_preemptible and any(levels):
            return None
        levels += [levels[-1]] * (depth - len(levels))
        if levels[0] and not self.queues[queued.queue].allows_over_quota:
            return None
        return tuple(levels)

    def within_limits(self, queued: QueuedGroup) -> bool:
        return not any(True for _ in self.short_limits(queued))

    def short_limits(self, queued: QueuedGroup) -> Iterator[tuple[Id, str, bool]]:
        """Policy and key of each limit that one more task would pass; True: per user."""
        own = self.policy_of(queued)
        is_exempt = queued.can_exceed_limit and queued.is_preemptible
        for policy in self.chain(own):
            facts = self.policies[policy]
            for key, amount in queued.request.items():
                if amount <= 0:
                    continue
                more = amount * queued.replicas
                counted = self.counted(policy, key) + more
                if not (is_exempt and policy == own) and counted > facts.limit.get(key, FAR):
                    yield policy, key, False
                used = self.used_by(queued.user, policy, key) + more
                if queued.user is not None and used > facts.user_limit.get(key, FAR):
                    yield policy, key, True

    def is_excluded(self, queued: QueuedGroup) -> bool:
        chain = [self.policies[policy] for policy in self.chain(self.policy_of(queued))]
        return self.queues[queued.queue].is_paused or any(
            policy.is_paused or policy.is_spent for policy in chain
        )

    def is_strict(self, policy: Id) -> bool:
        queueing = self.policies[policy].queueing or self.snapshot.settings.queueing
        return queueing is QueueingMode.STRICT

    def waiting(self, queued: QueuedGroup) -> list[QueuedTask]:
        return [head for head in queued.heads if head.task not in self.placed]

    def is_behind(self, queued: QueuedGroup, head: QueuedTask, pool: Id) -> bool:
        """Whether strict order lets it not start in `pool` yet."""
        if not self.is_strict(self.policy_of(queued)):
            return False
        mine = self.strict_key(queued, head)
        for other in self.snapshot.queued_groups:
            if self.policy_of(other) != self.policy_of(queued) or self.is_excluded(other):
                continue
            if pool not in self.open_pools(other):
                continue
            if any(self.strict_key(other, one) < mine for one in self.waiting(other)):
                return True
        return False

    def strict_key(self, queued: QueuedGroup, head: QueuedTask) -> tuple[int, int, Id]:
        return (-queued.priority, head.submitted_us, head.task)

    def open_pools(self, queued: QueuedGroup) -> list[Id]:
        return [
            pool
            for pool in self.profile_of(queued).pools
            if self.pools[pool].has_server and not self.pools[pool].is_paused
        ]

    def level(self, pool: Id) -> PreemptionMode:
        return self.pools[pool].preemption or self.snapshot.settings.preemption

    def serving_key(self, queued: QueuedGroup, head: QueuedTask, pool: Id) -> ServingKey:
        profile = self.profile_of(queued)
        return (
            self.pools[pool].profiles.index(profile.id),
            profile.policies.index(self.policy_of(queued)),
            -queued.priority,
            1 if queued.is_preemptible else 0,
            head.submitted_us,
            head.task,
        )

    def fits(
        self, queued: QueuedGroup, pool: PoolSnapshot, held: dict[str, int] | None = None
    ) -> bool:
        """Whether one more task of the group fits into the pool, next to what is `held` there."""
        held = held or {}
        for key, amount in queued.request.items():
            free = self.free(pool, key)
            if free is None or amount <= 0:
                continue
            if free - held.get(key, 0) < amount * queued.replicas:
                return False
        if not pool.nodes:
            return True
        models = self.profile_of(queued).models
        return (
            sum(
                self._members_on(pool, node, queued)
                for node in pool.nodes
                if node.is_schedulable and (not models or node.model in models)
            )
            >= queued.replicas
        )

    def _members_on(self, pool: PoolSnapshot, node: NodeSnapshot, queued: QueuedGroup) -> int:
        found = queued.replicas
        listed = {key for one in pool.nodes for key in one.capacity}
        for key, amount in queued.request.items():
            if amount <= 0:
                continue
            if key == "gpu":
                gpus = self.gpus_free(node)
                if amount < 1000:
                    found = min(found, sum(max(one, 0) // amount for one in gpus))
                else:
                    whole = sum(1 for one in gpus if one == 1000)
                    found = min(found, whole // (amount // 1000))
            elif key in listed:
                free = self.node_free(node, key)
                if free is not None:
                    found = min(found, max(free, 0) // amount)
        return found


def running_entries(snapshot: Snapshot) -> list[Entry]:
    queues = {(queue.policy, queue.profile): queue for queue in snapshot.queues}
    return [
        Entry(
            task=running_task.task,
            policy=group.policy,
            profile=group.profile,
            pool=group.pool,
            request=group.request,
            replicas=group.replicas,
            priority=group.priority,
            is_preemptible=group.is_preemptible,
            user=group.user,
            is_exempt=group.can_exceed_limit and group.is_preemptible,
            members=running_task.members,
            submitted_us=running_task.submitted_us,
            started_us=running_task.started_us,
            checkpointed_us=running_task.checkpointed_us,
            preemptions=running_task.preemptions,
            queue=_queue_of(group, queues),
            is_stopping=group.is_stopping,
            stops_for=running_task.stops_for,
        )
        for group in snapshot.running
        for running_task in group.tasks
    ]


def _queue_of(group: RunningGroup, queues: dict[tuple[Id, Id], QueueSnapshot]) -> Id | None:
    found = queues.get((group.policy, group.profile))
    return group.queue if group.queue is not None else found.id if found else None


def world_after(snapshot: Snapshot, plan: Plan | None) -> World:
    """The state once the plan is carried out and its victims are gone; None: as it is."""
    gone = {one.task for one in plan.preempted} if plan else set()
    moved = {one.task: one.members for one in plan.moved} if plan else {}
    entries = [
        replace(entry, members=moved.get(entry.task, entry.members))
        for entry in running_entries(snapshot)
        if entry.task not in gone
    ]
    queued_groups = {
        head.task: (queued, head) for queued in snapshot.queued_groups for head in queued.heads
    }
    queues = {queue.id: queue for queue in snapshot.queues}
    for place in plan.placed if plan else ():
        queued, head = queued_groups[place.task]
        entries.append(
            Entry(
                task=place.task,
                policy=queues[queued.queue].policy,
                profile=queues[queued.queue].profile,
                pool=place.pool,
                request=queued.request,
                replicas=queued.replicas,
                priority=queued.priority,
                is_preemptible=queued.is_preemptible,
                user=queued.user,
                is_exempt=queued.can_exceed_limit and queued.is_preemptible,
                members=place.members,
                submitted_us=head.submitted_us,
                queue=queued.queue,
            )
        )
    return World(snapshot, entries, {one.task for one in plan.placed} if plan else set())
