"""The way of a stored task into a queue, where it is checked as if it were new."""

from collections.abc import Mapping
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, NotFound
from apps.tasks.acceptance import accept
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.lifecycle.transitions import TaskTransition
from apps.tasks.lifecycle.writers import tasks_lock_and_transition
from apps.tasks.models import Task
from apps.tasks.selectors.mounts import mounts_for
from apps.tasks.selectors.secrets import task_secrets
from apps.tasks.selectors.vaults import vaults_have_image
from apps.tasks.services.enqueue.array_runs import check_array_once
from apps.tasks.services.enqueue.queue_bounds import (
    check_may_open_array,
    check_may_wait,
    facts_for,
)
from apps.tasks.services.queues import check_open_to_owner, queue_lock, queue_ref
from apps.tasks.services.task_groups import task_group_ensure
from apps.tasks.task_spec import COLUMNS, spec_of


def task_return(
    *,
    actor: User,
    task: Task,
    queue: str | int,
    transition: TaskTransition,
    data: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Task:
    """Put a task into a queue, checked again as if it were new, and its elements with it.

    Args:
        transition: the one to *queued*.
        data: further data of its event.
        changes: columns to set in addition to its position in the queue.

    Raises:
        NotAllowed: actor or owner may not enqueue there.
        NotFound: the actor does not see the queue.
        BadInput, NeverFits: the queue does not take such a task.
        Conflict: the task is in another state, or it is an array that runs again already.
    """
    at = queue_ref(actor, queue)
    # Read without regard to its own image: the draft may be changed meanwhile.
    has_image = vaults_have_image(
        task.owner_id, tenant_id=at.tenant_id, is_by_owner=task.is_by_owner
    )
    with transaction.atomic():
        found = queue_lock(actor, at.pk, queue)
        check_open_to_owner(task, found)
        if TaskState.QUEUED not in transition.sources:
            # Locks the array with those like it, in the order of ids: before its own lock.
            check_array_once(task)
        # Read again: with a change since the actor read it, the task would wait in a wrong group.
        now = Task.objects.select_for_update(no_key=True).filter(pk=task.pk).first()
        if now is None:
            raise NotFound("This task was removed meanwhile.")
        spec = spec_of(spec_values(now))
        facts = facts_for(found, has_image=has_image)
        check_may_wait(facts, task.owner_id)
        if now.state != TaskState.QUEUED:
            check_may_open_array(now)
        mounts = mounts_for(actor, now, spec, facts)
        elements = _elements_lock(now, transition)
        shapes = {
            priority: accept(
                msgspec.structs.replace(spec, priority=priority),
                facts,
                owner_id=task.owner_id,
                mounts=mounts,
            )
            for priority in (spec.priority, *elements)
        }
        groups = {
            priority: task_group_ensure(
                facts.queue_id, shape, most=settings.RPM_TASK_GROUPS_PER_QUEUE
            )
            for priority, shape in shapes.items()
        }
        position: dict[str, Any] = {
            "queue_id": facts.queue_id,
            "request": shapes[spec.priority].request,
        }
        if "submitted_at" not in changes:
            position |= {"submitted_at": timezone.now(), "waiting_since": None}

        def move(ids: list[Any], priority: int) -> bool:
            columns = {**position, "task_group_id": groups[priority], **changes}
            return bool(
                tasks_lock_and_transition(
                    transition, ids, actor_id=actor.pk, columns=columns, data=data
                )
            )

        if not move([task.pk], spec.priority):
            raise Conflict("The task is in another state by now: read it again.")
        for priority, ids in elements.items():
            move(ids, priority)
    task.refresh_from_db()
    return task


def _elements_lock(array: Task, transition: TaskTransition) -> dict[int, list[Any]]:
    """The elements that are where their array is, locked, by their own priority."""
    found: dict[int, list[Any]] = {}
    if array.array_count is None:
        return found
    elements = Task.objects.filter(
        array=array.pk, queue=array.queue_id, state__in=transition.sources
    )
    locked = elements.select_for_update(no_key=True).order_by("pk")
    for pk, priority in locked.values_list("pk", "priority"):
        found.setdefault(priority, []).append(pk)
    return found


def spec_values(task: Task) -> dict[str, Any]:
    """The spec of a task as plain values, with its secrets."""
    own = {name: getattr(task, name) for name in COLUMNS}
    return {**task.content, **own, "secrets": task_secrets(task), "hold": task.is_held}
