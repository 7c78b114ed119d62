"""The snapshot with everything looked up once: places, chains, amounts by index of key.

Policies, pools and keys become indices; queued groups become `GroupState`, in the order across
pools. What the configuration alone decides is compiled once: the next snapshot with an equal
configuration needs only `set_moment`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from apps.allocation.engine.compile import tables
from apps.allocation.engine.model.quantities import GPU, UNCOUNTED_UNLESS_LISTED, Quantities
from apps.allocation.engine.model.snapshot import (
    Id,
    PolicySnapshot,
    PoolSnapshot,
    PreemptionMode,
    ProfileSnapshot,
    QueuedGroup,
    QueuedTask,
    QueueingMode,
    QueueSnapshot,
    Snapshot,
)

# More than any real amount: what is free of a key that a pool does not count.
UNCOUNTED = 1 << 60

Amounts = tuple[tuple[int, int], ...]
Prefix = tuple[int, int, int, int]
ServingKey = tuple[int, int, int, int, int, Id]
# Priority, least first; time of submission; task.
StrictKey = tuple[int, int, Id]
Pairs = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class CompiledShape:
    """What one task takes: `amounts` of the whole task, `member` of each of its members.

    Both are (key index, thousandths), without keys of which nothing is requested.
    """

    number: int
    amounts: Amounts
    member: Amounts
    gpu_milli: int
    replicas: int
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """Where groups of one queue, priority and preemptible order may go, and their place there."""

    queue: QueueSnapshot
    policy: int
    chain: tuple[int, ...]
    models: tuple[str, ...]
    # Pools that accept work now, and all of the profile's list.
    pools: tuple[int, ...]
    linked_pools: tuple[int, ...]
    prefixes: dict[int, Prefix]
    across: Prefix
    is_strict: bool
    # Paused, or a budget is spent.
    is_excluded: bool


@dataclass(slots=True)
class GroupState:
    """One queued group, compiled. `placed_count` counts the heads that this pass has placed; until
    it ends, displaced tasks are not part of the group.

    Tier and limits are remembered with the version of the ledger that they were computed from.
    """

    index: int
    queued: QueuedGroup
    queue: QueueSnapshot
    policy: int
    chain: tuple[int, ...]
    shape: CompiledShape
    pools: tuple[int, ...]
    linked_pools: tuple[int, ...]
    prefixes: dict[int, Prefix]
    across: Prefix
    has_exceeded: bool
    is_strict: bool
    placed_count: int = 0
    tier: int | None = None
    tier_version: int = -1
    within_limits: int = 0
    limits_version: int = -1

    def head(self, number: int) -> QueuedTask:
        return self.queued.heads[number]

    def serving_key(self, pool: int, number: int) -> ServingKey:
        """The place of head `number` in the serving order of `pool`."""
        head = self.queued.heads[number]
        return (*self.prefixes[pool], head.submitted_us, head.task)

    def across_key(self, number: int) -> ServingKey:
        head = self.queued.heads[number]
        return (*self.across, head.submitted_us, head.task)

    def strict_key(self, number: int) -> StrictKey:
        head = self.queued.heads[number]
        return (-self.queued.priority, head.submitted_us, head.task)

    @property
    def waiting(self) -> int:
        """How many heads may still be placed."""
        return len(self.queued.heads) - self.placed_count


@dataclass(slots=True)
class CompiledSnapshot:
    """The configuration and the waiting work by index. Policies are in order of rank, name, id."""

    snapshot: Snapshot
    keys: tuple[str, ...]
    key_index: dict[str, int]
    policies: tuple[PolicySnapshot, ...]
    policy_index: dict[Id, int]
    chains: tuple[tuple[int, ...], ...]
    children: tuple[tuple[int, ...], ...]
    reserved: tuple[dict[int, int], ...]
    limits: tuple[dict[int, int], ...]
    user_limits: tuple[dict[int, int], ...]
    pools: tuple[PoolSnapshot, ...]
    pool_index: dict[Id, int]
    capacities: tuple[tuple[int, ...], ...]
    levels: tuple[PreemptionMode, ...]
    profiles: dict[Id, ProfileSnapshot]
    queues: dict[Id, QueueSnapshot]
    depth: int
    # Places of profiles in pools, and of policies in profiles; missing where not listed.
    profile_places: dict[tuple[int, Id], int]
    policy_places: dict[tuple[Id, Id], int]
    # Grow with what was requested so far.
    shapes: dict[tuple[Pairs, int, tuple[str, ...]], CompiledShape] = field(default_factory=dict)
    routes: dict[tuple[Id, int, bool], Route] = field(default_factory=dict)
    # Of this snapshot only.
    groups: list[GroupState] = field(default_factory=list)
    excluded: list[tuple[int, QueuedGroup]] = field(default_factory=list)

    def indexed(self, amounts: Quantities) -> dict[int, int]:
        return tables.indexed(amounts, self.key_index)

    def shape_of(
        self, request: Quantities, replicas: int, models: tuple[str, ...] = ()
    ) -> CompiledShape:
        name = (request.pairs, replicas, models)
        shape = self.shapes.get(name)
        if shape is None:
            member = tuple(
                (self.key_index[key], amount) for key, amount in request.pairs if amount > 0
            )
            amounts = tuple((key, amount * replicas) for key, amount in member)
            gpu = max(request.get(GPU), 0)
            shape = CompiledShape(len(self.shapes), amounts, member, gpu, replicas, models)
            self.shapes[name] = shape
        return shape

    def capacity_of(self, pool: PoolSnapshot) -> list[int]:
        """By key index; `UNCOUNTED` for keys that the pool does not count."""
        return list(self.capacities[self.pool_index[pool.id]])

    def route(self, queue: Id, priority: int, *, is_preemptible: bool) -> Route:
        name = (queue, priority, is_preemptible)
        route = self.routes.get(name)
        if route is None:
            route = _route(self, self.queues[queue], priority, 1 if is_preemptible else 0)
            self.routes[name] = route
        return route


def compile_configuration(snapshot: Snapshot) -> CompiledSnapshot:
    """All but what waits; the result depends on contents, not on the order of rows."""
    keys = tuple(sorted(tables.configured_keys(snapshot) | tables.requested_keys(snapshot)))
    key_index = {key: number for number, key in enumerate(keys)}
    policies = tuple(sorted(snapshot.policies, key=lambda one: (one.rank, one.name, one.id)))
    policy_index = {policy.id: number for number, policy in enumerate(policies)}
    pools = tuple(sorted(snapshot.pools, key=lambda one: (one.name, one.id)))
    chains = tables.chains_of(policies, policy_index)
    children = tables.children_of(policies, policy_index)
    return CompiledSnapshot(
        snapshot=snapshot,
        keys=keys,
        key_index=key_index,
        policies=policies,
        policy_index=policy_index,
        chains=chains,
        children=children,
        reserved=tables.reservations_of(policies, key_index, chains, children),
        limits=tuple(tables.indexed(policy.limit, key_index) for policy in policies),
        user_limits=tuple(tables.indexed(policy.user_limit, key_index) for policy in policies),
        pools=pools,
        pool_index={pool.id: number for number, pool in enumerate(pools)},
        capacities=tuple(_capacity(pool, keys) for pool in pools),
        levels=tuple(pool.preemption or snapshot.settings.preemption for pool in pools),
        profiles={profile.id: profile for profile in snapshot.profiles},
        queues={queue.id: queue for queue in snapshot.queues},
        depth=max((len(chain) for chain in chains), default=1),
        profile_places=tables.profile_places(pools),
        policy_places=tables.policy_places(snapshot.profiles),
    )


def _capacity(pool: PoolSnapshot, keys: tuple[str, ...]) -> tuple[int, ...]:
    capacity = pool.capacity.as_dict()
    return tuple(
        capacity.get(key, UNCOUNTED if key in UNCOUNTED_UNLESS_LISTED else 0) for key in keys
    )


def set_moment(compiled: CompiledSnapshot, snapshot: Snapshot) -> None:
    """Use the waiting and running work of `snapshot`, whose configuration is the compiled one."""
    compiled.snapshot = snapshot
    compiled.groups = []
    compiled.excluded = []
    for index, queued in enumerate(snapshot.queued_groups):
        route = compiled.route(queued.queue, queued.priority, is_preemptible=queued.is_preemptible)
        if route.is_excluded:
            compiled.excluded.append((index, queued))
        else:
            compiled.groups.append(_group_state(compiled, route, index, queued))
    compiled.groups.sort(key=_across_order)


def _group_state(
    compiled: CompiledSnapshot, route: Route, index: int, queued: QueuedGroup
) -> GroupState:
    return GroupState(
        index=index,
        queued=queued,
        queue=route.queue,
        policy=route.policy,
        chain=route.chain,
        shape=compiled.shape_of(queued.request, queued.replicas, route.models),
        pools=route.pools,
        linked_pools=route.linked_pools,
        prefixes=route.prefixes,
        across=route.across,
        has_exceeded=queued.can_exceed_limit and queued.is_preemptible,
        is_strict=route.is_strict,
    )


def _across_order(group: GroupState) -> tuple[object, ...]:
    if not group.queued.heads:
        return group.across
    head = group.queued.heads[0]
    return (*group.across, head.submitted_us, head.task)


def _route(
    compiled: CompiledSnapshot, queue: QueueSnapshot, priority: int, preemptible_order: int
) -> Route:
    profile = compiled.profiles[queue.profile]
    policy = compiled.policy_index[queue.policy]
    linked = tuple(
        compiled.pool_index[pool] for pool in profile.pools if pool in compiled.pool_index
    )
    pools = [compiled.pools[number] for number in linked]
    policy_place = compiled.policy_places.get((profile.id, queue.policy), UNCOUNTED)
    prefixes = {
        pool: (
            compiled.profile_places.get((pool, profile.id), UNCOUNTED),
            policy_place,
            -priority,
            preemptible_order,
        )
        for pool in linked
    }
    nowhere = (UNCOUNTED, UNCOUNTED, -priority, preemptible_order)
    queueing = compiled.policies[policy].queueing or compiled.snapshot.settings.queueing
    chain = compiled.chains[policy]
    return Route(
        queue=queue,
        policy=policy,
        chain=chain,
        models=profile.models,
        pools=tuple(
            number
            for number, pool in zip(linked, pools, strict=True)
            if pool.has_server and not pool.is_paused
        ),
        linked_pools=linked,
        prefixes=prefixes,
        across=prefixes[linked[0]] if linked else nowhere,
        is_strict=queueing is QueueingMode.STRICT,
        is_excluded=queue.is_paused
        or any(
            compiled.policies[one].is_paused or compiled.policies[one].is_spent for one in chain
        ),
    )
