"""The engine alone: how long a pass takes over a large, full installation.

1,000 queues, 50 pools, 20,000 running and 1,000,000 waiting tasks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, repeat

from apps.allocation.engine import Engine
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import (
    DeviceShare,
    Id,
    MemberPlacement,
    NodeSnapshot,
    PolicySnapshot,
    PoolSnapshot,
    PreemptionMode,
    ProfileSnapshot,
    QueuedGroup,
    QueuedTask,
    QueueSnapshot,
    RunningGroup,
    RunningTask,
    SettingsSnapshot,
    Snapshot,
)

POOLS = 50
QUEUES = 1_000
POLICIES = 250
RUNNING = 20_000
WAITING = 1_000_000
GPUS_PER_NODE = 8
SIZES = (1, 2, 2, 4)


# Work of the calibration loop: some milliseconds of plain Python, whatever the engine becomes.
CALIBRATION = 100_000
OBJECTS = 20_000
# Policies that come back for what they reserve, and how many GPUs of it they do not hold.
CLAIMANTS = (0, 1, 2, 200, 201)
CLAIM = 80
ENDED = 400


@dataclass(frozen=True)
class Figure:
    """Full passes over one snapshot, in milliseconds, and what each of them decided.

    `cpu_ms` is what the process itself took, `calibration_ms` the same of a fixed loop before each
    pass: together they tell machines, and moments of a busy one, apart.
    """

    name: str
    median_ms: float
    cpu_ms: float
    calibration_ms: float
    passes: int
    placed: int
    preempted: int
    waiting_runs: int
    aim: str

    @property
    def decisions(self) -> int:
        return self.placed + self.preempted


def measure(passes: int = 20) -> list[Figure]:
    """Full passes on totals and on nodes: at rest, after a change, and with much to decide."""
    figures = []
    for has_nodes in (False, True):
        kind = "110 nodes per pool" if has_nodes else "totals"
        full = full_snapshot(has_nodes=has_nodes)
        still, busy = ("40 ms", "200 ms") if has_nodes else ("25 ms", "100 ms")
        figures += [
            _measured(f"nothing changes, {kind}", repeat(full), passes, still),
            _measured(f"configuration changed, {kind}", new_versions(full), passes, ""),
            _measured(f"500 start, {kind}", repeat(with_claims(full)), passes, busy),
            _measured(f"all rebalanced, {kind}", repeat(rebalanced(full)), passes, "0.5 ms each"),
        ]
    torn = fragmented(full_snapshot(has_nodes=True))
    figures.append(_measured("nothing fits into what is left", repeat(torn), passes, "40 ms"))
    return figures


def _measured(name: str, snapshots: Iterator[Snapshot], passes: int, aim: str) -> Figure:
    engine = Engine()
    plan = engine.decide(next(snapshots))
    elapsed: list[float] = []
    cpu: list[float] = []
    calibration: list[float] = []
    for _ in range(passes):
        calibration.append(_calibrated())
        snapshot = next(snapshots)
        started, used = time.perf_counter(), time.process_time()
        plan = engine.decide(snapshot)
        elapsed.append((time.perf_counter() - started) * 1000)
        cpu.append((time.process_time() - used) * 1000)
    return Figure(
        name=name,
        median_ms=statistics.median(elapsed),
        cpu_ms=statistics.median(cpu),
        calibration_ms=statistics.median(calibration),
        passes=passes,
        placed=len(plan.placed),
        preempted=len(plan.preempted),
        waiting_runs=len(plan.waiting),
        aim=aim,
    )


def _calibrated() -> float:
    """Milliseconds of a loop that does what Python does most: look up, add, store.

    It goes through its small objects in no order of memory, as a pass does, so that it suffers
    from what else a machine does as much as a pass.
    """
    started = time.process_time()
    amounts = dict.fromkeys(range(1024), 0)
    place = 0
    for _ in range(CALIBRATION):
        place, amount = _SCATTERED[place]
        amounts[place & 1023] += amount
    return (time.process_time() - started) * 1000


# Each leads to the next one, some thousand objects away.
_SCATTERED = [((number * 7921 + 104_729) % OBJECTS, number & 7) for number in range(OBJECTS)]


def full_snapshot(*, has_nodes: bool) -> Snapshot:
    """50 pools, all full with 20,000 tasks; 1,000 queues with 1,000,000 waiting tasks."""
    profiles = tuple(_profile(number) for number in range(POOLS * len(SIZES)))
    policies = tuple(_policy(number) for number in range(POLICIES))
    queues = tuple(
        QueueSnapshot(id=number, policy=number % POLICIES, profile=_profile_of(number))
        for number in range(QUEUES)
    )
    groups = tuple(_groups(queues, has_nodes=has_nodes))
    used = [0] * POOLS
    for group in groups:
        used[int(group.pool)] += len(group.tasks) * group.request.get("gpu")
    return Snapshot(
        settings=SettingsSnapshot(preemption=PreemptionMode.RECLAIM),
        now_us=10**15,
        pools=tuple(_pool(number, used[number], has_nodes=has_nodes) for number in range(POOLS)),
        profiles=profiles,
        policies=policies,
        queues=queues,
        queued_groups=tuple(_run(queue) for queue in queues),
        running=groups,
    )


def _profile_of(queue: int) -> int:
    """Four policies meet in each profile; each policy has four profiles."""
    return (queue * 7 + queue // POLICIES) % (POOLS * len(SIZES))


def _size(profile: int) -> int:
    return SIZES[profile % len(SIZES)]


def _home(profile: int) -> int:
    return profile // len(SIZES)


def _profile(number: int) -> ProfileSnapshot:
    home = _home(number)
    return ProfileSnapshot(
        id=number,
        name=f"profile {number:03d}",
        request=Quantities.whole(gpu=_size(number)),
        pools=(home, (home + 1) % POOLS, (home + 7) % POOLS),
        policies=tuple(range(POLICIES)),
    )


def _policy(number: int) -> PolicySnapshot:
    return PolicySnapshot(
        id=number,
        name=f"policy {number:03d}",
        rank=number,
        reserved=Quantities.whole(gpu=100),
        limit=Quantities.whole(gpu=400),
    )


def _pool(number: int, used_milli: int, *, has_nodes: bool) -> PoolSnapshot:
    size = len(SIZES)
    linked = [
        profile
        for home in (number, (number - 1) % POOLS, (number - 7) % POOLS)
        for profile in range(home * size, home * size + size)
    ]
    return PoolSnapshot(
        id=number,
        name=f"pool {number:02d}",
        capacity=Quantities.of({"gpu": used_milli}),
        profiles=tuple(linked),
        nodes=tuple(_nodes(number, used_milli // 1000)) if has_nodes else (),
    )


def _nodes(pool: int, gpus: int) -> Iterator[NodeSnapshot]:
    """As many nodes as the pool's running work fills; the last one may be smaller."""
    for first in range(0, gpus, GPUS_PER_NODE):
        yield NodeSnapshot(
            id=pool * 1000 + first // GPUS_PER_NODE,
            name=f"node {pool:02d}-{first // GPUS_PER_NODE:03d}",
            capacity=Quantities.whole(gpu=min(GPUS_PER_NODE, gpus - first)),
        )


def _groups(queues: tuple[QueueSnapshot, ...], *, has_nodes: bool) -> Iterator[RunningGroup]:
    """Larger tasks first in each pool, so that they fill nodes without gaps."""
    free = [0] * POOLS
    largest_first = sorted(queues, key=lambda queue: (-_size(int(queue.profile)), queue.id))
    for queue in largest_first:
        size = _size(int(queue.profile))
        pool = _home(int(queue.profile))
        tasks = []
        for number in range(RUNNING // QUEUES):
            first = free[pool]
            free[pool] += size
            members = _members(pool, first, size) if has_nodes else ()
            task = f"r{queue.id:04d}-{number:02d}"
            tasks.append(RunningTask(task, submitted_us=1, started_us=2, members=members))
        yield RunningGroup(
            pool=pool,
            policy=queue.policy,
            profile=queue.profile,
            request=Quantities.whole(gpu=size),
            tasks=tuple(tasks),
            queue=queue.id,
        )


def _members(pool: int, first: int, size: int) -> tuple[MemberPlacement, ...]:
    node, gpu = divmod(first, GPUS_PER_NODE)
    shares = tuple(DeviceShare(gpu + number, 1000) for number in range(size))
    return (MemberPlacement(pool * 1000 + node, shares),)


def _run(queue: QueueSnapshot) -> QueuedGroup:
    heads = tuple(
        QueuedTask(10**6 + number, f"w{queue.id:04d}-{number:02d}") for number in range(50)
    )
    request = Quantities.whole(gpu=_size(int(queue.profile)))
    return QueuedGroup(queue=queue.id, request=request, count=WAITING // QUEUES, heads=heads)


def fragmented(snapshot: Snapshot) -> Snapshot:
    """One GPU more on every node, and no task waits for less than two: all nodes have capacity
    left, and nothing fits.
    """
    pools = tuple(
        replace(
            pool,
            capacity=_one_gpu_more(pool.capacity, len(pool.nodes)),
            nodes=tuple(replace(one, capacity=_one_gpu_more(one.capacity)) for one in pool.nodes),
        )
        for pool in snapshot.pools
    )
    least = Quantities.whole(gpu=2)
    queued_groups = tuple(
        replace(queued, request=least) if queued.request.get("gpu") < least.get("gpu") else queued
        for queued in snapshot.queued_groups
    )
    return replace(snapshot, pools=pools, queued_groups=queued_groups)


def _one_gpu_more(capacity: Quantities, times: int = 1) -> Quantities:
    return capacity.plus(Quantities.whole(gpu=times))


def new_versions(snapshot: Snapshot) -> Iterator[Snapshot]:
    """The same with another limit each time, so that nothing compiled can be used again."""
    first, *rest = snapshot.policies
    for gpus in count(500):
        changed = replace(first, limit=Quantities.whole(gpu=gpus))
        yield replace(snapshot, policies=(changed, *rest))


def with_claims(snapshot: Snapshot) -> Snapshot:
    """400 small tasks have ended, and over-quota work waits for their capacity. Elsewhere, where
    nothing is free, five policies come back for what they reserve: 20 large tasks each.
    """
    policies = tuple(
        replace(one, reserved=Quantities.whole(gpu=_held_by(snapshot, one.id) + CLAIM))
        if one.id in CLAIMANTS
        else one
        for one in snapshot.policies
    )
    pools = {one.id: one.pools for one in snapshot.profiles}
    claimed = {
        pool
        for queue in snapshot.queues
        if queue.policy in CLAIMANTS
        for pool in pools[queue.profile]
    }
    small = Quantities.whole(gpu=min(SIZES))
    large = Quantities.whole(gpu=max(SIZES))
    there = [
        group for group in snapshot.running if group.pool not in claimed and group.request == small
    ]
    step = sum(len(group.tasks) for group in there) // ENDED
    left = []
    seen = 0
    for group in snapshot.running:
        kept = group.tasks
        if group.pool not in claimed and group.request == small:
            kept = tuple(
                held
                for number, held in enumerate(group.tasks, seen)
                if number % step or number // step >= ENDED
            )
            seen += len(group.tasks)
        left.append(replace(group, tasks=kept))
    owners = {queue.id: queue.policy for queue in snapshot.queues}
    queued_groups = tuple(
        queued
        for queued in snapshot.queued_groups
        if owners[queued.queue] not in CLAIMANTS or queued.request == large
    )
    return replace(snapshot, policies=policies, running=tuple(left), queued_groups=queued_groups)


def _held_by(snapshot: Snapshot, policy: Id) -> int:
    milli = sum(
        len(group.tasks) * group.request.get("gpu")
        for group in snapshot.running
        if group.policy == policy
    )
    return milli // 1000


def rebalanced(snapshot: Snapshot) -> Snapshot:
    """Every second policy uses everything; the others reserve half and claim it now."""
    owners = {queue.id: int(queue.policy) | 1 for queue in snapshot.queues}
    mine = {(queue.policy, queue.profile): queue.id for queue in snapshot.queues}
    running = tuple(
        replace(
            group,
            policy=owners[group.queue or 0],
            queue=mine.get((owners[group.queue or 0], group.profile)),
        )
        for group in snapshot.running
    )
    policies = tuple(
        replace(one, reserved=Quantities.whole(gpu=_held_by(snapshot, one.id)))
        for one in snapshot.policies
    )
    return replace(snapshot, policies=policies, running=running)
