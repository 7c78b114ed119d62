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
from apps.events.services import Entry, events_record
from apps.policies.models import Queue
from apps.tasks.acceptance import QueueFacts
from apps.tasks.descriptions import Description, request_texts
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.lifecycle.transitions import ENQUEUE
from apps.tasks.lifecycle.writers import TaskSubject, transition_record
from apps.tasks.models import Task
from apps.tasks.services.enqueue.storage import check_may_store
from apps.tasks.services.enqueue.task_secrets import with_secrets
from apps.tasks.shapes import TaskShape
from apps.tasks.sizes import description_bytes


def new_task(description: Description, owner: User, *, state: TaskState = TaskState.QUEUED) -> Task:
    """A task that is not stored yet, without a request and a position in a queue.

    Raises:
        Conflict: the tasks of its owner would take more bytes than they may.
    """
    check_may_store(owner.pk, description_bytes(description))
    now = timezone.now()
    task = Task(
        owner=owner,
        state=state,
        is_by_owner=acted_by(owner.pk) is None,
        created_at=now,
        changed_at=now,
        **columns(description),
    )
    return with_secrets(task, description.secrets)


def new_draft(description: Description, owner: User) -> Task:
    """A draft that is not stored yet.

    Raises:
        BadInput: naming `request.<key>`.
        Conflict: as `new_task`.
    """
    task = new_task(description, owner, state=TaskState.DRAFT)
    if description.request is not None:
        task.request = request_texts(description, keys=None)
    return task


def mark_queued(
    task: Task, queue: Queue, *, shape: TaskShape, task_group_id: int, at: datetime
) -> None:
    """Put a task that is not stored yet at the end of the queue."""
    task.queue = queue
    task.task_group_id = task_group_id
    task.request = shape.request
    task.submitted_at = task.changed_at = at


def columns(description: Description) -> dict[str, Any]:
    """Columns that hold the owner's description, without request, secrets and queue."""
    callback = description.abort_callback
    return {
        "name": description.name.strip(),
        "image": description.image,
        "command": description.command,
        "environment": description.environment,
        "working_dir": description.working_dir,
        "replicas": description.replicas,
        "volumes": description.volumes,
        "priority": description.priority,
        "is_preemptible": description.is_preemptible,
        "is_restartable": description.is_restartable,
        "time_limit_s": description.time_limit_s,
        "retries": description.retries,
        "abort_callback": msgspec.to_builtins(callback) if callback else None,
        "checkpoint_volume": description.checkpoint_volume,
        "tags": description.tags,
        "size_bytes": description_bytes(description),
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
        Entry(kind="task.draft", object_type="task", object_id=task.pk, actor_id=owner_id)
        for task in drafts
    ]
    events_record(entries, topics=[f"task.{task.pk}" for task in drafts])


def waiting_announce(tasks: Sequence[Task], facts: QueueFacts, owner_id: int) -> None:
    """Record new waiting tasks, and notify the pass."""
    subjects = [
        TaskSubject(
            id=task.pk,
            owner_id=task.owner_id,
            queue_id=facts.queue_id,
            policy_id=facts.policy_id,
            data={"from": ""},
        )
        for task in tasks
    ]
    transition_record(ENQUEUE, subjects, actor_id=owner_id)
