"""Creation of tasks: drafts, and tasks that wait in a queue."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core.errors import BadInput, Conflict, NotAllowed, Stale
from apps.core.origin import acted_by
from apps.core.statements import row_insert
from apps.events.services import NewEvent, events_record
from apps.policies.models import Queue
from apps.tasks.acceptance import accept
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.lifecycle.transitions import ENQUEUE, RESUME, RUN_AGAIN
from apps.tasks.models import Task, TaskDependency
from apps.tasks.redaction import keep_hidden_values, secret_names
from apps.tasks.selectors.facts import cached_queue_facts
from apps.tasks.selectors.mounts import mounts_of
from apps.tasks.selectors.secrets import task_secrets
from apps.tasks.services.dependencies import graph_lock, new_dependencies, others_lock
from apps.tasks.services.enqueue.array_runs import array_run_again
from apps.tasks.services.enqueue.idempotency import Idempotency, earlier_task, key_keep
from apps.tasks.services.enqueue.new_tasks import (
    AFTER_OF_DRAFT,
    columns,
    drafts_announce,
    drafts_left,
    mark_queued,
    new_draft,
    new_task,
    too_many_drafts,
    waiting_announce,
)
from apps.tasks.services.enqueue.queue_bounds import (
    check_may_open_array,
    check_may_wait,
    facts_for,
    has_vault_image,
    is_counted,
)
from apps.tasks.services.enqueue.queue_entry import spec_values, task_return
from apps.tasks.services.enqueue.storage import check_may_store
from apps.tasks.services.enqueue.task_secrets import seal_secrets
from apps.tasks.services.queues import (
    check_can_manage_task,
    queue_lock,
    queue_open_to,
    queue_ref,
)
from apps.tasks.services.task_groups import task_group_ensure, waiting_task_group_id
from apps.tasks.shapes import TaskShape
from apps.tasks.task_spec import TaskSpec, refuse, request_texts, spec_of


def task_create(*, actor: User, spec: TaskSpec, idempotency: Idempotency | None = None) -> Task:
    """Create a draft of the actor; it does not run before it is enqueued.

    Raises:
        Conflict: the idempotency key was used with another body, or a bound is reached.
    """
    known = earlier_task(actor.pk, idempotency)
    if known is not None:
        return known
    task = new_draft(spec, actor)
    try:
        with transaction.atomic():
            if drafts_left(actor) < 1:
                raise too_many_drafts()
            task.save(force_insert=True)
            key_keep(actor.pk, idempotency, task.pk)
            drafts_announce([task], actor.pk)
    except IntegrityError:
        return _earlier_or_raise(actor, idempotency)
    return task


def task_change(*, actor: User, task: Task, changes: Mapping[str, Any]) -> Task:
    """Change fields of the actor's own draft.

    Args:
        task: as the actor read it; a later change is not overwritten.
        changes: fields of `TaskSpec` without the queue, which is chosen by enqueueing.

    Raises:
        NotAllowed: the draft has another owner, or holds secrets of another user.
        BadInput: a field is unknown or invalid.
        Conflict: the task is not a draft any more, or its owner's tasks would take too much.
        Stale: it was changed meanwhile.
    """
    if task.owner_id != actor.pk and not is_admin(actor):
        raise NotAllowed("This draft has another owner.")
    is_by_owner = task.owner_id == actor.pk and acted_by(actor.pk) is None
    if not is_by_owner and _holds_secrets(task):
        raise NotAllowed("Only its owner can change what this draft runs: it has secrets.")
    _check_no_elements(task)
    merged = spec_of({**spec_values(task), **_with_hidden(changes, task)})
    if merged.queue is not None:
        refuse({"queue": "is chosen when the task is enqueued"})
    refuse(AFTER_OF_DRAFT if merged.after else {})
    request = None if merged.request is None else request_texts(merged, keys=None)
    values = {
        # The chosen elements of an earlier array, unless the size changes.
        **columns(merged, indices=None if "array" in changes else task.array_indices),
        "secrets": seal_secrets(merged.secrets, task),
        "request": request,
        "changed_at": timezone.now(),
    }
    if not is_by_owner:
        values["is_by_owner"] = False
    if values["size_bytes"] > task.size_bytes:
        check_may_store(task.owner_id, values["size_bytes"] - task.size_bytes)
    with transaction.atomic():
        drafts = Task.objects.filter(pk=task.pk, state=TaskState.DRAFT)
        if not drafts.filter(changed_at=task.changed_at).update(**values):
            if drafts.exists():
                raise Stale("Another user changed this draft since you read it.")
            raise Conflict("Only drafts can be changed.")
        entry = NewEvent(
            kind="task.changed",
            object_type="task",
            object_id=task.pk,
            actor_id=actor.pk,
            data={"fields": sorted(changes)},
            is_audited=actor.pk != task.owner_id,
        )
        events_record([entry], topics=[f"task.{task.pk}"])
    task.refresh_from_db()
    return task


def task_submit(*, actor: User, spec: TaskSpec, idempotency: Idempotency | None = None) -> Task:
    """Create a task that waits in the queue of its spec.

    Raises:
        NotFound, NotAllowed: the queue is invisible, or visible and not open.
        BadInput, NeverFits: the queue does not take such a task.
        Conflict: the idempotency key was used with another body, or a bound is reached.
    """
    known = earlier_task(actor.pk, idempotency)
    if known is not None:
        return known
    if spec.queue is None:
        raise BadInput("queue is missing.", fields={"queue": "is missing"})
    task = new_task(spec, actor)
    try:
        if not _submit_to_waiting_group(task, spec, spec.queue, idempotency):
            _submit_to_any_group(task, spec, spec.queue, idempotency)
    except IntegrityError:
        return _earlier_or_raise(actor, idempotency)
    return task


@transaction.atomic
def _submit_to_waiting_group(
    task: Task, spec: TaskSpec, given: str | int, idempotency: Idempotency | None
) -> bool:
    """Store a task like others that wait, at the same moment as other requests do.

    Returns:
        False where something has to be counted, created or read from vaults: nothing is stored.
    """
    graph_lock([spec])
    queue = queue_open_to(task.owner, given, is_exclusive=False)
    facts = cached_queue_facts(queue)
    if facts.needs_image and not spec.image:
        return False
    mounts = mounts_of([spec], facts, owner=task.owner)
    shape = accept(spec, facts, owner_id=task.owner_id, mounts=mounts)
    task_group_id = waiting_task_group_id(queue.pk, shape.digest())
    if task_group_id is None or is_counted(facts, task.owner_id):
        return False
    _store(task, spec, queue, shape, task_group_id, idempotency=idempotency)
    return True


def _submit_to_any_group(
    task: Task, spec: TaskSpec, given: str | int, idempotency: Idempotency | None
) -> None:
    """Store a task while no other request stores one, so that counts stay true."""
    found = queue_ref(task.owner, given)
    has_image = has_vault_image([spec], owner_id=task.owner_id, tenant_id=found.tenant_id)
    with transaction.atomic():
        graph_lock([spec])
        queue = queue_lock(task.owner, found.pk, given)
        facts = facts_for(queue, has_image=has_image)
        check_may_wait(facts, task.owner_id)
        mounts = mounts_of([spec], facts, owner=task.owner)
        shape = accept(spec, facts, owner_id=task.owner_id, mounts=mounts)
        task_group_id = task_group_ensure(
            facts.queue_id, shape, most=settings.RPM_TASK_GROUPS_PER_QUEUE
        )
        _store(task, spec, queue, shape, task_group_id, idempotency=idempotency)


def _store(
    task: Task,
    spec: TaskSpec,
    queue: Queue,
    shape: TaskShape,
    task_group_id: int,
    *,
    idempotency: Idempotency | None,
) -> None:
    check_may_open_array(task)
    mark_queued(task, queue, shape=shape, task_group_id=task_group_id, at=timezone.now())
    edges = new_dependencies(task, spec, others_lock(task.owner, [spec]))
    row_insert(task)
    TaskDependency.objects.bulk_create(edges)
    key_keep(task.owner_id, idempotency, task.pk)
    waiting_announce([task], queue, task.owner_id)


def task_enqueue(*, actor: User, task: Task, queue: str | int) -> Task:
    """Put a draft into a queue.

    Raises:
        NotFound, NotAllowed: the queue is invisible, or visible and not open; the draft has
            another owner.
        BadInput, NeverFits: the queue does not take such a task.
        Conflict: the task is not a draft any more.
    """
    if task.owner_id != actor.pk and not is_admin(actor):
        raise NotAllowed("This draft has another owner.")
    return task_return(actor=actor, task=task, queue=queue, transition=ENQUEUE)


def task_run_again(
    *, actor: User, task: Task, queue: str | int | None = None, is_all: bool = False
) -> Task:
    """Enqueue an ended task again, as a new submission.

    Args:
        queue: another queue; None means its last one.
        is_all: of an array, also the elements that completed.

    Returns:
        The task; of an array, or an element of one, the new array that runs again.

    Raises:
        NotAllowed, NotFound: the actor may not do it, or actor or owner may not use the queue.
        BadInput, NeverFits: the queue does not take it any more.
        Conflict: it has not ended.
    """
    check_can_manage_task(actor, task)
    if task.state not in RUN_AGAIN.sources:
        raise Conflict("Only tasks that have ended can run again.")
    if task.array_count is not None or task.array_id is not None:
        return array_run_again(
            actor=actor,
            task=task,
            values=spec_values(task),
            queue=_queue_or(task, queue),
            is_all=is_all,
        )
    return task_return(
        actor=actor,
        task=task,
        queue=_queue_or(task, queue),
        transition=RUN_AGAIN,
    )


def task_resume(*, actor: User, task: Task) -> Task:
    """Put a paused or rejected task back into its queue; a paused one keeps its submission time.

    Raises:
        NotAllowed, NotFound: the actor may not do it, or may not use the queue.
        BadInput, NeverFits: the queue does not take it any more.
        Conflict: it is neither paused nor rejected.
    """
    check_can_manage_task(actor, task)
    if task.state not in RESUME.sources:
        raise Conflict("Only paused or rejected tasks can be resumed; enqueue a draft instead.")
    return task_return(
        actor=actor,
        task=task,
        queue=_queue_or(task, None),
        transition=RESUME,
        submitted_at=task.submitted_at or timezone.now(),
    )


def _queue_or(task: Task, queue: str | int | None) -> str | int:
    if queue is not None:
        return queue
    if task.queue_id is None:
        raise BadInput("queue is missing.", fields={"queue": "is missing: the task has none"})
    return task.queue_id


def _check_no_elements(task: Task) -> None:
    if task.array_id is not None or task.array_next:
        raise Conflict("Elements of this array are stored already: they cannot be changed.")


def _holds_secrets(task: Task) -> bool:
    own = task.owner.redacted_variables
    return bool(task.secrets) or bool(secret_names(task.spec.environment, own))


def _with_hidden(changes: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """The changes, with the stored value wherever a hidden value is sent back."""
    stored = {"environment": task.spec.environment, "secrets": task_secrets(task)}
    return {
        name: keep_hidden_values(value, stored[name])
        if name in stored and isinstance(value, Mapping)
        else value
        for name, value in changes.items()
    }


def _earlier_or_raise(actor: User, idempotency: Idempotency | None) -> Task:
    """The task of an equal request that was faster; any other conflict is an error."""
    task = earlier_task(actor.pk, idempotency)
    if task is None:
        raise Conflict("Something changed meanwhile: try again.")
    return task
