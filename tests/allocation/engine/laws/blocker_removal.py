"""Removing what a reason names: exactly that, by its own numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from apps.allocation.engine.model.plan import Wait
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.reasons import Detail, Reason, ReasonCode
from apps.allocation.engine.model.snapshot import (
    Id,
    NodeSnapshot,
    PolicySnapshot,
    PoolSnapshot,
    ProfileSnapshot,
    QueuedGroup,
    QueueSnapshot,
    Snapshot,
)


def without_blocker(snapshot: Snapshot, wait: Wait) -> Snapshot:
    """The snapshot without what the dominant reason of `wait` names."""
    reason = wait.reasons[0]
    return _REMOVE[reason.code](snapshot, wait, reason)


def alone(snapshot: Snapshot, wait: Wait) -> Snapshot:
    """Only the first task of the group waits: no other takes what is given."""
    queued = snapshot.queued_groups[wait.index]
    head = next(one for one in queued.heads if one.task == wait.tasks[0])
    return replace(snapshot, queued_groups=(replace(queued, heads=(head,), count=1),))


def _policies(snapshot: Snapshot, change: Callable[[PolicySnapshot], PolicySnapshot]) -> Snapshot:
    return replace(snapshot, policies=tuple(map(change, snapshot.policies)))


def _pools(snapshot: Snapshot, change: Callable[[PoolSnapshot], PoolSnapshot]) -> Snapshot:
    return replace(snapshot, pools=tuple(map(change, snapshot.pools)))


def _queues(snapshot: Snapshot, change: Callable[[QueueSnapshot], QueueSnapshot]) -> Snapshot:
    return replace(snapshot, queues=tuple(map(change, snapshot.queues)))


def _with(amounts: Quantities, key: str | None, amount: int) -> Quantities:
    return Quantities.of({**amounts.as_dict(), key or "gpu": amount})


def _wanted(detail: Detail) -> int:
    """What would be used with the task."""
    assert detail.usage is not None
    assert detail.needed is not None
    return detail.usage + detail.needed


def _disabled(snapshot: Snapshot, _wait: Wait, _reason: Reason) -> Snapshot:
    return replace(snapshot, settings=replace(snapshot.settings, is_enabled=True))


def _paused(snapshot: Snapshot, _wait: Wait, reason: Reason) -> Snapshot:
    ids = {id_ for one in reason.details for id_ in (one.queue, one.policy, one.pool)}
    found = _queues(
        snapshot, lambda one: replace(one, is_paused=one.is_paused and one.id not in ids)
    )
    found = _policies(
        found, lambda one: replace(one, is_paused=one.is_paused and one.id not in ids)
    )
    return _pools(found, lambda one: replace(one, is_paused=one.is_paused and one.id not in ids))


def _budget(snapshot: Snapshot, _wait: Wait, reason: Reason) -> Snapshot:
    ids = {one.policy for one in reason.details}
    return _policies(
        snapshot, lambda one: replace(one, is_spent=one.is_spent and one.id not in ids)
    )


def _no_pool(snapshot: Snapshot, wait: Wait, _reason: Reason) -> Snapshot:
    queue = next(one for one in snapshot.queues if one.id == wait.queue)
    pool = PoolSnapshot(
        id="~new", name="~new", capacity=Quantities.whole(gpu=100), profiles=(queue.profile,)
    )

    def linked(profile: ProfileSnapshot) -> ProfileSnapshot:
        return replace(profile, pools=("~new",)) if profile.id == queue.profile else profile

    profiles = tuple(map(linked, snapshot.profiles))
    return replace(snapshot, pools=(*snapshot.pools, pool), profiles=profiles)


def _no_server(snapshot: Snapshot, _wait: Wait, reason: Reason) -> Snapshot:
    ids = {one.pool for one in reason.details}
    return _pools(snapshot, lambda one: replace(one, has_server=True) if one.id in ids else one)


def _limit(snapshot: Snapshot, _wait: Wait, reason: Reason) -> Snapshot:
    for detail in reason.details:
        name = "limit" if detail.user is None else "user_limit"
        snapshot = _raised(snapshot, detail, name)
    return snapshot


def _reservation(snapshot: Snapshot, wait: Wait, reason: Reason) -> Snapshot:
    if not reason.details:
        return _queues(
            snapshot,
            lambda one: replace(
                one, allows_over_quota=one.allows_over_quota or one.id == wait.queue
            ),
        )
    for detail in reason.details:
        snapshot = _raised(snapshot, detail, "reserved")
    return snapshot


def _raised(snapshot: Snapshot, detail: Detail, name: str) -> Snapshot:
    def raised(policy: PolicySnapshot) -> PolicySnapshot:
        if policy.id != detail.policy:
            return policy
        amounts = _with(getattr(policy, name), detail.key, _wanted(detail))
        if name == "limit":
            return replace(policy, limit=amounts)
        if name == "user_limit":
            return replace(policy, user_limit=amounts)
        return replace(policy, reserved=amounts)

    return _policies(snapshot, raised)


def _capacity(snapshot: Snapshot, wait: Wait, reason: Reason) -> Snapshot:
    queued = snapshot.queued_groups[wait.index]
    queue = next(one for one in snapshot.queues if one.id == queued.queue)
    profile = next(one for one in snapshot.profiles if one.id == queue.profile)
    details = {one.pool: one for one in reason.details}

    def larger(pool: PoolSnapshot) -> PoolSnapshot:
        detail = details.get(pool.id)
        if detail is None or detail.needed is None or detail.free is None:
            return pool
        if pool.nodes:
            return _with_node(pool, queued, profile)
        more = Quantities.of({detail.key or "gpu": detail.needed - detail.free})
        return replace(pool, capacity=pool.capacity.plus(more))

    return _pools(snapshot, larger)


def _with_node(pool: PoolSnapshot, queued: QueuedGroup, profile: ProfileSnapshot) -> PoolSnapshot:
    """One more node that fits the whole task."""
    gpus = -(-queued.request.get("gpu") // 1000) * 1000
    amounts = Quantities.of({**queued.request.as_dict(), "gpu": gpus}).times(queued.replicas)
    node = NodeSnapshot(
        id=f"~{pool.id}",
        name=f"~{pool.id}",
        capacity=amounts,
        model=profile.models[0] if profile.models else None,
    )
    # What was given beyond the capacity (which was lowered since) is not free.
    more = amounts.plus(Quantities.whole(gpu=100, cpu=100, license=100, memory_mb=100))
    listed = Quantities(
        tuple(pair for pair in more.pairs if pair[0] in pool.capacity or pair[0] == "license")
    )
    return replace(pool, nodes=(*pool.nodes, node), capacity=pool.capacity.plus(listed))


def _others(snapshot: Snapshot, wait: Wait, _reason: Reason) -> Snapshot:
    return alone(snapshot, wait)


def _named_waiting(snapshot: Snapshot, wait: Wait, reason: Reason) -> Snapshot:
    """Without the waiting tasks that the reason names, or those before it in the queue."""
    named = {task for one in reason.details for task in one.tasks}
    if not named:
        return alone(snapshot, wait)
    queued_groups = []
    for queued in snapshot.queued_groups:
        left = tuple(head for head in queued.heads if head.task not in named)
        queued_groups.append(
            replace(queued, heads=left, count=queued.count - len(queued.heads) + len(left))
        )
    return replace(
        snapshot, queued_groups=tuple(queued for queued in queued_groups if queued.heads)
    )


def _draining(snapshot: Snapshot, _wait: Wait, reason: Reason) -> Snapshot:
    named = {task for one in reason.details for task in one.tasks}
    groups = (
        replace(
            group,
            tasks=tuple(
                running_task for running_task in group.tasks if running_task.task not in named
            ),
        )
        for group in snapshot.running
    )
    return replace(snapshot, running=tuple(group for group in groups if group.tasks))


def _protected(snapshot: Snapshot, _wait: Wait, reason: Reason) -> Snapshot:
    named = {task for one in reason.details for task in one.tasks}
    queues: set[Id | None] = {
        group.queue
        for group in snapshot.running
        for running_task in group.tasks
        if running_task.task in named
    }
    return _queues(
        snapshot,
        lambda one: (
            replace(one, min_runtime_s=0, max_preemptions=None) if one.id in queues else one
        ),
    )


_REMOVE: dict[ReasonCode, Callable[[Snapshot, Wait, Reason], Snapshot]] = {
    ReasonCode.DISABLED: _disabled,
    ReasonCode.PAUSED: _paused,
    ReasonCode.BUDGET: _budget,
    ReasonCode.NO_POOL: _no_pool,
    ReasonCode.NO_SERVER: _no_server,
    ReasonCode.LIMIT: _limit,
    ReasonCode.NEEDS_RESERVATION: _reservation,
    ReasonCode.OVER_QUOTA_NOT_ALLOWED: _reservation,
    ReasonCode.CAPACITY: _capacity,
    ReasonCode.OUTRANKED: _others,
    ReasonCode.BEHIND: _named_waiting,
    ReasonCode.HELD: _named_waiting,
    ReasonCode.DRAINING: _draining,
    ReasonCode.PROTECTED: _protected,
}
