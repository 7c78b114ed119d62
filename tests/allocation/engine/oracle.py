"""A slow, plain reading of docs/allocation.md, to check plans against. It shares no code with the
engine but the data of snapshot and plan: everything is counted anew for each question.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from apps.allocation.engine.plan import Plan
from apps.allocation.engine.quantities import Quantities
from apps.allocation.engine.snapshot import (
    Head,
    Id,
    Member,
    Node,
    Policy,
    Pool,
    Preemption,
    Profile,
    Queue,
    Queueing,
    Run,
    Snapshot,
)

OPTIONAL = ("cpu", "memory_mb", "slot")
FAR = 1 << 60
ServingKey = tuple[int, int, int, int, int, Id]


@dataclass(frozen=True)
class Entry:
    """One task that holds room, wherever it comes from."""

    task: Id
    policy: Id
    pool: Id
    request: Quantities
    replicas: int
    is_preemptible: bool
    user: Id | None
    is_exempt: bool
    members: tuple[Member, ...]

    def total(self, key: str) -> int:
        return self.request.get(key) * self.replicas


@dataclass
class World:
    """The state after a plan: `entries` hold room, the other heads wait."""

    snapshot: Snapshot
    entries: list[Entry]
    placed: set[Id]
    pools: dict[Id, Pool] = field(default_factory=dict)
    profiles: dict[Id, Profile] = field(default_factory=dict)
    policies: dict[Id, Policy] = field(default_factory=dict)
    queues: dict[Id, Queue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pools = {one.id: one for one in self.snapshot.pools}
        self.profiles = {one.id: one for one in self.snapshot.profiles}
        self.policies = {one.id: one for one in self.snapshot.policies}
        self.queues = {one.id: one for one in self.snapshot.queues}

    def chain(self, policy: Id) -> list[Id]:
        """From the top down."""
        found = [policy]
        while (parent := self.policies[found[0]].parent) is not None:
            found.insert(0, parent)
        return found

    def below(self, policy: Id) -> list[Entry]:
        return [entry for entry in self.entries if policy in self.chain(entry.policy)]

    def reserved(self, policy: Id) -> dict[str, int]:
        found: dict[str, int] = {}
        for child in self.policies.values():
            if child.parent == policy:
                for key, amount in self.reserved(child.id).items():
                    found[key] = found.get(key, 0) + amount
        return found | self.policies[policy].reserved.as_dict()

    def usage(self, policy: Id, key: str) -> int:
        return sum(entry.total(key) for entry in self.below(policy))

    def fixed(self, policy: Id, key: str) -> int:
        return sum(entry.total(key) for entry in self.below(policy) if not entry.is_preemptible)

    def counted(self, policy: Id, key: str) -> int:
        return sum(
            entry.total(key)
            for entry in self.below(policy)
            if not (entry.is_exempt and entry.policy == policy)
        )

    def used_by(self, user: Id | None, policy: Id, key: str) -> int:
        return sum(entry.total(key) for entry in self.below(policy) if entry.user == user)

    def free(self, pool: Pool, key: str) -> int | None:
        """None: the pool does not count the key."""
        if key not in pool.capacity and key in OPTIONAL:
            return None
        used = sum(entry.total(key) for entry in self.entries if entry.pool == pool.id)
        return pool.capacity.get(key) - used

    def node_free(self, node: Node, key: str) -> int | None:
        if key not in node.capacity and key in OPTIONAL:
            return None
        used = sum(
            entry.request.get(key)
            for entry in self.entries
            for member in entry.members
            if member.node == node.id
        )
        return node.capacity.get(key) - used

    def gpus_free(self, node: Node) -> list[int]:
        found = []
        for index in range(node.capacity.get("gpu") // 1000):
            used = sum(
                share.milli
                for entry in self.entries
                for member in entry.members
                for share in member.devices
                if member.node == node.id and share.index == index
            )
            found.append(0 if index in node.unavailable_gpus else 1000 - used)
        return found

    # Questions about a waiting run

    def policy_of(self, run: Run) -> Id:
        return self.queues[run.queue].policy

    def profile_of(self, run: Run) -> Profile:
        return self.profiles[self.queues[run.queue].profile]

    def covers(self, policy: Id, run: Run) -> bool:
        reserved = self.reserved(policy)
        asked = {key: amount * run.replicas for key, amount in run.request.items() if amount > 0}
        named = {key: amount for key, amount in asked.items() if key in reserved}
        used = self.usage if run.is_preemptible else self.fixed
        return bool(named) and all(
            used(policy, key) + amount <= reserved[key] for key, amount in named.items()
        )

    def standing(self, run: Run) -> tuple[bool, ...] | None:
        """True: not covered; comparable, the less the better. None: not admissible now."""
        depth = max(len(self.chain(policy)) for policy in self.policies)
        chain = self.chain(self.policy_of(run))
        levels = [not self.covers(policy, run) for policy in chain]
        if run.can_exceed_limit and run.is_preemptible:
            levels = [True]
        if not run.is_preemptible and any(levels):
            return None
        levels += [levels[-1]] * (depth - len(levels))
        if levels[0] and not self.queues[run.queue].allows_over_quota:
            return None
        return tuple(levels)

    def within_limits(self, run: Run) -> bool:
        own = self.policy_of(run)
        is_exempt = run.can_exceed_limit and run.is_preemptible
        for policy in self.chain(own):
            facts = self.policies[policy]
            for key, amount in run.request.items():
                if amount <= 0:
                    continue
                more = amount * run.replicas
                counted = self.counted(policy, key)
                used = self.used_by(run.user, policy, key)
                if not (is_exempt and policy == own) and counted + more > facts.limit.get(key, FAR):
                    return False
                if run.user is not None and used + more > facts.user_limit.get(key, FAR):
                    return False
        return True

    def is_paused(self, run: Run) -> bool:
        chain = self.chain(self.policy_of(run))
        return self.queues[run.queue].is_paused or any(
            self.policies[policy].is_paused for policy in chain
        )

    def is_strict(self, policy: Id) -> bool:
        queueing = self.policies[policy].queueing or self.snapshot.settings.queueing
        return queueing is Queueing.STRICT

    def waiting(self, run: Run) -> list[Head]:
        return [head for head in run.heads if head.task not in self.placed]

    def is_behind(self, run: Run, head: Head, pool: Id) -> bool:
        """Whether strict order lets it not start in `pool` yet."""
        if not self.is_strict(self.policy_of(run)):
            return False
        mine = self.strict_key(run, head)
        for other in self.snapshot.runs:
            if self.policy_of(other) != self.policy_of(run) or self.is_paused(other):
                continue
            if pool not in self.open_pools(other):
                continue
            for one in self.waiting(other):
                if self.strict_key(other, one) < mine:
                    return True
        return False

    def strict_key(self, run: Run, head: Head) -> tuple[int, int, Id]:
        return (-run.priority, head.submitted_us, head.task)

    def open_pools(self, run: Run) -> list[Id]:
        return [
            pool
            for pool in self.profile_of(run).pools
            if self.pools[pool].has_server and not self.pools[pool].is_paused
        ]

    def serving_key(self, run: Run, head: Head, pool: Id) -> ServingKey:
        profile = self.profile_of(run)
        return (
            self.pools[pool].profiles.index(profile.id),
            profile.policies.index(self.policy_of(run)),
            -run.priority,
            1 if run.is_preemptible else 0,
            head.submitted_us,
            head.task,
        )

    def fits(self, run: Run, pool: Pool, held: dict[str, int]) -> bool:
        for key, amount in run.request.items():
            free = self.free(pool, key)
            if free is None or amount <= 0:
                continue
            if free - held.get(key, 0) < amount * run.replicas:
                return False
        if not pool.nodes:
            return True
        models = self.profile_of(run).models
        return (
            sum(
                self._members_on(pool, node, run)
                for node in pool.nodes
                if node.is_schedulable and (not models or node.model in models)
            )
            >= run.replicas
        )

    def _members_on(self, pool: Pool, node: Node, run: Run) -> int:
        found = run.replicas
        listed = {key for one in pool.nodes for key in one.capacity}
        for key, amount in run.request.items():
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


def world_after(snapshot: Snapshot, plan: Plan | None) -> World:
    """The state once the plan is carried out and its victims are gone; None: as it is."""
    gone = {one.task for one in plan.preempted} if plan else set()
    moved = {one.task: one.members for one in plan.moved} if plan else {}
    entries = [
        Entry(
            task=held.task,
            policy=group.policy,
            pool=group.pool,
            request=group.request,
            replicas=group.replicas,
            is_preemptible=group.is_preemptible,
            user=group.user,
            is_exempt=group.can_exceed_limit and group.is_preemptible,
            members=moved.get(held.task, held.members),
        )
        for group in snapshot.running
        for held in group.tasks
        if held.task not in gone
    ]
    runs = {head.task: run for run in snapshot.runs for head in run.heads}
    queues = {queue.id: queue for queue in snapshot.queues}
    places = plan.placed if plan else ()
    for place in places:
        run = runs[place.task]
        entries.append(
            Entry(
                task=place.task,
                policy=queues[run.queue].policy,
                pool=place.pool,
                request=run.request,
                replicas=run.replicas,
                is_preemptible=run.is_preemptible,
                user=run.user,
                is_exempt=run.can_exceed_limit and run.is_preemptible,
                members=place.members,
            )
        )
    return World(snapshot, entries, {place.task for place in places})


def holds_of(world: World) -> dict[Id, list[tuple[Id, dict[str, int]]]]:
    """By pool: waiting task and what it holds per key, in the order across pools."""
    empty = World(world.snapshot, [], set())
    line = _across_pools(world)
    found: dict[Id, list[tuple[Id, dict[str, int]]]] = {}
    unused: dict[tuple[Id, str], int] = {}
    for key_of, run in line:
        chain = world.chain(world.policy_of(run))
        fitting = [
            pool for pool in world.profile_of(run).pools if empty.fits(run, world.pools[pool], {})
        ]
        if not fitting or not _alone_reserved(world, run) or not world.within_limits(run):
            continue
        pool = world.pools[fitting[0]]
        if (pool.preemption or world.snapshot.settings.preemption) is not Preemption.NONE:
            continue
        part: dict[str, int] = {}
        for key, amount in run.request.items():
            free = world.free(pool, key)
            naming = [policy for policy in chain if key in world.reserved(policy)]
            if amount <= 0 or free is None or not naming:
                continue
            others = sum(one.get(key, 0) for _, one in found.get(pool.id, []))
            left = min(
                unused.get((policy, key), world.reserved(policy)[key] - world.usage(policy, key))
                for policy in naming
            )
            part[key] = max(0, min(amount * run.replicas, free - others, left))
            for policy in naming:
                before = unused.get(
                    (policy, key), world.reserved(policy)[key] - world.usage(policy, key)
                )
                unused[policy, key] = before - part[key]
        found.setdefault(pool.id, []).append((key_of[-1], part))
    return found


def _across_pools(world: World) -> list[tuple[ServingKey, Run]]:
    line = []
    for run in world.snapshot.runs:
        pools = world.profile_of(run).pools
        if pools and not world.is_paused(run):
            line += [(world.serving_key(run, one, pools[0]), run) for one in world.waiting(run)]
    return sorted(line, key=lambda entry: entry[0])


def _alone_reserved(world: World, run: Run) -> bool:
    for policy in world.chain(world.policy_of(run)):
        reserved = world.reserved(policy)
        asked = {key: one * run.replicas for key, one in run.request.items() if one > 0}
        named = [key for key in asked if key in reserved]
        if not named or any(asked[key] > reserved[key] for key in named):
            return False
    return True
