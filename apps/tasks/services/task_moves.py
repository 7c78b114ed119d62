"""Moves of running tasks: a new attempt at the placement that was kept for it.

A task has one live attempt at most. So a move is a stop with a kept placement: it is stored with
the stopping attempt, is charged from then on, and becomes the next attempt in the transaction in
which the old one ends. No other task can get it meanwhile, and no task runs twice.
"""

from datetime import datetime
from typing import Any

from django.db.models import Q

from apps.core.notifications import after_commit
from apps.events.services import Entry, events_record
from apps.nodes.models import Device, DeviceState, Node, NodeState
from apps.policies.models import LiveState, Pool, Queue
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services.ledger import DeviceIds, devices_hold
from apps.tasks.states import AttemptState, TaskState
from apps.tasks.topics import task_topics


def attempt_move(old: Attempt, *, at: datetime) -> bool:
    """Admit the task of an attempt that has just ended to the placement that was kept for it.

    Returns:
        False where the placement is not usable any more: the task waits like any other.
    """
    placement: list[Any] = old.moves_to or []
    devices = _usable_devices(old.pool_id, placement)
    if devices is None or not _can_continue(old):
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
    new.blocked_by.set(_stopping_on({node for node, _ in placement}, old))
    members = Member.objects.bulk_create(
        Member(
            attempt=new,
            rank=rank,
            pool_id=new.pool_id,
            node_id=node,
            amounts=new.request,
            devices=given,
        )
        for rank, (node, given) in enumerate(placement)
    )
    devices_hold(members, devices, blocked={new.pk})
    _record(new)
    return True


def _usable_devices(pool_id: int, placement: list[Any]) -> DeviceIds | None:
    """The devices of the placement's nodes; None where no new work may start on them."""
    nodes = {node for node, _ in placement}
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
    named = {(node, index) for node, given in placement for index, _ in given}
    return devices if named <= devices.keys() else None


def _can_continue(old: Attempt) -> bool:
    """Whether scheduling is on, and the task's pool, queue and policy are not paused or removed."""
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


def _stopping_on(nodes: set[int], old: Attempt) -> list[Attempt]:
    """Preempted attempts on the placement's nodes that still stop, aborted since or not."""
    return list(
        Attempt.objects.filter(
            Q(is_preempted=True) | Q(stops_for__isnull=False),
            state=AttemptState.STOPPING,
            members__node__in=nodes,
            members__released_at__isnull=True,
        )
        .exclude(pk=old.pk)
        .distinct()
        .order_by("pk")
    )


def _record(new: Attempt) -> None:
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
    after_commit(notify=["execution.poll"])
