"""An array, or one element, again: as a new array of the chosen elements.

What has ended stays as it is, and the limit of the array holds from its first element on.
"""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict
from apps.tasks.acceptance import accept
from apps.tasks.lifecycle.states import ENDED_STATES, LIVE_STATES, TaskState
from apps.tasks.models import Task
from apps.tasks.selectors.mounts import mounts_for
from apps.tasks.selectors.vaults import vaults_have_image
from apps.tasks.services.enqueue.new_tasks import mark_queued, new_task, waiting_announce
from apps.tasks.services.enqueue.queue_bounds import (
    check_may_open_array,
    check_may_wait,
    facts_for,
)
from apps.tasks.services.queues import check_open_to_owner, queue_lock, queue_ref
from apps.tasks.services.task_groups import task_group_ensure
from apps.tasks.task_spec import spec_of


def array_run_again(
    *, actor: User, task: Task, values: dict[str, Any], queue: str | int, is_all: bool
) -> Task:
    """Enqueue elements of an ended array again, as a new array of the same owner.

    Args:
        task: the array, or one element, which then runs alone.
        values: its spec as plain values, with its secrets.
        is_all: also the elements that completed.

    Raises:
        NotAllowed, NotFound, BadInput, NeverFits: as enqueueing a new task.
        Conflict: elements have not ended, none is left to run, or it runs again already.
    """
    spec = spec_of(values)
    at = queue_ref(actor, queue)
    has_image = vaults_have_image(
        task.owner_id, tenant_id=at.tenant_id, is_by_owner=task.is_by_owner
    )
    # What has ended stays so: the same elements are to run once the queue is locked.
    again = new_task(spec, task.owner, indices=_indices(task, is_all=is_all))
    again.is_by_owner = task.is_by_owner
    again.array_origin = _origin(task)
    with transaction.atomic():
        found = queue_lock(actor, at.pk, queue)
        check_open_to_owner(task, found)
        check_array_once(again)
        facts = facts_for(found, has_image=has_image)
        check_may_wait(facts, task.owner_id)
        check_may_open_array(again)
        mounts = mounts_for(actor, task, spec, facts)
        shape = accept(spec, facts, owner_id=task.owner_id, mounts=mounts)
        task_group_id = task_group_ensure(
            facts.queue_id, shape, most=settings.RPM_TASK_GROUPS_PER_QUEUE
        )
        mark_queued(again, found, shape=shape, task_group_id=task_group_id, at=timezone.now())
        again.save(force_insert=True)
        waiting_announce([again], found, actor.pk)
    return again


def check_array_once(array: Task) -> None:
    """Check that no index of an array, which is to wait, runs or waits in an array like it.

    These are the first one and all that ran again after it, or after one of its elements. Of two
    requests at once, the later one waits here. A stored array is locked and read again, too.

    Raises:
        Conflict: one of them runs, or may start.
    """
    if array.array_count is None and array.array_origin is None:
        return
    origin = array.array_origin or array.pk
    related = Q(pk=origin) | Q(array_origin=origin)
    rows = Task.objects.filter(related).order_by("pk")
    list(rows.select_for_update(no_key=True).values_list("pk"))
    # A statement that waits does not see what was stored meanwhile: the next one does.
    others = {one.pk: one for one in rows}
    array = others.pop(array.pk, array)
    wanted = set(array.array_indices or range(array.array_count or 0))
    for one in others.values():
        if one.state == TaskState.QUEUED:
            indices = one.array_indices or range(one.array_count or 0)
            if not wanted.isdisjoint(indices[one.array_next :]):
                raise Conflict(f"It runs again already, as array {one.pk}.")
    live = Task.objects.filter(
        array__in=list(others), array_index__in=wanted, state__in=LIVE_STATES
    )
    if (element := live.first()) is not None:
        index, where = element.array_index, element.array_id
        raise Conflict(f"It runs again already: element {index} of array {where} has not ended.")


def _origin(task: Task) -> UUID:
    """The first array of those that ran one after the other."""
    array = task.array or task
    return array.array_origin or array.pk


def _indices(task: Task, *, is_all: bool) -> list[int]:
    """The indices of the elements to run, in order; those that never started are among them.

    One that is not stored any more, since what ended is removed in time, may have completed.
    """
    if task.array_index is not None:
        return [task.array_index]
    elements = dict(task.elements.values_list("array_index", "state"))
    if set(elements.values()) - set(ENDED_STATES):
        raise Conflict("Elements of this array are still being stopped: try again in a moment.")
    indices = task.array_indices or list(range(task.array_count or 0))
    if is_all:
        return indices
    never = set(indices[task.array_next :])
    done = {None, TaskState.COMPLETED}
    left = [one for one in indices if one in never or elements.get(one) not in done]
    if not left:
        raise Conflict("All elements of this array completed: say that all are to run again.")
    return left
