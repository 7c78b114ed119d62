"""Engines that misread a part of the state, or of their own plan: each breaks one law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from apps.allocation.engine.model.plan import Plan
from apps.allocation.engine.model.quantities import NOTHING, Quantities
from apps.allocation.engine.model.snapshot import (
    Id,
    NodeSnapshot,
    PolicySnapshot,
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
from tests.allocation.engine.laws.history import Decide

Reading = Callable[[Snapshot], Snapshot]
Ending = Callable[[Snapshot, Plan], Plan]


@dataclass(frozen=True)
class Broken:
    """An engine that breaks `law`, by its name; `engine` makes it of the right one."""

    name: str
    law: str
    engine: Callable[[Decide], Decide]


def reads(law: str, reading: Reading) -> Broken:
    """It decides on a state that it has misread."""
    return Broken(reading.__name__, law, lambda decide: lambda snapshot: decide(reading(snapshot)))


def ends(law: str, ending: Ending) -> Broken:
    """It spoils its plan at the end."""
    return Broken(
        ending.__name__,
        law,
        lambda decide: lambda snapshot: ending(snapshot, decide(snapshot)),
    )


def _without(amounts: Quantities, key: str) -> Quantities:
    return Quantities(tuple(pair for pair in amounts.pairs if pair[0] != key))


def _pools(snapshot: Snapshot, change: Callable[[PoolSnapshot], PoolSnapshot]) -> Snapshot:
    return replace(snapshot, pools=tuple(map(change, snapshot.pools)))


def _nodes(snapshot: Snapshot, change: Callable[[NodeSnapshot], NodeSnapshot]) -> Snapshot:
    return _pools(snapshot, lambda pool: replace(pool, nodes=tuple(map(change, pool.nodes))))


def _profiles(snapshot: Snapshot, change: Callable[[ProfileSnapshot], ProfileSnapshot]) -> Snapshot:
    return replace(snapshot, profiles=tuple(map(change, snapshot.profiles)))


def _policies(snapshot: Snapshot, change: Callable[[PolicySnapshot], PolicySnapshot]) -> Snapshot:
    return replace(snapshot, policies=tuple(map(change, snapshot.policies)))


def _queues(snapshot: Snapshot, change: Callable[[QueueSnapshot], QueueSnapshot]) -> Snapshot:
    return replace(snapshot, queues=tuple(map(change, snapshot.queues)))


def _runs(snapshot: Snapshot, change: Callable[[QueuedGroup], QueuedGroup]) -> Snapshot:
    return replace(snapshot, queued_groups=tuple(map(change, snapshot.queued_groups)))


def _running(snapshot: Snapshot, change: Callable[[RunningGroup], RunningGroup]) -> Snapshot:
    return replace(snapshot, running=tuple(map(change, snapshot.running)))


def _level(snapshot: Snapshot, level: PreemptionMode) -> Snapshot:
    settings = replace(snapshot.settings, preemption=level)
    return _pools(replace(snapshot, settings=settings), lambda pool: replace(pool, preemption=None))


# Law 1: nothing is exceeded


def forgets_the_limits_of_parents(snapshot: Snapshot) -> Snapshot:
    parents = {policy.parent for policy in snapshot.policies}
    return _policies(
        snapshot, lambda one: replace(one, limit=NOTHING) if one.id in parents else one
    )


def forgets_the_limits_of_users(snapshot: Snapshot) -> Snapshot:
    return _policies(snapshot, lambda one: replace(one, user_limit=NOTHING))


def counts_one_member_of_a_gang(snapshot: Snapshot) -> Snapshot:
    return _runs(snapshot, lambda one: replace(one, replicas=1))


def gives_out_broken_gpus(snapshot: Snapshot) -> Snapshot:
    return _nodes(snapshot, lambda one: replace(one, unavailable_gpus=()))


def counts_no_cpu_on_nodes(snapshot: Snapshot) -> Snapshot:
    return _nodes(snapshot, lambda one: replace(one, capacity=_without(one.capacity, "cpu")))


def gives_out_the_capacity_of_stopping_work(snapshot: Snapshot) -> Snapshot:
    groups = tuple(group for group in snapshot.running if not group.is_stopping)
    return replace(snapshot, running=groups)


def counts_only_gpus(snapshot: Snapshot) -> Snapshot:
    return _runs(snapshot, lambda one: replace(one, request=_only_gpus(one.request)))


def _only_gpus(request: Quantities) -> Quantities:
    return Quantities(tuple(pair for pair in request.pairs if pair[0] == "gpu"))


# Law 2: no policy loses what it covers


def takes_what_must_not_be_preempted(snapshot: Snapshot) -> Snapshot:
    return _running(snapshot, lambda one: replace(one, is_preemptible=True))


def takes_covered_work(snapshot: Snapshot) -> Snapshot:
    """It believes that nothing is reserved for policies without waiting tasks."""
    queues = {queue.id: queue.policy for queue in snapshot.queues}
    waiting = {queues[queued.queue] for queued in snapshot.queued_groups}
    return _policies(
        snapshot, lambda one: one if one.id in waiting else replace(one, reserved=NOTHING)
    )


def forgets_how_new_work_is(snapshot: Snapshot) -> Snapshot:
    return _queues(snapshot, lambda one: replace(one, min_runtime_s=0))


def forgets_how_often_work_was_stopped(snapshot: Snapshot) -> Snapshot:
    return _queues(snapshot, lambda one: replace(one, max_preemptions=None))


def stops_what_is_stopping(snapshot: Snapshot) -> Snapshot:
    return _running(snapshot, lambda one: replace(one, is_stopping=False))


# Law 3: nothing is wasted


def tries_only_the_first_pool(snapshot: Snapshot) -> Snapshot:
    return _profiles(snapshot, lambda one: replace(one, pools=one.pools[:1]))


def keeps_a_gpu_of_each_pool_back(snapshot: Snapshot) -> Snapshot:
    def less(pool: PoolSnapshot) -> PoolSnapshot:
        return replace(pool, capacity=pool.capacity.plus(Quantities.of({"gpu": -1000})))

    return _pools(snapshot, less)


def gives_nothing_beyond_reservations(snapshot: Snapshot) -> Snapshot:
    return _queues(snapshot, lambda one: replace(one, allows_over_quota=False))


def is_strict_with_everybody(snapshot: Snapshot) -> Snapshot:
    return _policies(snapshot, lambda one: replace(one, queueing=QueueingMode.STRICT))


def counts_members_twice(snapshot: Snapshot) -> Snapshot:
    return _runs(snapshot, lambda one: replace(one, request=one.request.times(2)))


# Law 4: nobody envies with reason, and strict order holds


def serves_the_latest_first(snapshot: Snapshot) -> Snapshot:
    last = max(
        (head.submitted_us for queued in snapshot.queued_groups for head in queued.heads), default=0
    )

    def turned(queued: QueuedGroup) -> QueuedGroup:
        heads = [QueuedTask(last - head.submitted_us, head.task) for head in queued.heads]
        return replace(queued, heads=tuple(sorted(heads, key=_by_time)))

    return _runs(snapshot, turned)


def _by_time(head: QueuedTask) -> tuple[int, Id]:
    return head.submitted_us, head.task


def serves_low_priority_first(snapshot: Snapshot) -> Snapshot:
    return _runs(snapshot, lambda one: replace(one, priority=-one.priority))


def turns_the_order_of_profiles(snapshot: Snapshot) -> Snapshot:
    return _pools(snapshot, lambda one: replace(one, profiles=one.profiles[::-1]))


def turns_the_order_of_policies(snapshot: Snapshot) -> Snapshot:
    return _profiles(snapshot, lambda one: replace(one, policies=one.policies[::-1]))


def turns_the_order_of_pools(snapshot: Snapshot) -> Snapshot:
    return _profiles(snapshot, lambda one: replace(one, pools=one.pools[::-1]))


def forgets_strict_order(snapshot: Snapshot) -> Snapshot:
    settings = replace(snapshot.settings, queueing=QueueingMode.BEST_EFFORT)
    return _policies(replace(snapshot, settings=settings), lambda one: replace(one, queueing=None))


def orders_strictly_without_priority(snapshot: Snapshot) -> Snapshot:
    return _runs(snapshot, lambda one: replace(one, priority=0))


def forgets_that_gangs_wait(snapshot: Snapshot) -> Snapshot:
    return replace(
        snapshot,
        queued_groups=tuple(queued for queued in snapshot.queued_groups if queued.replicas == 1),
    )


# Law 5: every victim is needed


def sees_a_gpu_less_than_is_free(snapshot: Snapshot) -> Snapshot:
    return keeps_a_gpu_of_each_pool_back(snapshot)


# Law 6: covered work gets its claims


def never_preempts(snapshot: Snapshot) -> Snapshot:
    return _level(snapshot, PreemptionMode.NONE)


def protects_higher_priorities(snapshot: Snapshot) -> Snapshot:
    return _running(
        snapshot, lambda one: replace(one, is_preemptible=one.is_preemptible and not one.priority)
    )


def protects_gangs(snapshot: Snapshot) -> Snapshot:
    return _running(
        snapshot,
        lambda one: replace(one, is_preemptible=one.is_preemptible and one.replicas == 1),
    )


def protects_what_just_started(snapshot: Snapshot) -> Snapshot:
    return _queues(snapshot, lambda one: replace(one, min_runtime_s=10_000))


def reserves_half(snapshot: Snapshot) -> Snapshot:
    def halved(policy: PolicySnapshot) -> PolicySnapshot:
        amounts = {key: amount // 2 for key, amount in policy.reserved.items()}
        return replace(policy, reserved=Quantities.of(amounts))

    return _policies(snapshot, halved)


def preempts_in_the_first_pool_only(snapshot: Snapshot) -> Snapshot:
    return tries_only_the_first_pool(snapshot)


# Law 7: a second pass decides nothing, order and names change nothing


def forgets_for_whom_work_stops(snapshot: Snapshot) -> Snapshot:
    def alone(group: RunningGroup) -> RunningGroup:
        return replace(group, tasks=tuple(replace(one, stops_for=None) for one in group.tasks))

    return _running(snapshot, alone)


def takes_stopping_work_for_running(snapshot: Snapshot) -> Snapshot:
    return stops_what_is_stopping(forgets_for_whom_work_stops(snapshot))


def ranks_policies_by_row(snapshot: Snapshot) -> Snapshot:
    rows = [policy.id for policy in snapshot.policies]
    return _profiles(
        snapshot,
        lambda one: replace(one, policies=tuple(sorted(one.policies, key=rows.index))),
    )


def ranks_pools_by_row(snapshot: Snapshot) -> Snapshot:
    rows = [pool.id for pool in snapshot.pools]
    return _profiles(
        snapshot, lambda one: replace(one, pools=tuple(sorted(one.pools, key=rows.index)))
    )


def ranks_nodes_by_row(snapshot: Snapshot) -> Snapshot:
    def named(pool: PoolSnapshot) -> PoolSnapshot:
        nodes = (replace(one, name=f"{place:03d}") for place, one in enumerate(pool.nodes))
        return replace(pool, nodes=tuple(nodes))

    return _pools(snapshot, named)


def ranks_runs_by_row(snapshot: Snapshot) -> Snapshot:
    queued_groups = (
        replace(one, priority=-place) for place, one in enumerate(snapshot.queued_groups)
    )
    return replace(snapshot, queued_groups=tuple(queued_groups))


# Law 9: passes come to rest


def believes_that_who_waits_is_covered(snapshot: Snapshot) -> Snapshot:
    queues = {queue.id: queue.policy for queue in snapshot.queues}
    waiting = {queues[queued.queue] for queued in snapshot.queued_groups}
    much = Quantities.whole(gpu=1000, cpu=1000, license=1000, memory_mb=1000)
    none = much.times(0)
    changed = _policies(
        snapshot,
        lambda one: replace(one, parent=None, reserved=much if one.id in waiting else none),
    )
    return _level(changed, PreemptionMode.RECLAIM)
