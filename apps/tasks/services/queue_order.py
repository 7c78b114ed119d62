"""The order of waiting tasks: moves inside their queue and to another one, and priorities."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal, cast
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone

from apps.access.selectors import queues_visible_to
from apps.accounts.models import User
from apps.core.errors import BadInput, Conflict, NotAllowed, NotFound, Stale
from apps.core.notifications import NOTIFY_ALLOCATION, after_commit
from apps.events.services import NewEvent, events_record, undo_check
from apps.policies.models import Queue
from apps.tasks.acceptance import accept
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.lifecycle.transitions import CHANGE_QUEUE
from apps.tasks.models import Task
from apps.tasks.selectors.facts import queue_facts
from apps.tasks.selectors.mounts import mounts_for
from apps.tasks.selectors.queue_order import tasks_in_order
from apps.tasks.services.enqueue.queue_entry import spec_values, task_return
from apps.tasks.services.queues import (
    can_manage_queue,
    check_can_manage_task,
    queue_open_to,
)
from apps.tasks.services.stop import not_waiting
from apps.tasks.services.task_groups import task_group_ensure
from apps.tasks.task_spec import spec_of
from apps.tasks.topics import task_topics

OrderMove = Literal["top", "up", "down", "bottom", "before", "after"]
MOVES: tuple[OrderMove, ...] = ("top", "up", "down", "bottom", "before", "after")
# Leaves space between two neighbours for many more moves.
STEP = timedelta(milliseconds=1)
LEAST = timedelta(microseconds=2)
Pair = tuple[Task | None, Task | None]


@transaction.atomic
def task_reorder(
    *,
    actor: User,
    task: Task,
    move: OrderMove,
    other: UUID | None = None,
    version: datetime | None = None,
) -> Task:
    """Move a waiting task among its equals.

    Equals are tasks of the same queue and priority that are all preemptible or all not. A move
    never passes a task of higher priority, and the waiting time of the task stays as it is.

    Args:
        other: the task to move before or after; only for these two moves.
        version: the time of the last change that was read; None does not check.

    Raises:
        NotAllowed: the actor does not manage the queue.
        NotFound: the other task does not wait there.
        Conflict: the task does not wait any more, or the other task is no equal.
        Stale: the task changed since it was read.
    """
    # One move at a time, and the queue is not closed meanwhile.
    live = Queue.objects.select_for_update(no_key=True, of=("self",))
    queue = live.filter(pk=task.queue_id or 0).first()
    if queue is None or not can_manage_queue(actor, queue.pk):
        raise NotAllowed("Only users who manage this queue can set its order.")
    row = Task.objects.select_for_update(no_key=True).get(pk=task.pk)
    if row.state != TaskState.QUEUED or row.queue_id != queue.pk:
        raise Conflict(f"{row.name} does not wait in {queue.name} any more.")
    _check_version(row, version)
    # The tasks among which it may move, in order, without itself.
    equals = tasks_in_order(queue.pk).exclude(pk=row.pk)
    equals = equals.filter(priority=row.priority, is_preemptible=row.is_preemptible)
    if row.array_count is not None:
        equals = equals.exclude(array=row.pk)
    left, right = _neighbours(equals, row, move, other)
    if left is None and right is None:
        return row
    moment = _moment_between(equals, left, right)
    moved = (
        Q(pk=row.pk)
        if row.array_count is None
        else Q(pk=row.pk) | Q(array=row.pk, queue=row.queue_id)
    )
    Task.objects.filter(moved, state=TaskState.QUEUED).update(
        submitted_at=moment, waiting_since=row.waits_since, changed_at=timezone.now()
    )
    _record(actor, row, queue, move)
    row.refresh_from_db()
    return row


@transaction.atomic
def task_change_queue(
    *,
    actor: User,
    task: Task,
    queue: str | int,
    seen_in: int | None = None,
    undoes: int | None = None,
    version: datetime | None = None,
) -> Task:
    """Move a waiting task to another queue, checked again, last among its equals there.

    Args:
        seen_in: the queue where the actor saw it; None: the queue of `task`.
        undoes: the event of the move to undo; refused unless it is the last one.
        version: the time of the last change that was read; None does not check.

    Raises:
        NotAllowed: the actor neither owns the task nor manages its queue, or actor or owner may
            not enqueue in the new one.
        NotFound: the actor does not see the new queue.
        BadInput, NeverFits: the new queue does not take such a task.
        Conflict: the task does not wait any more, or waits there already.
        Stale: it was moved, or changed since it was read.
    """
    check_can_manage_task(actor, task)
    target = queue_open_to(actor, queue)
    seen_in = task.queue_id if seen_in is None else seen_in
    if target.pk == seen_in:
        problem = f"is where {task.name} waits already"
        raise Conflict(f"Queue {target.name} {problem}.", fields={"queue": problem})
    # Queues are locked before tasks, everywhere: `target` is by now.
    before = Task.objects.select_for_update(no_key=True).get(pk=task.pk)
    if before.state != TaskState.QUEUED or before.queue is None:
        raise Conflict(not_waiting(before))
    left = before.queue
    # What callers know of it, such as that the actor may see it, is of the queue of `task`.
    if not left.pk == seen_in == task.queue_id:
        is_visible = queues_visible_to(actor).filter(pk=left.pk).exists()
        where = left.name if is_visible else "another queue"
        raise Stale(f"{before.name} was moved to {where} meanwhile and stays there.")
    check_can_manage_task(actor, before)
    _check_version(before, version)
    undo_check(undoes, object_type="task", object_id=before.pk, name=before.name)
    moved = task_return(
        actor=actor,
        task=task,
        queue=target.pk,
        transition=CHANGE_QUEUE,
        data={"queue_before": before.queue_id, "queue": target.pk},
        submitted_at=timezone.now(),
        waiting_since=before.waits_since,
    )
    after_commit(topics=task_topics(task.pk, queue_id=left.pk, policy_id=left.policy_id))
    return moved


def task_set_priority(
    *, actor: User, task: Task, priority: int, version: datetime | None = None
) -> Task:
    """Change the priority of a draft or a waiting task, up to what its queue allows.

    Args:
        version: the time of the last change that was read; None does not check.

    Raises:
        NotAllowed: the actor neither owns the task nor manages its queue.
        BadInput: the priority is above that of the queue.
        Conflict: it neither waits nor is a draft, or the queue has too many priorities waiting.
        Stale: it changed since it was read.
    """
    check_can_manage_task(actor, task)
    spec = spec_of({**spec_values(task), "priority": priority})
    with transaction.atomic():
        values: dict[str, int] = {"priority": priority}
        queue = None
        if task.state == TaskState.QUEUED and task.queue_id is not None:
            # Locked, so that its group is not removed meanwhile.
            live = Queue.objects.select_for_update(no_key=True, of=("self",))
            queue = live.select_related("profile").get(pk=task.queue_id)
            # It waits already: its priority has nothing to do with its image.
            facts = replace(queue_facts(queue), needs_image=False)
            mounts = mounts_for(actor, task, spec, facts)
            shape = accept(spec, facts, owner_id=task.owner_id, mounts=mounts)
            values["task_group_id"] = task_group_ensure(
                queue.pk, shape, most=settings.RPM_TASK_GROUPS_PER_QUEUE
            )
        elif task.state != TaskState.DRAFT:
            raise Conflict("Only drafts and waiting tasks can get another priority.")
        if version is not None:
            locked = Task.objects.select_for_update(no_key=True).get(pk=task.pk)
            _check_version(locked, version)
        still = Task.objects.filter(pk=task.pk, state=task.state, task_group=task.task_group_id)
        if not still.update(**values, changed_at=timezone.now()):
            raise Conflict("The task is in another state by now: read it again.")
        if task.array_count is not None:
            # Not those that were moved to another queue.
            Task.objects.filter(array=task.pk, state=task.state, queue=task.queue_id).update(
                **values, changed_at=timezone.now()
            )
        _record_priority(actor, task, queue, priority)
    task.refresh_from_db()
    return task


def _check_version(locked: Task, version: datetime | None) -> None:
    if version is not None and locked.changed_at != version:
        raise Stale("The task changed since you read it.")


def _neighbours(equals: QuerySet[Task], task: Task, move: OrderMove, other: UUID | None) -> Pair:
    """The future neighbours of the task; two Nones leave it where it is."""
    if move == "top":
        return None, equals.first()
    if move == "bottom":
        return equals.last(), None
    if move == "up":
        right = equals.filter(_ahead_of(task)).last()
        return (None, None) if right is None else (equals.filter(_ahead_of(right)).last(), right)
    if move == "down":
        left = equals.exclude(_ahead_of(task)).first()
        return (None, None) if left is None else (left, _next_after(equals, left))
    neighbour = _named_neighbour(equals, task, other)
    if neighbour is None:
        return None, None
    if move == "before":
        return equals.filter(_ahead_of(neighbour)).last(), neighbour
    return neighbour, _next_after(equals, neighbour)


def _named_neighbour(equals: QuerySet[Task], task: Task, other: UUID | None) -> Task | None:
    """The task that `other` names; None where that is the moved one itself."""
    if other is None:
        raise BadInput("other is missing.", fields={"other": "names the other task of the move"})
    if other == task.pk:
        return None
    found = equals.filter(pk=other).first()
    if found is not None:
        return found
    waits = Task.objects.filter(pk=other, queue=task.queue_id, state=TaskState.QUEUED).first()
    if waits is None:
        raise NotFound("The other task does not wait here any more.")
    if waits.priority != task.priority:
        raise Conflict(
            f"{waits.name} has priority {waits.priority} and {task.name} {task.priority}: "
            "the higher one comes first. Change the priority instead."
        )
    raise Conflict(
        f"Of {waits.name} and {task.name} one cannot be preempted: it comes first at equal "
        "priority."
    )


def _ahead_of(task: Task) -> Q:
    same = Q(submitted_at=task.submitted_at, pk__lt=task.pk)
    return Q(submitted_at__lt=task.submitted_at) | same


def _next_after(equals: QuerySet[Task], task: Task) -> Task | None:
    return equals.exclude(_ahead_of(task)).exclude(pk=task.pk).first()


def _moment_between(equals: QuerySet[Task], left: Task | None, right: Task | None) -> datetime:
    """A time between two neighbours; the ones ahead get earlier times where there is none."""
    if left is None:
        return _at(cast("Task", right)) - STEP
    if right is None:
        return _at(left) + STEP
    before = _at(left)
    if _at(right) - before < LEAST:
        equals.filter(_ahead_of(right)).order_by().update(
            submitted_at=F("submitted_at") - STEP,
            waiting_since=Coalesce("waiting_since", "submitted_at"),
        )
        before -= STEP
    return before + (_at(right) - before) // 2


def _at(task: Task) -> datetime:
    """The place of a waiting task; the database makes sure that it has one."""
    return cast("datetime", task.submitted_at)


def _record(actor: User, task: Task, queue: Queue, move: OrderMove) -> None:
    entry = NewEvent(
        kind="task.reordered",
        object_type="task",
        object_id=task.pk,
        queue_id=queue.pk,
        policy_id=queue.policy_id,
        actor_id=actor.pk,
        data={"name": task.name, "move": move},
        is_audited=actor.pk != task.owner_id,
    )
    topics = task_topics(task.pk, queue_id=queue.pk, policy_id=queue.policy_id)
    events_record([entry], topics=topics)
    after_commit(notify=[NOTIFY_ALLOCATION])


def _record_priority(actor: User, task: Task, queue: Queue | None, priority: int) -> None:
    policy_id = queue.policy_id if queue is not None else None
    entry = NewEvent(
        kind="task.priority",
        object_type="task",
        object_id=task.pk,
        queue_id=task.queue_id,
        policy_id=policy_id,
        actor_id=actor.pk,
        data={"from": task.priority, "to": priority},
        is_audited=actor.pk != task.owner_id,
    )
    events_record([entry], topics=task_topics(task.pk, queue_id=task.queue_id, policy_id=policy_id))
    if queue is not None:
        after_commit(notify=[NOTIFY_ALLOCATION])
