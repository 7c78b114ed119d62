"""The engine alone: how long a pass takes over a large, full installation."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from apps.allocation.engine import decide
from apps.allocation.engine.quantities import Quantities
from apps.allocation.engine.snapshot import (
    Head,
    Held,
    Member,
    Node,
    Policy,
    Pool,
    Preemption,
    Profile,
    Queue,
    Run,
    Running,
    Settings,
    Share,
    Snapshot,
)

POOLS = 50
QUEUES = 1_000
POLICIES = 250
RUNNING = 20_000
WAITING = 1_000_000
GPUS_PER_NODE = 8
SIZES = (1, 2, 2, 4)


@dataclass(frozen=True)
class Figure:
    """Median and slowest of `passes` full passes, in milliseconds, and what they decided."""

    name: str
    median_ms: float
    slowest_ms: float
    passes: int
    placed: int
    waiting_runs: int


def measure(passes: int = 20) -> list[Figure]:
    """Full passes with nothing to decide and with 500 starts, on totals and on nodes."""
    figures = []
    for has_nodes in (False, True):
        kind = "110 nodes per pool" if has_nodes else "totals"
        full = full_snapshot(has_nodes=has_nodes)
        figures.append(_measured(f"nothing changes, {kind}", full, passes))
        opened = with_free_gpus(full, tasks=500)
        figures.append(_measured(f"500 tasks ended, {kind}", opened, passes))
    return figures


def _measured(name: str, snapshot: Snapshot, passes: int) -> Figure:
    times = []
    plan = decide(snapshot)
    for _ in range(passes):
        started = time.perf_counter()
        plan = decide(snapshot)
        times.append((time.perf_counter() - started) * 1000)
    return Figure(
        name=name,
        median_ms=statistics.median(times),
        slowest_ms=max(times),
        passes=passes,
        placed=len(plan.placed),
        waiting_runs=len(plan.waiting),
    )


def full_snapshot(*, has_nodes: bool) -> Snapshot:
    """50 pools, all full with 20,000 tasks; 1,000 queues with 1,000,000 waiting tasks."""
    profiles = tuple(_profile(number) for number in range(POOLS * len(SIZES)))
    policies = tuple(_policy(number) for number in range(POLICIES))
    queues = tuple(
        Queue(id=number, policy=number % POLICIES, profile=_profile_of(number))
        for number in range(QUEUES)
    )
    groups = tuple(_groups(queues, has_nodes=has_nodes))
    used = [0] * POOLS
    for group in groups:
        used[int(group.pool)] += len(group.tasks) * group.request.get("gpu")
    return Snapshot(
        settings=Settings(preemption=Preemption.NONE),
        now_us=10**15,
        pools=tuple(_pool(number, used[number], has_nodes=has_nodes) for number in range(POOLS)),
        profiles=profiles,
        policies=policies,
        queues=queues,
        runs=tuple(_run(queue) for queue in queues),
        running=groups,
    )


def _profile_of(queue: int) -> int:
    """Four policies meet in each profile; each policy has four profiles."""
    return (queue * 7 + queue // POLICIES) % (POOLS * len(SIZES))


def _size(profile: int) -> int:
    return SIZES[profile % len(SIZES)]


def _home(profile: int) -> int:
    return profile // len(SIZES)


def _profile(number: int) -> Profile:
    home = _home(number)
    return Profile(
        id=number,
        name=f"profile {number:03d}",
        request=Quantities.whole(gpu=_size(number)),
        pools=(home, (home + 1) % POOLS, (home + 7) % POOLS),
        policies=tuple(range(POLICIES)),
    )


def _policy(number: int) -> Policy:
    return Policy(
        id=number,
        name=f"policy {number:03d}",
        rank=number,
        reserved=Quantities.whole(gpu=100),
        limit=Quantities.whole(gpu=400),
    )


def _pool(number: int, used_milli: int, *, has_nodes: bool) -> Pool:
    size = len(SIZES)
    linked = [
        profile
        for home in (number, (number - 1) % POOLS, (number - 7) % POOLS)
        for profile in range(home * size, home * size + size)
    ]
    return Pool(
        id=number,
        name=f"pool {number:02d}",
        capacity=Quantities.of({"gpu": used_milli}),
        profiles=tuple(linked),
        nodes=tuple(_nodes(number, used_milli // 1000)) if has_nodes else (),
    )


def _nodes(pool: int, gpus: int) -> Iterator[Node]:
    """As many nodes as the pool's running work fills; the last one may be smaller."""
    for first in range(0, gpus, GPUS_PER_NODE):
        yield Node(
            id=pool * 1000 + first // GPUS_PER_NODE,
            name=f"node {pool:02d}-{first // GPUS_PER_NODE:03d}",
            capacity=Quantities.whole(gpu=min(GPUS_PER_NODE, gpus - first)),
        )


def _groups(queues: tuple[Queue, ...], *, has_nodes: bool) -> Iterator[Running]:
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
            tasks.append(Held(task, submitted_us=1, started_us=2, members=members))
        yield Running(
            pool=pool,
            policy=queue.policy,
            profile=queue.profile,
            request=Quantities.whole(gpu=size),
            tasks=tuple(tasks),
            queue=queue.id,
        )


def _members(pool: int, first: int, size: int) -> tuple[Member, ...]:
    node, gpu = divmod(first, GPUS_PER_NODE)
    shares = tuple(Share(gpu + number, 1000) for number in range(size))
    return (Member(pool * 1000 + node, shares),)


def _run(queue: Queue) -> Run:
    heads = tuple(Head(10**6 + number, f"w{queue.id:04d}-{number:02d}") for number in range(50))
    request = Quantities.whole(gpu=_size(int(queue.profile)))
    return Run(queue=queue.id, request=request, count=WAITING // QUEUES, heads=heads)


def with_free_gpus(snapshot: Snapshot, *, tasks: int) -> Snapshot:
    """The same once `tasks` running ones have ended, spread over the queues."""
    step = max(1, RUNNING // tasks)
    left = []
    seen = 0
    for group in snapshot.running:
        kept = tuple(held for number, held in enumerate(group.tasks) if (seen + number) % step)
        seen += len(group.tasks)
        left.append(replace(group, tasks=kept))
    return replace(snapshot, running=tuple(left))
