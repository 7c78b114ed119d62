"""One task: why it waits, since when, and what it waited for before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine.model.reasons import ReasonCode
from apps.allocation.explanation.names import ReaderNames
from apps.allocation.explanation.reason_payloads import (
    ReasonPayload,
    reason_payload,
    reason_payloads,
)
from apps.allocation.explanation.suspension import SUSPENDED
from apps.nodes.selectors import is_suspended
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, TaskState
from apps.tasks.models import Attempt, ReasonChange, Task
from apps.tasks.selectors.queue_order import QueueExplanation, queue_explanation
from apps.tasks.selectors.visibility import is_shown_alone

MOST_PAST = 50

Reasons = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class PastReason:
    """From `at` on the task waited for this, until the next change or its start."""

    at: datetime
    reason: ReasonPayload


@dataclass(frozen=True, slots=True)
class TaskExplanation:
    """`reasons`, the dominant one first, are empty for a task that does not wait, and for a new
    one that no pass has decided about. `position` is that in its queue, from 1; `history` is newest
    first. `names` are those of the reader.
    """

    state: str
    names: ReaderNames
    reasons: tuple[ReasonPayload, ...] = ()
    position: int | None = None
    at: datetime | None = None
    history: tuple[PastReason, ...] = ()

    @property
    def code(self) -> str:
        """Of the dominant reason."""
        return self.reasons[0].code if self.reasons else ""


def explain_task(user: User, task: Task) -> TaskExplanation:
    """Why `task`, which the user may see, waits; with names of what the user may see only."""
    if is_shown_alone(task):
        # Reasons have figures of the queue, its policy and the tenant; a pool says where it is.
        return TaskExplanation(task.state, replace(ReaderNames.of(user, task), pools={}))
    known, now = queue_explanation(task), timezone.now()
    reasons = _draining(task) if known is None else reasons_now(task.queue_id, known)
    past = past_reasons(task)
    stored = [one.data.get("reasons", [])[:1] for one in past]
    names = ReaderNames.of(
        user,
        task,
        [*reasons, *(reason for first in stored for reason in first)],
        queues=(*map(queue_of, past), *task.attempts.values_list("queue_id", flat=True)),
    )
    return TaskExplanation(
        state=task.state,
        names=names,
        reasons=_suspended(task) + reason_payloads(reasons, names, now=now),
        position=known.position if known else None,
        at=known.at if known else None,
        history=tuple(
            _past(change, first[0], names)
            for change, first in zip(past, stored, strict=True)
            if first
        ),
    )


def _past(change: ReasonChange, first: Mapping[str, Any], names: ReaderNames) -> PastReason:
    names = names.in_queue(queue_of(change))
    return PastReason(change.at, reason_payload(first, names, now=change.at))


def queue_of(change: ReasonChange) -> int | None:
    """The id of the queue in which the task waited for this."""
    queue: int | None = change.data.get("queue")
    return queue


def _suspended(task: Task) -> tuple[ReasonPayload, ...]:
    """First where the database was restored: nothing is admitted, and nothing is launched."""
    waits = task.state in {TaskState.QUEUED, TaskState.ALLOCATED}
    return (SUSPENDED,) if waits and is_suspended() else ()


def reasons_now(queue_id: int | None, known: QueueExplanation) -> Reasons:
    """What the pass said of the first equal task, with the current position of this one.

    Equal tasks wait for the same thing, one after the other: a pass says it once, and the
    position of each is counted when it is shown.
    """
    if not known.reasons or known.position is None:
        return known.reasons
    own_position = {
        "code": ReasonCode.BEHIND.value,
        "details": [{"queue": queue_id, "position": known.position}],
    }
    positions = [index for index, one in enumerate(known.reasons) if _is_position(one)]
    found: list[Mapping[str, Any]] = [one for one in known.reasons if not _is_position(one)]
    if positions or not known.is_first:
        found.insert(positions[0] if positions else 1, own_position)
    return found


def _is_position(reason: Mapping[str, Any]) -> bool:
    """Whether this is the position of the first one, which is not that of its equals behind it."""
    return reason["code"] == ReasonCode.BEHIND and any(
        "position" in one for one in reason["details"]
    )


def _draining(task: Task) -> Reasons:
    """Of a task that has its placement and waits for the victims there to stop."""
    if task.state != TaskState.ALLOCATED:
        return []
    attempts = Attempt.objects.filter(task=task, state__in=LIVE_ATTEMPT_STATES)
    rows = attempts.filter(blocked_by__state__in=LIVE_ATTEMPT_STATES).order_by("blocked_by")
    pairs = list(rows.values_list("pool_id", "blocked_by__task_id"))
    if not pairs:
        return []
    detail = {"pool": pairs[0][0], "tasks": [str(victim) for _, victim in pairs]}
    return [{"code": ReasonCode.DRAINING.value, "details": [detail]}]


def past_reasons(task: Task) -> Sequence[ReasonChange]:
    """When the reason changed, newest first.

    A pass says it of the first equal task: a task that never was first waited for the same as the
    one that is first now.
    """
    changes = ReasonChange.objects.order_by("-id")
    own = list(changes.filter(task=task)[:MOST_PAST])
    group = task.task_group
    if own or group is None or group.head_id is None or task.submitted_at is None:
        return own
    if task.state != TaskState.QUEUED:
        return []
    return list(changes.filter(task=group.head_id, at__gte=task.submitted_at)[:MOST_PAST])
