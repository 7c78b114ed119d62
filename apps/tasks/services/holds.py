"""Holds: waiting tasks that keep their place in the queue while no pass starts them."""

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, NotAllowed
from apps.core.notifications import NOTIFY_ALLOCATION, after_commit
from apps.events.services import NewEvent, events_record
from apps.tasks.lifecycle.states import Ineligibility, TaskState
from apps.tasks.models import ReasonChange, Task, TaskDependency
from apps.tasks.models.dependencies import UNSETTLED
from apps.tasks.services.queues import can_manage_queue, check_can_manage_task
from apps.tasks.topics import task_topics


@transaction.atomic
def task_hold(*, actor: User, task: Task) -> Task:
    """Put a waiting task on hold; one that a pass has started goes on.

    Where the actor is not its owner, only users who manage its queue can release it. Holding a
    task again changes nothing, except that such a user takes over the hold of its owner.

    Raises:
        NotAllowed: the actor neither owns the task nor manages its queue.
        Conflict: it does not wait.
    """
    row = _locked(actor, task)
    if row.state != TaskState.QUEUED:
        raise Conflict("Only waiting tasks can be put on hold.")
    is_own = row.owner_id == actor.pk
    code = Ineligibility.ON_HOLD if is_own else Ineligibility.ADMIN_HOLD
    if row.ineligible_code not in {code, Ineligibility.ADMIN_HOLD}:
        _write(actor, row, kind="task.hold", code=code)
        reasons = [{"code": code.value, "details": []}]
        ReasonChange.objects.create(
            task=row, at=row.changed_at, code=code, data={"reasons": reasons, "queue": row.queue_id}
        )
    task.refresh_from_db()
    return task


@transaction.atomic
def task_release(*, actor: User, task: Task) -> Task:
    """End the hold of a task: the next pass considers it, at the place that it kept.

    Releasing a task that is not on hold changes nothing.

    Raises:
        NotAllowed: the actor neither owns the task nor manages its queue; or a user who manages
            the queue put it on hold, and the actor does not.
        Conflict: it does not wait.
    """
    row = _locked(actor, task)
    if row.state != TaskState.QUEUED:
        raise Conflict("Only waiting tasks can be released.")
    if row.is_held and not may_release(actor, row):
        raise NotAllowed(
            "A user who manages the queue put this task on hold: only such a user can release it."
        )
    if row.is_held:
        is_free = not TaskDependency.objects.filter(UNSETTLED, task=row).exists()
        code = "" if is_free else Ineligibility.DEPENDENCY.value
        _write(actor, row, kind="task.release", code=code)
        after_commit(notify=[NOTIFY_ALLOCATION])
    task.refresh_from_db()
    return task


def may_release(user: User, task: Task) -> bool:
    """Whether the task is on hold, and a user who may manage it may release it.

    Not an element whose array a manager put on hold, even if its owner held the element first.
    """
    if not task.is_held:
        return False
    held = {task.queue_id} if task.ineligible_code == Ineligibility.ADMIN_HOLD else set()
    if task.array_id is not None:
        arrays = Task.objects.filter(pk=task.array_id, ineligible_code=Ineligibility.ADMIN_HOLD)
        held.update(arrays.values_list("queue", flat=True))
    return all(can_manage_queue(user, queue_id) for queue_id in held)


def _locked(actor: User, task: Task) -> Task:
    if task.array_id is not None:
        # Its hold, which counts for its elements, stays as it is meanwhile.
        list(Task.objects.select_for_update(no_key=True).filter(pk=task.array_id))
    row = Task.objects.select_for_update(no_key=True).get(pk=task.pk)
    check_can_manage_task(actor, row)
    return row


def _write(actor: User, row: Task, *, kind: str, code: str) -> None:
    before = row.ineligible_code
    row.ineligible_code, row.changed_at = code, timezone.now()
    row.save(update_fields=["ineligible_code", "changed_at"])
    if row.array_count is not None:
        # Not those whose hold is another one, or that are in another queue.
        elements = Task.objects.filter(array=row.pk, state=TaskState.QUEUED, queue=row.queue_id)
        elements.filter(ineligible_code=before).update(
            ineligible_code=code, changed_at=row.changed_at
        )
    policy_id = row.queue.policy_id if row.queue is not None else None
    entry = NewEvent(
        kind=kind,
        object_type="task",
        object_id=row.pk,
        queue_id=row.queue_id,
        policy_id=policy_id,
        actor_id=actor.pk,
        is_audited=actor.pk != row.owner_id,
    )
    events_record([entry], topics=task_topics(row.pk, queue_id=row.queue_id, policy_id=policy_id))
