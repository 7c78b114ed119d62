"""The REST payload of a task, the same on the fast path and the standard path."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta
from msgspec.structs import fields

from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task
from apps.tasks.redaction import hide_values, redact
from apps.tasks.services.enqueue.fast_path import StoredTask
from apps.tasks.task_spec import CONTENT, TaskSpec


class TaskSummary(msgspec.Struct, frozen=True):
    """The fields that every user who sees the queue may read."""

    id: UUID
    name: str
    state: Annotated[str, Meta(extra_json_schema={"enum": TaskState.values})]
    queue_id: int | None
    queue: str | None
    policy_id: int | None
    owner: str
    priority: int
    request: Annotated[dict[str, str] | None, Meta(description="Null: that of the profile.")]
    replicas: Annotated[int | None, Meta(description="Null: those of the profile.")]
    is_preemptible: bool
    is_restartable: bool
    time_limit_s: int | None
    retries: int
    tags: list[str]
    hold: Annotated[bool, Meta(description="It waits until it is released.")]
    generation: Annotated[int, Meta(description="How often it was admitted.")]
    preemptions: int
    failures: int
    exit_code: int | None
    created_at: datetime
    submitted_at: datetime | None
    changed_at: datetime
    ended_at: datetime | None
    array_id: Annotated[UUID | None, Meta(description="Of an element: its array.")]
    array_index: int | None
    array_counts: Annotated[
        dict[str, int] | None,
        Meta(description="Of an array: its elements by state; `left` are not stored yet."),
    ]


# The whole task: the fields beyond the summary are null for users who may not read its content.
TaskDetail = msgspec.defstruct(
    "Task",
    [
        ("state_detail", str | None),
        *((one.name, one.type | None) for one in fields(TaskSpec) if one.name in CONTENT),
        ("secrets", Annotated[dict[str, str] | None, Meta(description="Every value is hidden.")]),
    ],
    bases=(TaskSummary,),
    frozen=True,
)
ArrayCounts = Mapping[UUID, dict[str, int]]
NO_COUNTS: ArrayCounts = {}
ARRAY = ("array_id", "array_index", "array_counts")
SUMMARY = TaskSummary.__struct_fields__
DETAILS = TaskDetail.__struct_fields__[len(SUMMARY) :]


def task_summary(task: Task, counts: ArrayCounts = NO_COUNTS) -> dict[str, Any]:
    """A row of a list; needs `owner` and `queue` loaded, and the counts of arrays."""
    queue = task.queue
    derived = {
        "submitted_at": task.waits_since,
        "hold": task.is_held,
        "owner": task.owner.username,
        "queue": queue.name if queue is not None else None,
        "policy_id": queue.policy_id if queue is not None else None,
        "array_counts": counts.get(task.pk),
    }
    return {name: derived[name] if name in derived else getattr(task, name) for name in SUMMARY}


def task_detail(
    task: Task, *, has_content: bool, counts: ArrayCounts = NO_COUNTS
) -> dict[str, Any]:
    """The whole task; its content is null for users who may not read it, secrets are hidden."""
    if not has_content:
        return {**task_summary(task, counts), **dict.fromkeys(DETAILS)}
    spec = task.spec
    return {
        **task_summary(task, counts),
        "state_detail": task.state_detail,
        **_content(spec, task.owner.redacted_variables),
        "secrets": hide_values(task.secrets),
    }


def _content(spec: TaskSpec, own: Iterable[str]) -> dict[str, Any]:
    """What it runs; values of secret variables are hidden."""
    content = {name: msgspec.to_builtins(getattr(spec, name)) for name in CONTENT}
    return {**content, "environment": redact(spec.environment, own)}


def stored_task_detail(stored: StoredTask, spec: TaskSpec) -> dict[str, Any]:
    """`task_detail` of a task that was just stored, for its owner."""
    facts = {
        "id": stored.id,
        "name": spec.name.strip(),
        "state": "queued",
        "queue_id": stored.facts.queue_id,
        "queue": stored.facts.name,
        "policy_id": stored.facts.policy_id,
        "owner": stored.owner,
        "request": stored.shape.request,
        **dict.fromkeys(("created_at", "submitted_at", "changed_at"), stored.at),
        **dict.fromkeys(("generation", "preemptions", "failures"), 0),
        **dict.fromkeys(("exit_code", "ended_at", *ARRAY)),
    }
    return {
        **{name: facts[name] if name in facts else getattr(spec, name) for name in SUMMARY},
        "state_detail": "",
        **_content(spec, stored.redacted_variables),
        "secrets": hide_values(spec.secrets),
    }
