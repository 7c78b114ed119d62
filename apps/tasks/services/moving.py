"""Placing a moved task again on the seats that were kept for it.

A task has one live attempt at most. So a move is a stop with a promise: the seats are written down
with the attempt that stops, are charged from then on, and become the next attempt in the very
transaction in which that one ends. Nothing can come between, and nothing runs twice.
"""

from datetime import datetime
from typing import Any

from django.db.models import Q

from apps.core.doorbell import after_commit
from apps.events.services import Entry, events_record
from apps.nodes.models import Device, DeviceState, Node, NodeState
from apps.policies.models import LiveState, Pool, Queue
from apps.tasks.models import Attempt, Holding, Task
from apps.tasks.services.ledger import DeviceIds, devices_hold
from apps.tasks.states import AttemptState, TaskState
from apps.tasks.topics import task_topics


def attempt_move(old: Attempt, *, at: datetime) -> bool:
    """Admit the task of an attempt that has just ended to the seats that it was moved to.

    Returns:
        False where the seats are no good any more: then the task waits like any other.
    """
    seats: list[Any] = old.moves_to or []
    devices = _good_devices(old.pool_id, seats)
    if devices is None or not _may_go_on(old):
        return False
    moved = Task.objects.filter(
        pk=old.task_id, state=TaskState.QUEUED, generation=old.generation
    ).update(
        state=TaskState.ALLOCATED,
        generation=old.generation + 1,
        exit_code=None,
        changed_at=at,
    )
    if not moved:
        return False
    new = Attempt.objects.create(
        task_id=old.task_id,
        generation=old.generation + 1,
        queue_id=old.queue_id,
        policy_id=old.policy_id,
        pool_id=old.pool_id,
        request=old.request,
        replicas=old.replicas,
        allocated_at=at,
    )
    new.blocked_by.set(_leaving({node for node, _ in seats}, old))
    holdings = Holding.objects.bulk_create(
        Holding(
            attempt=new,
            rank=rank,
            pool_id=new.pool_id,
            node_id=node,
            amounts=new.request,
            devices=given,
        )
        for rank, (node, given) in enumerate(seats)
    )
    devices_hold(holdings, devices, blocked={new.pk})
    _tell(new)
    return True


def _good_devices(pool_id: int, seats: list[Any]) -> DeviceIds | None:
    """The devices of the seats' nodes; None when something new must not start on the seats."""
    nodes = {node for node, _ in seats}
    serving = Node.objects.filter(
        pk__in=nodes,
        pool=pool_id,
        state=NodeState.HEALTHY,
        is_draining=False,
        paused_at__isnull=True,
        removed_at__isnull=True,
    )
    if not nodes or serving.count() < len(nodes):
        return None
    rows = Device.objects.filter(node__in=nodes, state=DeviceState.HEALTHY)
    devices = {(node, index): pk for node, index, pk in rows.values_list("node_id", "index", "pk")}
    named = {(node, index) for node, given in seats for index, _ in given}
    return devices if named <= devices.keys() else None


def _may_go_on(old: Attempt) -> bool:
    """Nobody has paused or closed meanwhile what the task belongs to."""
    return (
        LiveState.objects.filter(is_enabled=True).exists()
        and Pool.objects.filter(
            pk=old.pool_id, paused_at__isnull=True, removed_at__isnull=True
        ).exists()
        and Queue.objects.filter(
            pk=old.queue_id,
            paused_at__isnull=True,
            removed_at__isnull=True,
            policy__paused_at__isnull=True,
        ).exists()
    )


def _leaving(nodes: set[int], old: Attempt) -> list[Attempt]:
    """Those who were preempted on the seats' nodes and are not gone yet, aborted since or not."""
    return list(
        Attempt.objects.filter(
            Q(is_preempted=True) | Q(stops_for__isnull=False),
            state=AttemptState.STOPPING,
            holdings__node__in=nodes,
            holdings__released_at__isnull=True,
        )
        .exclude(pk=old.pk)
        .distinct()
        .order_by("pk")
    )


def _tell(new: Attempt) -> None:
    entry = Entry(
        kind="task.allocated",
        object_type="task",
        object_id=new.task_id,
        queue_id=new.queue_id,
        policy_id=new.policy_id,
        data={"generation": new.generation, "pool": new.pool_id, "is_moved": True},
    )
    topics = task_topics(
        new.task_id, queue_id=new.queue_id, policy_id=new.policy_id, pool_id=new.pool_id
    )
    events_record([entry], topics=topics)
    after_commit(tasks=["execution.look"])
