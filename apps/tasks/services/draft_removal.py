"""Deletion of drafts, which leaves an entry in the audit log and nothing else."""

from datetime import datetime

from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import Conflict, NotFound, Stale
from apps.core.notifications import after_commit
from apps.events.services import audit_record
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task
from apps.tasks.models.dependencies import UNSETTLED
from apps.tasks.services.queues import check_can_manage_task
from apps.tasks.services.retention import unstarted_tasks_remove


@transaction.atomic
def draft_delete(*, actor: User, task: Task, version: datetime | None = None) -> None:
    """Delete a draft that never ran, with its timeline and the keys of the requests for it.

    Args:
        version: the time of the last change that was read; None does not check.

    Raises:
        NotAllowed: the draft has another owner, and the actor is no administrator.
        NotFound: it was deleted meanwhile.
        Conflict: the task is no draft, has run before, or others wait for it.
        Stale: it changed since it was read.
    """
    check_can_manage_task(actor, task)
    locked = Task.objects.select_for_update().filter(pk=task.pk).first()
    if locked is None:
        raise NotFound("The draft was deleted meanwhile.")
    if locked.state != TaskState.DRAFT:
        raise Conflict("Only drafts can be deleted: abort the task instead.")
    check_can_manage_task(actor, locked)
    if version is not None and locked.changed_at != version:
        raise Stale("The draft changed since you read it.")
    if locked.generation or locked.array_id is not None or locked.elements.exists():
        raise Conflict("The draft has run, or is part of an array that has: abort it instead.")
    if locked.dependents.filter(UNSETTLED).exists():
        raise Conflict("Other tasks wait for this one: abort it instead, which decides about them.")
    unstarted_tasks_remove([locked.pk])
    audit_record(
        "task.deleted",
        actor=actor,
        object_type="task",
        object_id=locked.pk,
        data={"name": locked.name, "owner": locked.owner.username},
    )
    after_commit(topics=["tasks", f"task.{locked.pk}"])
