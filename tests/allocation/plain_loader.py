"""The loader once more, without anything that makes it fast: model instances, one by one.

What `tests/allocation/test_loader_row_cache.py` compares the real one with. Only pools and running
work, which the real one keeps between passes.
"""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

from apps.allocation.engine.model.quantities import GPU, UNCOUNTED_UNLESS_LISTED, Quantities
from apps.allocation.engine.model.snapshot import (
    DeviceShare,
    MemberPlacement,
    NodeSnapshot,
    PoolSnapshot,
    PreemptionMode,
    RunningGroup,
    RunningTask,
)
from apps.core.units import quantities_milli
from apps.nodes import models as nodes
from apps.policies import models as policies
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES
from apps.tasks.models import Attempt

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plain_pools() -> tuple[PoolSnapshot, ...]:
    """Every live pool with its nodes."""
    return tuple(_pool(row) for row in policies.Pool.objects.filter(removed_at=None).order_by("id"))


def _pool(row: policies.Pool) -> PoolSnapshot:
    configured = quantities_milli(row.capacity)
    there = row.nodes.filter(removed_at=None).exclude(state="new").order_by("id")
    own = [_node(node) for node in there]
    reported = {key for node in own for key in node.capacity}
    served = {
        key: min(amount, sum(node.capacity.get(key) for node in own)) if key in reported else amount
        for key, amount in configured.items()
    }
    return PoolSnapshot(
        id=row.pk,
        name=row.name,
        capacity=Quantities.of(served),
        profiles=tuple(
            row.links.order_by("execution_rank", "profile_id").values_list("profile_id", flat=True)
        ),
        nodes=tuple(_with_pool_keys(node, configured) for node in own),
        has_backfill=row.backfill,
        is_paused=row.is_paused,
        has_server=bool(own),
        preemption=PreemptionMode(row.preemption) if row.preemption else None,
    )


def _node(row: nodes.Node) -> NodeSnapshot:
    devices = list(row.devices.order_by("index"))
    capacity = quantities_milli(row.capacity)
    if devices:
        capacity[GPU] = min(capacity.get(GPU, len(devices) * 1000), len(devices) * 1000)
    return NodeSnapshot(
        id=row.pk,
        name=row.name,
        capacity=Quantities.of(capacity),
        model=row.gpu_model or None,
        gpu_indices=tuple(device.index for device in devices) or None,
        unavailable_gpus=tuple(one.index for one in devices if one.state != "healthy"),
        is_schedulable=row.state == "healthy" and not row.is_draining and not row.is_paused,
    )


def _with_pool_keys(node: NodeSnapshot, configured: dict[str, int]) -> NodeSnapshot:
    capacity = node.capacity.as_dict()
    for key, amount in configured.items():
        if key not in capacity and key != GPU and key not in UNCOUNTED_UNLESS_LISTED:
            capacity[key] = amount
    return NodeSnapshot(
        node.id,
        node.name,
        Quantities.of(capacity),
        node.model,
        node.gpu_indices,
        node.unavailable_gpus,
        node.is_schedulable,
    )


def plain_running() -> dict[tuple[Any, ...], frozenset[RunningTask]]:
    """Every live attempt, in groups: what `grouped` makes of the real ones."""
    found: dict[tuple[Any, ...], set[RunningTask]] = defaultdict(set)
    for row in Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES):
        task = row.task
        key = (
            row.pool_id,
            row.policy_id,
            row.queue.profile_id,
            Quantities.of(row.request),
            row.queue_id,
            row.replicas,
            task.priority,
            task.is_preemptible,
            task.owner_id if _is_limited(row.policy) else None,
            bool(task.task_group and task.task_group.exceeds_limit),
            row.state == "stopping",
        )
        found[key].add(_held(row))
    return {key: frozenset(held) for key, held in found.items()}


def grouped(running: tuple[RunningGroup, ...]) -> dict[tuple[Any, ...], frozenset[RunningTask]]:
    """Groups by what their work has in common, in no order."""
    found = {
        (
            one.pool,
            one.policy,
            one.profile,
            one.request,
            one.queue,
            one.replicas,
            one.priority,
            one.is_preemptible,
            one.user,
            one.can_exceed_limit,
            one.is_stopping,
        ): frozenset(one.tasks)
        for one in running
    }
    assert sum(map(len, found.values())) == sum(len(one.tasks) for one in running)
    return found


def _is_limited(policy: policies.Policy | None) -> bool:
    while policy is not None:
        if policy.user_limit:
            return True
        policy = policy.parent
    return False


def _held(row: Attempt) -> RunningTask:
    taker = row.stops_for if not row.moves_to else None
    is_taken = taker is not None and taker.state in LIVE_ATTEMPT_STATES
    return RunningTask(
        task=str(row.task_id),
        submitted_us=_us(row.task.submitted_at),
        started_us=_us(row.started_at or row.allocated_at),
        members=tuple(
            _member(node, devices) for node, devices in row.moves_to or _open_members(row)
        ),
        checkpointed_us=_us(row.checkpointed_at) if row.checkpointed_at else None,
        preemptions=row.task.preemptions,
        stops_for=str(taker.task_id) if taker is not None and is_taken else None,
        is_leaving=row.state == "stopping" and not is_taken and not row.moves_to,
        is_movable=row.task.is_restartable,
    )


def _open_members(row: Attempt) -> list[tuple[int | None, list[Any]]]:
    open_ones = row.members.filter(released_at=None, node__isnull=False).order_by("rank")
    return [(one.node_id, one.devices) for one in open_ones]


def _member(node: Any, devices: list[Any]) -> MemberPlacement:
    return MemberPlacement(
        node=node, devices=tuple(DeviceShare(index, milli) for index, milli in devices)
    )


def _us(moment: datetime | None) -> int:
    assert moment is not None
    return (moment - _EPOCH) // timedelta(microseconds=1)
