"""New tasks: their rows, and their announcement."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.conf import settings
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict
from apps.core.origin import acted_by
from apps.events.services import NewEvent, events_record
from apps.policies.models import Queue
from apps.tasks.lifecycle.states import Ineligibility, TaskState
from apps.tasks.lifecycle.transitions import ENQUEUE
from apps.tasks.lifecycle.writers import TaskSubject, transition_record
from apps.tasks.models import Task
from apps.tasks.services.enqueue.storage import check_may_store
from apps.tasks.services.enqueue.task_secrets import with_secrets
from apps.tasks.shapes import TaskShape
from apps.tasks.sizes import spec_bytes
from apps.tasks.task_spec import COLUMNS, CONTENT, TaskSpec, refuse, request_texts

# What waits for others has to be in a queue, so that their end reaches it.
AFTER_OF_DRAFT = {
    "after": "is for tasks in a queue: name a queue, or set it with tasks/<id>/dependencies/ once "
    "the draft is enqueued"
}


def new_task(
    spec: TaskSpec,
    owner: User,
    *,
    state: TaskState = TaskState.QUEUED,
    indices: list[int] | None = None,
) -> Task:
    """A task that is not stored yet, without a request and a position in a queue.

    Args:
        indices: the elements of an array that run again.

    Raises:
        Conflict: the tasks of its owner would take more bytes than they may.
    """
    values = columns(spec, indices=indices)
    check_may_store(owner.pk, values["size_bytes"])
    now = timezone.now()
    task = Task(
        owner=owner,
        state=state,
        is_by_owner=acted_by(owner.pk) is None,
        created_at=now,
        changed_at=now,
        **values,
    )
    return with_secrets(task, spec.secrets)


def new_draft(spec: TaskSpec, owner: User) -> Task:
    """A draft that is not stored yet.

    Raises:
        BadInput: naming `request.<key>`, or `after`, which no draft has.
        Conflict: as `new_task`.
    """
    if spec.after:
        refuse(AFTER_OF_DRAFT)
    task = new_task(spec, owner, state=TaskState.DRAFT)
    if spec.request is not None:
        task.request = request_texts(spec, keys=None)
    return task


def mark_queued(
    task: Task, queue: Queue, *, shape: TaskShape, task_group_id: int, at: datetime
) -> None:
    """Put a task that is not stored yet at the end of the queue."""
    task.queue = queue
    task.task_group_id = task_group_id
    task.request = shape.request
    task.submitted_at = task.changed_at = at


def columns(spec: TaskSpec, *, indices: list[int] | None = None) -> dict[str, Any]:
    """The columns that hold the spec, without request, secrets and queue."""
    size = spec.array.size if spec.array is not None else None
    count = size if indices is None else len(indices)
    own = {name: getattr(spec, name) for name in COLUMNS if name != "request"}
    return {
        **own,
        "name": spec.name.strip(),
        "content": {name: msgspec.to_builtins(getattr(spec, name)) for name in CONTENT},
        "size_bytes": spec_bytes(spec, elements=count),
        "ineligible_code": Ineligibility.ON_HOLD.value if spec.hold else "",
        "array_count": count,
        "array_indices": indices,
        "array_limit": spec.array.limit if spec.array is not None else None,
    }


def drafts_left(owner: User) -> int:
    """How many more drafts a user may have; concurrent requests may exceed it slightly."""
    most: int = settings.RPM_DRAFTS_PER_PERSON
    drafts = Task.objects.filter(owner=owner, state=TaskState.DRAFT)
    return most - drafts.values("pk")[:most].count()


def too_many_drafts() -> Conflict:
    problem = f"may be {settings.RPM_DRAFTS_PER_PERSON} at most: remove some, or enqueue them"
    return Conflict(f"Drafts of one user {problem}.", fields={"body": problem})


def drafts_announce(drafts: Sequence[Task], owner_id: int) -> None:
    """Record new drafts, which only their owner sees."""
    entries = [
        NewEvent(kind="task.draft", object_type="task", object_id=task.pk, actor_id=owner_id)
        for task in drafts
    ]
    events_record(entries, topics=[f"task.{task.pk}" for task in drafts])


def waiting_announce(tasks: Sequence[Task], queue: Queue, owner_id: int) -> None:
    """Record new waiting tasks, and notify the pass."""
    subjects = [
        TaskSubject(
            id=task.pk,
            owner_id=task.owner_id,
            queue_id=queue.pk,
            policy_id=queue.policy_id,
            data={"from": ""},
        )
        for task in tasks
    ]
    transition_record(ENQUEUE, subjects, actor_id=owner_id)
