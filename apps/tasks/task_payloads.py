"""The REST payload of a task, the same on the fast path and the standard path."""

from typing import Any

from apps.tasks.descriptions import Description
from apps.tasks.models import Task
from apps.tasks.redaction import hide_values, redact
from apps.tasks.services.enqueue.fast_path import StoredTask

# The fields that every user who sees the queue may read.
_PUBLIC = (
    "id",
    "name",
    "state",
    "queue_id",
    "priority",
    "request",
    "replicas",
    "is_preemptible",
    "is_restartable",
    "time_limit_s",
    "retries",
    "tags",
    "generation",
    "preemptions",
    "failures",
    "exit_code",
    "created_at",
    "submitted_at",
    "changed_at",
    "ended_at",
)
_CONTENT = (
    "state_detail",
    "image",
    "command",
    "working_dir",
    "volumes",
    "checkpoint_volume",
    "abort_callback",
)


def task_summary(task: Task) -> dict[str, Any]:
    """A row of a list; needs `owner` and `queue` loaded."""
    facts = {name: getattr(task, name) for name in _PUBLIC}
    facts["submitted_at"] = task.waits_since
    queue = task.queue
    return {
        **facts,
        "owner": task.owner.username,
        "queue": queue.name if queue is not None else None,
        "policy_id": queue.policy_id if queue is not None else None,
    }


def task_detail(task: Task, *, has_content: bool) -> dict[str, Any]:
    """The whole task; its content is null for users who may not read it, secrets are hidden."""
    if not has_content:
        return {**task_summary(task), **dict.fromkeys((*_CONTENT, "environment", "secrets"))}
    return {
        **task_summary(task),
        **{name: getattr(task, name) for name in _CONTENT},
        "environment": redact(task.environment, task.owner.redacted_variables),
        "secrets": hide_values(task.secrets),
    }


def stored_task_detail(stored: StoredTask, description: Description) -> dict[str, Any]:
    """`task_detail` of a task that was just stored, for its owner."""
    callback = description.abort_callback
    return {
        "id": stored.id,
        "name": description.name.strip(),
        "state": "queued",
        "queue_id": stored.facts.queue_id,
        "priority": description.priority,
        "request": stored.shape.request,
        "replicas": description.replicas,
        "is_preemptible": description.is_preemptible,
        "is_restartable": description.is_restartable,
        "time_limit_s": description.time_limit_s,
        "retries": description.retries,
        "tags": description.tags,
        "generation": 0,
        "preemptions": 0,
        "failures": 0,
        "exit_code": None,
        "created_at": stored.at,
        "submitted_at": stored.at,
        "changed_at": stored.at,
        "ended_at": None,
        "owner": stored.owner,
        "queue": stored.facts.name,
        "policy_id": stored.facts.policy_id,
        "state_detail": "",
        "image": description.image,
        "command": description.command,
        "working_dir": description.working_dir,
        "volumes": description.volumes,
        "checkpoint_volume": description.checkpoint_volume,
        "abort_callback": callback,
        "environment": redact(description.environment, stored.redacted_variables),
        "secrets": hide_values(description.secrets),
    }
