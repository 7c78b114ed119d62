"""Dequeueing, aborting, resuming and re-running of tasks, and their priority."""

from dataclasses import replace
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.crash_points import crash_point
from apps.core.errors import BadInput, Conflict
from apps.core.notifications import after_commit
from apps.events.services import Entry, events_record
from apps.policies.models import Queue
from apps.tasks.acceptance import accept
from apps.tasks.descriptions import description_of
from apps.tasks.details import shorten
from apps.tasks.models import Attempt, Task
from apps.tasks.selectors.facts import queue_facts
from apps.tasks.services.queues import check_can_manage_task
from apps.tasks.services.submission import description_values, task_return
from apps.tasks.services.task_groups import task_group_ensure
from apps.tasks.services.transitions import ALLOCATE, tasks_move
from apps.tasks.states import (
    ADMITTED_STATES,
    ENDED_STATES,
    LIVE_ATTEMPT_STATES,
    AttemptState,
    TaskState,
)
from apps.tasks.topics import task_topics

NOT_STARTED = (TaskState.DRAFT, TaskState.QUEUED, TaskState.PAUSED, TaskState.REJECTED)
OUT_OF_QUEUE = {
    "queue_id": None,
    "task_group_id": None,
    "submitted_at": None,
    "waiting_since": None,
}


def task_dequeue(*, actor: User, task: Task) -> Task:
    """Take a waiting task out of its queue; it becomes a draft again.

    Raises:
        NotAllowed: the actor neither owns the task nor manages its queue.
        Conflict: it does not wait any more.
    """
    check_can_manage_task(actor, task)
    if not tasks_move(
        [task.pk],
        expected=(TaskState.QUEUED,),
        to=TaskState.DRAFT,
        actor_id=actor.pk,
        changes={**OUT_OF_QUEUE, "state_detail": ""},
    ):
        task.refresh_from_db()
        raise Conflict(_why_not_out(task))
    task.refresh_from_db()
    return task


def _why_not_out(task: Task) -> str:
    if task.state in ADMITTED_STATES:
        return "The task has started meanwhile: only waiting tasks can leave their queue."
    if task.state in ENDED_STATES:
        return "The task has ended meanwhile: only waiting tasks can leave their queue."
    return "Only waiting tasks can leave their queue."


def task_abort(*, actor: User, task: Task, detail: str = "") -> Task:
    """End a task: at once where it does not run, else as soon as it has stopped.

    Aborting a task that ended already, or is being aborted, changes nothing.

    Raises:
        NotAllowed: the actor neither owns the task nor manages its queue.
        Conflict: it changed its state at this very moment, several times.
    """
    check_can_manage_task(actor, task)
    reason = detail or f"aborted by {actor.username}"
    # A pass or a node may move the task between reading and writing; then the other case applies.
    for _ in range(3):
        with transaction.atomic():
            is_done = _abort_at_once(actor, task, reason) or _abort_running(actor, task, reason)
        if is_done:
            crash_point("stop.asked")
            break
        task.refresh_from_db()
        if task.state in ENDED_STATES:
            break
    else:
        raise Conflict("The task is changing its state right now: try again.")
    task.refresh_from_db()
    return task


def task_run_again(*, actor: User, task: Task, queue: str | int | None = None) -> Task:
    """Enqueue an ended task again, as a new submission.

    Args:
        queue: another queue; None means its last one.

    Raises:
        NotAllowed, NotFound: the actor may not do it, or actor or owner may not use the queue.
        BadInput, NeverFits: the queue does not take it any more.
        Conflict: it has not ended.
    """
    check_can_manage_task(actor, task)
    if task.state not in ENDED_STATES:
        raise Conflict("Only tasks that have ended can run again.")
    return task_return(
        actor=actor,
        task=task,
        queue=_queue_or(task, queue),
        expected=ENDED_STATES,
        exit_code=None,
        ended_at=None,
        failures=0,
        preemptions=0,
    )


def task_resume(*, actor: User, task: Task) -> Task:
    """Put a paused or rejected task back into its queue; a paused one keeps its submission time.

    Raises:
        NotAllowed, NotFound: the actor may not do it, or may not use the queue.
        BadInput, NeverFits: the queue does not take it any more.
        Conflict: it is neither paused nor rejected.
    """
    check_can_manage_task(actor, task)
    if task.state not in {TaskState.PAUSED, TaskState.REJECTED}:
        raise Conflict("Only paused or rejected tasks can be resumed.")
    return task_return(
        actor=actor,
        task=task,
        queue=_queue_or(task, None),
        expected=(TaskState.PAUSED, TaskState.REJECTED),
        submitted_at=task.submitted_at or timezone.now(),
    )


def task_set_priority(*, actor: User, task: Task, priority: int) -> Task:
    """Change the priority of a draft or a waiting task, up to what its queue allows.

    Raises:
        NotAllowed: the actor neither owns the task nor manages its queue.
        BadInput: the priority is above that of the queue.
        Conflict: it neither waits nor is a draft.
    """
    check_can_manage_task(actor, task)
    description = description_of({**description_values(task), "priority": priority})
    with transaction.atomic():
        values: dict[str, int] = {"priority": priority}
        queue = None
        if task.state == TaskState.QUEUED and task.queue_id is not None:
            queue = Queue.objects.select_related("profile").get(pk=task.queue_id)
            # It waits already: its priority has nothing to do with its image.
            facts = replace(queue_facts(queue), needs_image=False)
            shape = accept(description, facts, owner_id=task.owner_id)
            values["task_group_id"] = task_group_ensure(queue.pk, shape)
        elif task.state != TaskState.DRAFT:
            raise Conflict("Only drafts and waiting tasks can get another priority.")
        still = Task.objects.filter(pk=task.pk, state=task.state, task_group=task.task_group_id)
        if not still.update(**values, changed_at=timezone.now()):
            raise Conflict("The task is in another state by now: read it again.")
        _record_priority(actor, task, queue, priority)
    task.refresh_from_db()
    return task


def _abort_at_once(actor: User, task: Task, reason: str) -> bool:
    return bool(
        tasks_move(
            [task.pk],
            expected=NOT_STARTED,
            to=TaskState.ABORTED,
            actor_id=actor.pk,
            changes={"state_detail": shorten(reason)},
        )
    )


def _abort_running(actor: User, task: Task, reason: str) -> bool:
    """Stop a running task; a task that stops for another reason ends as aborted."""
    # The attempt before its task: every transaction locks both in this order.
    live = Attempt.objects.filter(task_id=task.pk, state__in=LIVE_ATTEMPT_STATES)
    attempt = live.select_for_update(no_key=True).first()
    if attempt is None:
        return False
    changes: dict[str, Any] = {
        "stop_target": TaskState.ABORTED,
        "stop_detail": shorten(reason),
        # Also where a pass preempted it: its placement is given up, and it ends as aborted.
        "is_preempted": False,
        "moves_to": None,
    }
    if attempt.state != AttemptState.STOPPING:
        moved = tasks_move(
            [task.pk],
            expected=(TaskState.ALLOCATED, TaskState.RUNNING),
            to=TaskState.STOPPING,
            actor_id=actor.pk,
            changes={"state_detail": shorten(reason)},
            data={"then": TaskState.ABORTED, "pool": attempt.pool_id},
            topics=task_topics(task.pk, pool_id=attempt.pool_id),
        )
        if not moved:
            return False
        changes.update(state=AttemptState.STOPPING, stop_asked_at=timezone.now())
    elif attempt.stop_target != TaskState.ABORTED:
        _record_other_end(actor, task, attempt, reason)
    return bool(Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(**changes))


def _record_other_end(actor: User, task: Task, attempt: Attempt, reason: str) -> None:
    """Record that a stopping task now stops because the actor aborted it."""
    Task.objects.filter(pk=task.pk, state=TaskState.STOPPING).update(
        state_detail=shorten(reason), changed_at=timezone.now()
    )
    entry = Entry(
        kind="task.stopping",
        object_type="task",
        object_id=task.pk,
        queue_id=attempt.queue_id,
        policy_id=attempt.policy_id,
        actor_id=actor.pk,
        data={"from": TaskState.STOPPING, "then": TaskState.ABORTED, "pool": attempt.pool_id},
        is_audited=actor.pk != task.owner_id,
    )
    topics = task_topics(
        task.pk,
        queue_id=attempt.queue_id,
        policy_id=attempt.policy_id,
        pool_id=attempt.pool_id,
    )
    events_record([entry], topics=topics)


def _queue_or(task: Task, queue: str | int | None) -> str | int:
    if queue is not None:
        return queue
    if task.queue_id is None:
        raise BadInput("queue is missing.", fields={"queue": "is missing: the task has none"})
    return task.queue_id


def _record_priority(actor: User, task: Task, queue: Queue | None, priority: int) -> None:
    policy_id = queue.policy_id if queue is not None else None
    entry = Entry(
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
        after_commit(notify=[ALLOCATE])
