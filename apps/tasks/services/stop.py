"""Stops of tasks: waiting ones leave their queue, running ones are asked to end."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from apps.access.permissions import rows_with_permission
from apps.accounts.models import User
from apps.accounts.selectors import is_admin, people_managed_by
from apps.core.crash_points import crash_point
from apps.core.errors import Conflict, NotAllowed
from apps.core.notifications import after_commit
from apps.tasks.details import shorten
from apps.tasks.lifecycle.states import (
    ADMITTED_STATES,
    ENDED_STATES,
    LIVE_ATTEMPT_STATES,
    AttemptState,
    Ineligibility,
    TaskState,
)
from apps.tasks.lifecycle.transitions import (
    ABORT_UNSTARTED,
    ASK_TO_STOP,
    CLOSE_QUEUE,
    DEQUEUE,
    STOP,
)
from apps.tasks.lifecycle.writers import (
    TaskSubject,
    attempt_transition,
    task_transition,
    tasks_lock_and_transition,
    tasks_transition_without_events,
    transition_record,
)
from apps.tasks.models import Attempt, Task, TaskDependency
from apps.tasks.permissions import MANAGE
from apps.tasks.services.queues import can_manage_queue, check_can_manage_task
from apps.tasks.services.retention import unstarted_tasks_remove


def task_dequeue(*, actor: User, task: Task) -> Task:
    """Take a waiting task out of its queue; it becomes a draft again.

    Raises:
        NotAllowed: the actor neither owns the task nor manages its queue; or a user who manages
            the queue put it, or one of its elements, on hold, and the actor does not.
        Conflict: it does not wait any more.
    """
    check_can_manage_task(actor, task)
    if task.array_id is not None:
        raise Conflict("An element cannot leave the queue of its array: abort it instead.")
    with transaction.atomic():
        locked = Task.objects.select_for_update(no_key=True).get(pk=task.pk)
        check_can_manage_task(actor, locked)
        _check_holds(actor, locked)
        columns = _elements_remove(locked) if task.array_count is not None else {}
        if not tasks_lock_and_transition(DEQUEUE, [task.pk], actor_id=actor.pk, columns=columns):
            task.refresh_from_db()
            raise Conflict(not_waiting(task))
    task.refresh_from_db()
    return task


def _check_holds(actor: User, locked: Task) -> None:
    """Check that leaving the queue ends no hold, also of an element, that the actor may not end."""
    held = Task.objects.filter(Q(pk=locked.pk) | Q(array=locked.pk))
    held = held.filter(ineligible_code=Ineligibility.ADMIN_HOLD).order_by()
    queues = list(held.values_list("queue", flat=True).distinct())
    if not all(can_manage_queue(actor, queue_id) for queue_id in queues):
        raise NotAllowed(
            "A user who manages the queue put this task on hold: it stays there, or is aborted."
        )


def _elements_remove(array: Task) -> dict[str, int]:
    """Remove the elements of a locked array, where none has started; the columns to set in it.

    Raises:
        Conflict: one has started, or other tasks wait for one.
    """
    elements = Task.objects.filter(array=array.pk)
    new = elements.filter(state=TaskState.QUEUED, generation=0)
    rows = new.select_for_update(no_key=True).order_by("pk")
    ids = list(rows.values_list("pk", flat=True))
    if len(ids) < array.array_next:
        raise Conflict("Elements of this array have started: abort it instead.")
    if TaskDependency.objects.filter(after__in=elements.values("pk")).exists():
        raise Conflict("Other tasks wait for elements of this array: abort it instead.")
    unstarted_tasks_remove(ids)
    return {"array_next": 0}


def not_waiting(task: Task) -> str:
    """Why the task cannot leave its queue."""
    if task.state in ADMITTED_STATES:
        return "The task has started meanwhile: only waiting tasks can leave their queue."
    if task.state in ENDED_STATES:
        return "The task has ended meanwhile: only waiting tasks can leave their queue."
    return "Only waiting tasks can leave their queue."


def owner_tasks_dequeue(*, actor: User, owner: User) -> int:
    """Turn all waiting tasks of a user into drafts; running tasks continue.

    Returns:
        How many became drafts.

    Raises:
        NotAllowed: the actor is no administrator.
    """
    if not is_admin(actor) and not people_managed_by(actor).filter(pk=owner.pk).exists():
        raise NotAllowed("Only administrators can dequeue tasks of others.")
    waiting = Task.objects.filter(owner=owner, state=TaskState.QUEUED)
    moved = tasks_lock_and_transition(
        DEQUEUE,
        waiting.values_list("pk", flat=True),
        actor_id=actor.pk,
        columns={"state_detail": shorten(f"dequeued by {actor.username}")},
    )
    return len(moved)


def tasks_return_to_draft(
    *, queue_ids: Collection[int], reason: str, except_owners: Collection[int] | None = None
) -> int:
    """Turn waiting tasks of closed queues into drafts; tasks that started stay.

    Args:
        reason: shown to the owner, a sentence.
        except_owners: ids of users whose tasks keep waiting; None: all become drafts.

    Returns:
        How many became drafts.
    """
    waiting = Task.objects.filter(queue__in=queue_ids)
    if except_owners is not None:
        waiting = waiting.exclude(owner__in=except_owners)
    returned = tasks_transition_without_events(
        CLOSE_QUEUE, waiting, columns={"state_detail": shorten(reason)}
    )
    if returned:
        after_commit(topics=["tasks", *(f"queue.{pk}" for pk in queue_ids)])
    return returned


def task_abort(*, actor: User, task: Task, detail: str = "") -> Task:
    """End a task: at once where it does not run, else as soon as it has stopped.

    An array ends at once, and each of its elements as any task does: those that the actor may
    abort, wherever they are. A step of a later pass ends the ones that are left in its queue where
    this is cut off. Aborting a task that ended already, or is being aborted, changes nothing.

    Raises:
        NotAllowed: the actor neither owns the task nor manages its queue.
        Conflict: it changed its state at this very moment, several times.
    """
    check_can_manage_task(actor, task)
    reason = shorten(detail or f"aborted by {actor.username}")
    _abort_one(actor.pk, task, reason)
    if task.array_count is not None:
        # No further element is stored from here on.
        managed = rows_with_permission(Task, actor, MANAGE)
        elements = managed.filter(array=task.pk).exclude(state__in=ENDED_STATES)
        elements_abort(elements, reason=reason, actor_id=actor.pk)
    task.refresh_from_db()
    return task


def unstarted_tasks_abort(*, actor: User, ids: Collection[UUID]) -> set[UUID]:
    """End those of these tasks that do not run, in few statements; at most some thousand.

    Arrays are left out, and so are tasks that the actor may not abort: permissions are asked under
    the lock.

    Returns:
        The ids of those that ended.
    """
    with transaction.atomic():
        rows = Task.objects.select_for_update(no_key=True).order_by("pk")
        unstarted = rows.filter(pk__in=ids, state__in=ABORT_UNSTARTED.sources, array_count=None)
        locked = list(unstarted.values_list("pk", flat=True))
        managed = rows_with_permission(Task, actor, MANAGE).filter(pk__in=locked)
        ended = tasks_lock_and_transition(
            ABORT_UNSTARTED,
            managed.values_list("pk", flat=True),
            actor_id=actor.pk,
            columns={"state_detail": shorten(f"aborted by {actor.username}")},
        )
    return {one.id for one in ended}


def elements_abort(
    elements: "QuerySet[Task]", *, reason: str, actor_id: int | None = None, most: int | None = None
) -> None:
    """End elements of an aborted array: first those that do not run.

    Args:
        most: of those that run; None: all.

    Raises:
        Conflict: one changed its state at this very moment, several times.
    """
    unstarted = elements.filter(state__in=ABORT_UNSTARTED.sources)
    tasks_lock_and_transition(
        ABORT_UNSTARTED,
        unstarted.values_list("pk", flat=True),
        actor_id=actor_id,
        columns={"state_detail": reason},
    )
    for element in elements.order_by("pk")[:most]:
        _abort_one(actor_id, element, reason)


def _abort_one(actor_id: int | None, task: Task, reason: str) -> None:
    # A pass or a node may move the task between reading and writing; then the other case applies.
    for _ in range(3):
        with transaction.atomic():
            is_done = _abort_running(actor_id, task, reason) or _abort_unstarted(
                actor_id, task, reason
            )
        if is_done:
            crash_point("stop.asked")
            break
        task.refresh_from_db()
        if task.state in ENDED_STATES:
            break
    else:
        raise Conflict("The task is changing its state right now: try again.")


def _abort_unstarted(actor_id: int | None, task: Task, reason: str) -> bool:
    return bool(
        tasks_lock_and_transition(
            ABORT_UNSTARTED, [task.pk], actor_id=actor_id, columns={"state_detail": reason}
        )
    )


def _abort_running(actor_id: int | None, task: Task, reason: str) -> bool:
    """Stop a running task; a task that stops for another reason ends as aborted."""
    live = Attempt.objects.filter(task_id=task.pk, state__in=LIVE_ATTEMPT_STATES)
    attempt = live.select_for_update(no_key=True).first()
    if attempt is None:
        return False
    changes: dict[str, Any] = {
        "stop_target": TaskState.ABORTED,
        "stop_detail": reason,
        # All that a preemption sets: its placement is given up, and it ends as aborted.
        "is_preempted": False,
        "moves_to": None,
    }
    subject = _subject(task, attempt)
    if attempt.state == AttemptState.STOPPING:
        if attempt.stop_target != TaskState.ABORTED:
            _record_other_end(actor_id, subject, reason)
        Attempt.objects.filter(pk=attempt.pk).update(**changes)
        return True
    if not task_transition(STOP, [subject], actor_id=actor_id, columns={"state_detail": reason}):
        return False
    return attempt_transition(ASK_TO_STOP, attempt, **changes)


def _subject(task: Task, attempt: Attempt) -> TaskSubject:
    if attempt.state == AttemptState.STOPPING:
        before = TaskState.STOPPING
    else:
        before = TaskState.RUNNING if attempt.started_at else TaskState.ALLOCATED
    return TaskSubject(
        id=task.pk,
        owner_id=task.owner_id,
        queue_id=attempt.queue_id,
        policy_id=attempt.policy_id,
        pool_id=attempt.pool_id,
        data={"from": before, "then": TaskState.ABORTED, "pool": attempt.pool_id},
    )


def _record_other_end(actor_id: int | None, subject: TaskSubject, reason: str) -> None:
    """Record that a stopping task now stops because it was aborted."""
    Task.objects.filter(pk=subject.id, state=TaskState.STOPPING).update(
        state_detail=reason, changed_at=timezone.now()
    )
    transition_record(STOP, [subject], actor_id=actor_id)
