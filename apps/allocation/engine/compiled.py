"""The snapshot with everything looked up once: places, chains, amounts by index of key.

Policies, pools and keys become indices; waiting runs become `Work`, in the order across pools.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from apps.allocation.engine.quantities import GPU, UNCOUNTED_UNLESS_LISTED, Quantities
from apps.allocation.engine.snapshot import (
    Head,
    Id,
    Policy,
    Pool,
    Preemption,
    Profile,
    Queue,
    Queueing,
    Run,
    Snapshot,
)

# More than any real amount: the room for a key that a pool does not count.
UNCOUNTED = 1 << 60

# The levels of taking back that this engine carries out; a setting above behaves like the last.
IMPLEMENTED_PREEMPTION = tuple(Preemption)
IMPLEMENTS_CONSOLIDATION = True

Amounts = tuple[tuple[int, int], ...]
Prefix = tuple[int, int, int, int]
ServingKey = tuple[int, int, int, int, int, Id]


@dataclass(frozen=True, slots=True)
class Shape:
    """What one task takes: `amounts` of the whole task, `member` of each of its members.

    Both are (key index, thousandths), only keys of which more than nothing is asked.
    """

    number: int
    amounts: Amounts
    member: Amounts
    gpu_milli: int
    replicas: int
    models: tuple[str, ...]


@dataclass(slots=True)
class Work:
    """One run, compiled. `taken` counts the heads that this pass has placed."""

    index: int
    run: Run
    queue: Queue
    policy: int
    chain: tuple[int, ...]
    shape: Shape
    pools: tuple[int, ...]
    linked_pools: tuple[int, ...]
    prefixes: dict[int, Prefix]
    across: Prefix
    has_exceeded: bool
    is_strict: bool
    taken: int = 0

    def head(self, number: int) -> Head:
        return self.run.heads[number]

    def serving_key(self, pool: int, number: int) -> ServingKey:
        """The place of head `number` in the serving order of `pool`."""
        head = self.run.heads[number]
        return (*self.prefixes[pool], head.submitted_us, head.task)

    def across_key(self, number: int) -> ServingKey:
        head = self.run.heads[number]
        return (*self.across, head.submitted_us, head.task)

    def strict_key(self, number: int) -> tuple[int, int, Id]:
        head = self.run.heads[number]
        return (-self.run.priority, head.submitted_us, head.task)

    @property
    def waiting(self) -> int:
        """Heads that are not placed yet."""
        return len(self.run.heads) - self.taken


@dataclass(slots=True)
class Compiled:
    """The configuration and the waiting work by index. Policies are in order of rank, name, id."""

    snapshot: Snapshot
    keys: tuple[str, ...]
    key_index: dict[str, int]
    policies: tuple[Policy, ...]
    policy_index: dict[Id, int]
    chains: tuple[tuple[int, ...], ...]
    children: tuple[tuple[int, ...], ...]
    reserved: tuple[dict[int, int], ...]
    limits: tuple[dict[int, int], ...]
    user_limits: tuple[dict[int, int], ...]
    pools: tuple[Pool, ...]
    pool_index: dict[Id, int]
    profiles: dict[Id, Profile]
    depth: int
    levels: tuple[Preemption, ...] = ()
    shapes: dict[tuple[Quantities, int, tuple[str, ...]], Shape] = field(default_factory=dict)
    works: list[Work] = field(default_factory=list)
    paused: list[tuple[int, Run]] = field(default_factory=list)

    def indexed(self, amounts: Quantities) -> dict[int, int]:
        index = self.key_index
        return {index[key]: amount for key, amount in amounts.pairs if key in index}

    def shape_of(self, request: Quantities, replicas: int, models: tuple[str, ...] = ()) -> Shape:
        name = (request, replicas, models)
        shape = self.shapes.get(name)
        if shape is None:
            member = tuple(
                (self.key_index[key], amount) for key, amount in request.pairs if amount > 0
            )
            amounts = tuple((key, amount * replicas) for key, amount in member)
            gpu = max(request.get(GPU), 0)
            shape = Shape(len(self.shapes), amounts, member, gpu, replicas, models)
            self.shapes[name] = shape
        return shape

    def capacity_of(self, pool: Pool) -> list[int]:
        """By key index; `UNCOUNTED` for keys that the pool does not count."""
        return [
            pool.capacity.get(key, UNCOUNTED if key in UNCOUNTED_UNLESS_LISTED else 0)
            for key in self.keys
        ]


def compile_snapshot(snapshot: Snapshot) -> Compiled:
    """Look everything up once; the result depends on contents, not on the order of rows."""
    keys = _keys(snapshot)
    key_index = {key: number for number, key in enumerate(keys)}
    policies = tuple(sorted(snapshot.policies, key=lambda one: (one.rank, one.name, one.id)))
    policy_index = {policy.id: number for number, policy in enumerate(policies)}
    pools = tuple(sorted(snapshot.pools, key=lambda one: (one.name, one.id)))
    chains = tuple(_chain(policy, policies, policy_index) for policy in policies)
    children = _children(policies, policy_index)
    compiled = Compiled(
        snapshot=snapshot,
        keys=keys,
        key_index=key_index,
        policies=policies,
        policy_index=policy_index,
        chains=chains,
        children=children,
        reserved=(),
        limits=(),
        user_limits=(),
        pools=pools,
        pool_index={pool.id: number for number, pool in enumerate(pools)},
        profiles={profile.id: profile for profile in snapshot.profiles},
        depth=max((len(chain) for chain in chains), default=1),
    )
    compiled.levels = tuple(_level(snapshot, pool) for pool in pools)
    compiled.reserved = _reservations(compiled)
    compiled.limits = tuple(compiled.indexed(policy.limit) for policy in policies)
    compiled.user_limits = tuple(compiled.indexed(policy.user_limit) for policy in policies)
    compiled.works = _works(compiled)
    return compiled


def _level(snapshot: Snapshot, pool: Pool) -> Preemption:
    """The level of taking back in force in `pool`: what is set, as far as implemented."""
    wanted = pool.preemption or snapshot.settings.preemption
    levels = tuple(Preemption)
    return min(wanted, IMPLEMENTED_PREEMPTION[-1], key=levels.index)


def _keys(snapshot: Snapshot) -> tuple[str, ...]:
    keys = {GPU}
    for pool in snapshot.pools:
        keys.update(pool.capacity)
        for node in pool.nodes:
            keys.update(node.capacity)
    asked = {run.request for run in snapshot.runs}
    asked.update(group.request for group in snapshot.running)
    for request in asked:
        keys.update(request)
    for policy in snapshot.policies:
        keys.update(policy.reserved)
        keys.update(policy.limit)
        keys.update(policy.user_limit)
    return tuple(sorted(keys))


def _chain(policy: Policy, policies: tuple[Policy, ...], index: dict[Id, int]) -> tuple[int, ...]:
    """From the top ancestor down to the policy itself."""
    chain = [index[policy.id]]
    parent = policy.parent
    while parent is not None and parent in index:
        chain.append(index[parent])
        parent = policies[index[parent]].parent
    return tuple(reversed(chain))


def _children(policies: tuple[Policy, ...], index: dict[Id, int]) -> tuple[tuple[int, ...], ...]:
    found: list[list[int]] = [[] for _ in policies]
    for number, policy in enumerate(policies):
        if policy.parent is not None and policy.parent in index:
            found[index[policy.parent]].append(number)
    return tuple(tuple(one) for one in found)


def _reservations(compiled: Compiled) -> tuple[dict[int, int], ...]:
    """By key index. Of a parent, for each key that it does not set, the sum of its children's."""
    found: list[dict[int, int]] = [
        {} if policy.is_removed else compiled.indexed(policy.reserved)
        for policy in compiled.policies
    ]
    deepest_first = sorted(range(len(found)), key=lambda number: -len(compiled.chains[number]))
    for number in deepest_first:
        if compiled.policies[number].is_removed:
            continue
        total: dict[int, int] = {}
        for child in compiled.children[number]:
            for key, amount in found[child].items():
                total[key] = total.get(key, 0) + amount
        found[number] = total | found[number]
    return tuple(found)


def _works(compiled: Compiled) -> list[Work]:
    """All runs that could be offered, in the order across pools; paused ones are set aside."""
    snapshot = compiled.snapshot
    queues = {queue.id: queue for queue in snapshot.queues}
    routes = _Routes(compiled)
    works = []
    for index, run in enumerate(snapshot.runs):
        queue = queues[run.queue]
        if is_paused(compiled, queue):
            compiled.paused.append((index, run))
        else:
            works.append(_work(compiled, routes, index, run, queue))
    works.sort(key=_across_order)
    return works


def _across_order(work: Work) -> tuple[object, ...]:
    return (
        *work.across,
        *((work.head(0).submitted_us, work.head(0).task) if work.run.heads else ()),
    )


def is_paused(compiled: Compiled, queue: Queue) -> bool:
    chain = compiled.chains[compiled.policy_index[queue.policy]]
    return queue.is_paused or any(compiled.policies[one].is_paused for one in chain)


class _Routes:
    """Places of profiles in pools and of policies in profiles, looked up once."""

    def __init__(self, compiled: Compiled) -> None:
        self.profile_place: dict[tuple[int, Id], int] = {}
        for number, pool in enumerate(compiled.pools):
            for place, profile in enumerate(pool.profiles):
                self.profile_place[number, profile] = place
        self.profiles = compiled.profiles
        self.linked: dict[Id, tuple[int, ...]] = {}
        self.open: dict[Id, tuple[int, ...]] = {}
        for one in compiled.profiles.values():
            linked = tuple(
                compiled.pool_index[pool] for pool in one.pools if pool in compiled.pool_index
            )
            self.linked[one.id] = linked
            self.open[one.id] = tuple(
                number
                for number in linked
                if compiled.pools[number].has_server and not compiled.pools[number].is_paused
            )

    def prefix(self, pool: int, profile: Id, policy: Id, run: Run) -> Prefix:
        """Profile's place, policy's place, priority, non-preemptible first; unlisted is last."""
        policies = self.profiles[profile].policies
        return (
            self.profile_place.get((pool, profile), UNCOUNTED),
            policies.index(policy) if policy in policies else UNCOUNTED,
            -run.priority,
            1 if run.is_preemptible else 0,
        )


def _work(compiled: Compiled, routes: _Routes, index: int, run: Run, queue: Queue) -> Work:
    profile = compiled.profiles[queue.profile]
    policy = compiled.policy_index[queue.policy]
    linked = routes.linked[profile.id]
    prefixes = {pool: routes.prefix(pool, profile.id, queue.policy, run) for pool in linked}
    nowhere: Prefix = (UNCOUNTED, UNCOUNTED, -run.priority, 1 if run.is_preemptible else 0)
    queueing = compiled.policies[policy].queueing or compiled.snapshot.settings.queueing
    return Work(
        index=index,
        run=run,
        queue=queue,
        policy=policy,
        chain=compiled.chains[policy],
        shape=compiled.shape_of(run.request, run.replicas, profile.models),
        pools=routes.open[profile.id],
        linked_pools=linked,
        prefixes=prefixes,
        across=prefixes[linked[0]] if linked else nowhere,
        has_exceeded=run.can_exceed_limit and run.is_preemptible,
        is_strict=queueing is Queueing.STRICT,
    )
