"""Kept placements: a moved task gets the placement that was kept for it when it was stopped.

A task has one live attempt at most. So a move is a stop with a kept placement: it is stored with
the stopping attempt and is charged from then on. The first pass after the end of that attempt
admits the task there before it reads the state, so no other task can get the placement meanwhile.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.nodes.models import Device, DeviceState, Node, NodeState
from apps.policies.models import LiveState, Pool, Queue
from apps.policies.selectors import is_policy_paused
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, AttemptState
from apps.tasks.lifecycle.transitions import ADMIT
from apps.tasks.lifecycle.writers import TaskSubject, task_transition
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.selectors.eligibility import ELIGIBLE
from apps.tasks.services.members.ledger import DeviceIds, devices_hold


def kept_placements_apply(*, now: datetime) -> int:
    """Admit the tasks of ended attempts to the placements that were kept for them.

    A placement that is not usable any more is given up, and so is that of a task that another
    transaction is changing: the task waits like any other.

    Returns:
        How many tasks were admitted.
    """
    ended = list(_ended().select_for_update(no_key=True).order_by("pk"))
    if not ended:
        return 0
    waiting = _lock_waiting(ended)
    admitted = sum(_admit(old, now) for old in ended if old.task_id in waiting)
    Attempt.objects.filter(pk__in=[old.pk for old in ended]).update(moves_to=None)
    return admitted


def has_kept_placements() -> bool:
    """Whether a placement waits that was kept by an attempt which has ended."""
    return _ended().exists()


def _ended() -> "QuerySet[Attempt]":
    return Attempt.objects.filter(moves_to__isnull=False).exclude(state__in=LIVE_ATTEMPT_STATES)


def _lock_waiting(ended: Collection[Attempt]) -> set[UUID]:
    """The tasks that still wait since these attempts, locked.

    A task that was dequeued and enqueued again may be another size, and waits since later.
    """
    attempts = {old.task_id: old for old in ended}
    rows = (
        Task.objects.filter(ELIGIBLE, pk__in=attempts)
        .select_for_update(skip_locked=True, no_key=True)
        .order_by("pk")
    )
    return {
        task.pk
        for task in rows
        if task.generation == attempts[task.pk].generation
        and task.queue_id == attempts[task.pk].queue_id
        and task.waits_since is not None
        and task.waits_since <= attempts[task.pk].allocated_at
    }


def _admit(old: Attempt, now: datetime) -> bool:
    placement: list[Any] = old.moves_to or []
    devices = _usable_devices(old.pool_id, placement)
    if devices is None or not _can_continue(old):
        return False
    new = Attempt.objects.create(
        task_id=old.task_id,
        generation=old.generation + 1,
        queue_id=old.queue_id,
        policy_id=old.policy_id,
        pool_id=old.pool_id,
        request=old.request,
        replicas=old.replicas,
        tier=old.tier,
        allocated_at=now,
    )
    blockers = _stopping_on({node for node, _ in placement}, old)
    new.blocked_by.set(blockers)
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
    subject = TaskSubject.of(new, waits_for=len(blockers), is_moved=True)
    return task_transition(ADMIT, [subject], at=now)


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
    """Whether scheduling is on, and neither its pool nor its queue is paused or removed.

    Nor is its policy paused, or one above it. A spent budget stops no move: it is no new start.
    """
    return (
        LiveState.objects.filter(is_enabled=True).exists()
        and Pool.objects.filter(
            pk=old.pool_id, paused_at__isnull=True, removed_at__isnull=True
        ).exists()
        and Queue.objects.filter(
            pk=old.queue_id, paused_at__isnull=True, removed_at__isnull=True
        ).exists()
        and not is_policy_paused(old.policy_id)
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
