"""Snapshot to JSON: names instead of ids, so that it can be read without the database."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import (
    Id,
    MemberPlacement,
    NodeSnapshot,
    PolicySnapshot,
    PoolSnapshot,
    ProfileSnapshot,
    QueuedGroup,
    QueueingMode,
    QueueSnapshot,
    RunningGroup,
    RunningTask,
    Snapshot,
)
from apps.allocation.scenarios.fields import MICROSECONDS
from apps.core.units import milli_text


def snapshot_to_json(snapshot: Snapshot) -> str:
    """A scenario file without expectations; reading it gives a snapshot with the same plan.

    Names become the ids, a name that occurs twice with its id behind it. What running work refers
    to and the snapshot does not hold (a removed profile) is added without links.
    """
    return json.dumps(_Writer(snapshot).data(), ensure_ascii=False)


class _Writer:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.pools = _names(snapshot.pools, (one.pool for one in snapshot.running))
        self.profiles = _names(snapshot.profiles, (one.profile for one in snapshot.running))
        self.policies = _names(snapshot.policies, ())
        self.nodes = {node.id: node.name for pool in snapshot.pools for node in pool.nodes}
        self.queues = {queue.id: queue for queue in snapshot.queues}

    def data(self) -> dict[str, Any]:
        snapshot = self.snapshot
        ranked = sorted(snapshot.policies, key=lambda one: (one.rank, one.name, one.id))
        known_pools = {pool.id for pool in snapshot.pools}
        known_profiles = {profile.id for profile in snapshot.profiles}
        pools = [self._pool(pool) for pool in snapshot.pools]
        pools += [
            {"name": name, "capacity": {}, "profiles": [], "has_server": False}
            for id_, name in self.pools.items()
            if id_ not in known_pools
        ]
        profiles = [self._profile(profile) for profile in snapshot.profiles]
        profiles += [
            {"name": name, "request": {}, "pools": []}
            for id_, name in self.profiles.items()
            if id_ not in known_profiles
        ]
        tasks = [task for queued in snapshot.queued_groups for task in self._waiting(queued)]
        tasks += [task for group in snapshot.running for task in self._running(group)]
        return {
            "settings": self._settings(),
            "now": _seconds(snapshot.now_us),
            "pools": pools,
            "profiles": profiles,
            "policies": [self._policy(policy) for policy in ranked],
            "tasks": tasks,
            "usual": [self._usual(number) for number in range(len(snapshot.usual))],
        }

    def _settings(self) -> dict[str, Any]:
        settings = self.snapshot.settings
        return {
            "enabled": settings.is_enabled,
            "queueing": settings.queueing.value,
            "preemption": settings.preemption.value,
            "over_quota": settings.over_quota.value,
            "consolidation": settings.has_consolidation,
        }

    def _pool(self, pool: PoolSnapshot) -> dict[str, Any]:
        return _set(
            name=self.pools[pool.id],
            capacity=_amounts(pool.capacity),
            profiles=[self.profiles[one] for one in pool.profiles if one in self.profiles],
            nodes=[_node(node) for node in pool.nodes] or None,
            backfill=None if pool.has_backfill else False,
            paused=pool.is_paused or None,
            has_server=None if pool.has_server else False,
            preemption=pool.preemption.value if pool.preemption else None,
        )

    def _profile(self, profile: ProfileSnapshot) -> dict[str, Any]:
        return _set(
            name=self.profiles[profile.id],
            request=_amounts(profile.request),
            pools=[self.pools[one] for one in profile.pools if one in self.pools],
            policies=[self.policies[one] for one in profile.policies if one in self.policies],
            replicas=profile.replicas,
            models=list(profile.models) or None,
        )

    def _policy(self, policy: PolicySnapshot) -> dict[str, Any]:
        queues = [queue for queue in self.snapshot.queues if queue.policy == policy.id]
        settings = {self.profiles[one.profile]: _queue(one) for one in queues}
        return _set(
            name=self.policies[policy.id],
            parent=self.policies.get(policy.parent) if policy.parent is not None else None,
            reserved=_amounts(policy.reserved),
            limit=_amounts(policy.limit),
            user_limit=_amounts(policy.user_limit) or None,
            weight=milli_text(policy.weight_milli),
            strict=None if policy.queueing is None else policy.queueing is QueueingMode.STRICT,
            paused=policy.is_paused or None,
            spent=policy.is_spent or None,
            removed=policy.is_removed or None,
            profiles=[self.profiles[queue.profile] for queue in queues],
            queues={name: one for name, one in settings.items() if one} or None,
        )

    def _waiting(self, queued: QueuedGroup) -> Iterable[dict[str, Any]]:
        queue = self.queues[queued.queue]
        common = self._common(queued, queue.policy, queue.profile)
        last = len(queued.heads) - 1
        for number, head in enumerate(queued.heads):
            more = queued.count - len(queued.heads) if number == last else 0
            yield {
                "id": head.task,
                "state": "queued",
                "submitted": _seconds(head.submitted_us),
                **common,
                **({"more": more} if more else {}),
            }

    def _running(self, group: RunningGroup) -> Iterable[dict[str, Any]]:
        common = self._common(group, group.policy, group.profile)
        common["pool"] = self.pools[group.pool]
        common["state"] = "stopping" if group.is_stopping else "running"
        for running_task in group.tasks:
            yield {"id": running_task.task, **common, **self._held(running_task)}

    def _held(self, running_task: RunningTask) -> dict[str, Any]:
        members = tuple(member for member in running_task.members if member.node in self.nodes)
        return {
            "submitted": _seconds(running_task.submitted_us),
            "started": _seconds(running_task.started_us),
            **_set(
                nodes=[self.nodes[member.node] for member in members] or None,
                devices=_devices(members),
                checkpointed=(
                    None
                    if running_task.checkpointed_us is None
                    else _seconds(running_task.checkpointed_us)
                ),
                preemptions=running_task.preemptions or None,
                movable=None if running_task.is_movable else False,
                leaving=running_task.is_leaving or None,
            ),
            **({} if running_task.stops_for is None else {"for": running_task.stops_for}),
        }

    def _common(self, work: QueuedGroup | RunningGroup, policy: Id, profile: Id) -> dict[str, Any]:
        return _set(
            policy=self.policies[policy],
            profile=self.profiles[profile],
            request=_amounts(work.request),
            replicas=work.replicas,
            priority=work.priority,
            preemptible=work.is_preemptible,
            user=str(work.user) if work.user is not None else None,
            exceed_limit=work.can_exceed_limit or None,
        )

    def _usual(self, number: int) -> dict[str, Any]:
        usual = self.snapshot.usual[number]
        return _set(
            request=_amounts(usual.request),
            frequency=usual.frequency,
            replicas=usual.replicas,
            models=list(usual.models) or None,
            pool=self.pools.get(usual.pool) if usual.pool is not None else None,
        )


def _names(
    things: Iterable[PoolSnapshot | ProfileSnapshot | PolicySnapshot], others: Iterable[Id]
) -> dict[Id, str]:
    """By id the name, with the id where the name occurs more than once."""
    listed = list(things)
    counts: dict[str, int] = {}
    for thing in listed:
        counts[thing.name] = counts.get(thing.name, 0) + 1
    names = {
        thing.id: thing.name if counts[thing.name] == 1 else f"{thing.name} ({thing.id})"
        for thing in listed
    }
    for id_ in others:
        names.setdefault(id_, f"removed {id_}")
    return names


def _node(node: NodeSnapshot) -> dict[str, Any]:
    return _set(
        name=node.name,
        capacity=_amounts(node.capacity),
        model=node.model,
        gpu_indices=None if node.gpu_indices is None else list(node.gpu_indices),
        unavailable_gpus=list(node.unavailable_gpus) or None,
        schedulable=None if node.is_schedulable else False,
    )


def _queue(queue: QueueSnapshot) -> dict[str, Any]:
    return _set(
        allow_over_quota=None if queue.allows_over_quota else False,
        paused=queue.is_paused or None,
        min_runtime=queue.min_runtime_s or None,
        max_preemptions=queue.max_preemptions,
    )


def _devices(members: tuple[MemberPlacement, ...]) -> list[list[list[Any]]] | None:
    if not any(member.devices for member in members):
        return None
    return [
        [[share.index, milli_text(share.milli)] for share in member.devices] for member in members
    ]


def _amounts(quantities: Quantities) -> dict[str, str]:
    return {key: milli_text(amount) for key, amount in quantities.items()}


def _seconds(micros: int) -> int | float:
    """Whole seconds as such; parts of one as exactly as a double can hold microseconds."""
    whole, rest = divmod(micros, MICROSECONDS)
    return micros / MICROSECONDS if rest else whole


def _set(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
