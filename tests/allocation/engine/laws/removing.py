"""What a reason names, taken away: exactly that, by its own numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from apps.allocation.engine.plan import Wait
from apps.allocation.engine.quantities import Quantities
from apps.allocation.engine.reasons import Code, Detail, Reason
from apps.allocation.engine.snapshot import Id, Node, Policy, Pool, Profile, Queue, Run, Snapshot


def without_blocker(snapshot: Snapshot, wait: Wait) -> Snapshot:
    """The snapshot without what the dominant reason of `wait` names."""
    reason = wait.reasons[0]
    return _REMOVE[reason.code](snapshot, wait, reason)


def alone(snapshot: Snapshot, wait: Wait) -> Snapshot:
    """Only the first task of the run waits: nobody else takes what is given."""
    run = snapshot.runs[wait.run]
    head = next(one for one in run.heads if one.task == wait.tasks[0])
    return replace(snapshot, runs=(replace(run, heads=(head,), count=1),))


def _policies(snapshot: Snapshot, change: Callable[[Policy], Policy]) -> Snapshot:
    return replace(snapshot, policies=tuple(map(change, snapshot.policies)))


def _pools(snapshot: Snapshot, change: Callable[[Pool], Pool]) -> Snapshot:
    return replace(snapshot, pools=tuple(map(change, snapshot.pools)))


def _queues(snapshot: Snapshot, change: Callable[[Queue], Queue]) -> Snapshot:
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


def _no_pool(snapshot: Snapshot, wait: Wait, _reason: Reason) -> Snapshot:
    queue = next(one for one in snapshot.queues if one.id == wait.queue)
    pool = Pool(
        id="~new", name="~new", capacity=Quantities.whole(gpu=100), profiles=(queue.profile,)
    )

    def linked(profile: Profile) -> Profile:
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
    def raised(policy: Policy) -> Policy:
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
    run = snapshot.runs[wait.run]
    queue = next(one for one in snapshot.queues if one.id == run.queue)
    profile = next(one for one in snapshot.profiles if one.id == queue.profile)
    details = {one.pool: one for one in reason.details}

    def larger(pool: Pool) -> Pool:
        detail = details.get(pool.id)
        if detail is None or detail.needed is None or detail.free is None:
            return pool
        if pool.nodes:
            return _with_node(pool, run, profile)
        more = Quantities.of({detail.key or "gpu": detail.needed - detail.free})
        return replace(pool, capacity=pool.capacity.plus(more))

    return _pools(snapshot, larger)


def _with_node(pool: Pool, run: Run, profile: Profile) -> Pool:
    """One more node with room for the whole task."""
    gpus = -(-run.request.get("gpu") // 1000) * 1000
    amounts = Quantities.of({**run.request.as_dict(), "gpu": gpus}).times(run.replicas)
    node = Node(
        id=f"~{pool.id}",
        name=f"~{pool.id}",
        capacity=amounts,
        model=profile.models[0] if profile.models else None,
    )
    # What was given beyond the capacity (somebody lowered it) is no room.
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
    runs = []
    for run in snapshot.runs:
        left = tuple(head for head in run.heads if head.task not in named)
        runs.append(replace(run, heads=left, count=run.count - len(run.heads) + len(left)))
    return replace(snapshot, runs=tuple(run for run in runs if run.heads))


def _draining(snapshot: Snapshot, _wait: Wait, reason: Reason) -> Snapshot:
    named = {task for one in reason.details for task in one.tasks}
    groups = (
        replace(group, tasks=tuple(held for held in group.tasks if held.task not in named))
        for group in snapshot.running
    )
    return replace(snapshot, running=tuple(group for group in groups if group.tasks))


def _protected(snapshot: Snapshot, _wait: Wait, reason: Reason) -> Snapshot:
    named = {task for one in reason.details for task in one.tasks}
    queues: set[Id | None] = {
        group.queue for group in snapshot.running for held in group.tasks if held.task in named
    }
    return _queues(
        snapshot,
        lambda one: (
            replace(one, min_runtime_s=0, max_preemptions=None) if one.id in queues else one
        ),
    )


_REMOVE: dict[Code, Callable[[Snapshot, Wait, Reason], Snapshot]] = {
    Code.DISABLED: _disabled,
    Code.PAUSED: _paused,
    Code.NO_POOL: _no_pool,
    Code.NO_SERVER: _no_server,
    Code.LIMIT: _limit,
    Code.NEEDS_RESERVATION: _reservation,
    Code.OVER_QUOTA_NOT_ALLOWED: _reservation,
    Code.CAPACITY: _capacity,
    Code.OUTRANKED: _others,
    Code.BEHIND: _named_waiting,
    Code.HELD: _named_waiting,
    Code.DRAINING: _draining,
    Code.PROTECTED: _protected,
}
