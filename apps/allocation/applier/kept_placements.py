"""Kept placements: a moved task gets the placement that was kept for it when it was stopped.

A task has one live attempt at most. So a move is a stop with a kept placement: it is stored with
the stopping attempt and is charged from then on. The first pass after the end of that attempt
admits the task there before it reads the state, so no other task can get the placement meanwhile.
"""

from datetime import datetime
from typing import Any

from django.db.models import Q

from apps.nodes.models import Device, DeviceState, Node, NodeState
from apps.policies.models import LiveState, Pool, Queue
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, AttemptState, TaskState
from apps.tasks.lifecycle.transitions import ADMIT
from apps.tasks.lifecycle.writers import TaskSubject, task_transition
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services.members.ledger import DeviceIds, devices_hold


def kept_placements_apply(*, now: datetime) -> int:
    """Admit the tasks of ended attempts to the placements that were kept for them.

    A placement that is not usable any more is given up: the task waits like any other.

    Returns:
        How many tasks were admitted.
    """
    ended = list(
        Attempt.objects.filter(moves_to__isnull=False)
        .exclude(state__in=LIVE_ATTEMPT_STATES)
        .select_for_update(no_key=True)
        .order_by("pk")
    )
    if not ended:
        return 0
    admitted = sum(_admit(old, now) for old in ended)
    Attempt.objects.filter(pk__in=[old.pk for old in ended]).update(moves_to=None)
    return admitted


def _admit(old: Attempt, now: datetime) -> bool:
    placement: list[Any] = old.moves_to or []
    devices = _usable_devices(old.pool_id, placement)
    if devices is None or not _can_continue(old) or not _waits_unchanged(old):
        return False
    new = Attempt.objects.create(
        task_id=old.task_id,
        generation=old.generation + 1,
        queue_id=old.queue_id,
        policy_id=old.policy_id,
        pool_id=old.pool_id,
        request=old.request,
        replicas=old.replicas,
        allocated_at=now,
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
    return task_transition(ADMIT, [TaskSubject.of(new, is_moved=True)], at=now)


def _waits_unchanged(old: Attempt) -> bool:
    """Whether the task still waits since that attempt; locks it.

    A task that was dequeued and enqueued again may be another size, and waits since later.
    """
    waits = Task.objects.filter(
        Q(waiting_since__lte=old.allocated_at)
        | Q(waiting_since__isnull=True, submitted_at__lte=old.allocated_at),
        pk=old.task_id,
        state=TaskState.QUEUED,
        generation=old.generation,
        queue=old.queue_id,
    )
    return waits.select_for_update(no_key=True).exists()


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
