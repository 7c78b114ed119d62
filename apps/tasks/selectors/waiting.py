"""Where a task stands in its queue, and why it waits."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.policies.selectors import policies_visible_to, pools_visible_to, queues_visible_to
from apps.tasks.models import Run, Task
from apps.tasks.selectors.seen import tasks_visible_to
from apps.tasks.states import TaskState

# A place further back is not worth counting exactly.
FAR = 10_000


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task waits.

    `code` and `reasons` are what the last pass said about the first waiting task of its kind; they
    hold for its equals behind it too, which only stand further back. `place` is the place in the
    queue; it counts from 1 and stops at `FAR`.
    """

    code: str
    reasons: list[dict[str, Any]]
    place: int | None = None
    at: datetime | None = None


def in_line(queue_id: int) -> QuerySet[Task]:
    """The waiting tasks of a queue in the order in which they start: priority, then age."""
    return Task.objects.filter(queue=queue_id, state=TaskState.QUEUED).order_by(
        "-priority", "submitted_at", "pk"
    )


def place_in_line(task: Task) -> int:
    """The place of a waiting task in its queue, from 1, at most `FAR`."""
    same = Q(priority=task.priority)
    ahead = Q(priority__gt=task.priority) | same & Q(submitted_at__lt=task.submitted_at)
    ahead |= same & Q(submitted_at=task.submitted_at, pk__lt=task.pk)
    line = Task.objects.filter(queue=task.queue_id, state=TaskState.QUEUED).filter(ahead)
    return line.order_by()[: FAR - 1].count() + 1


def task_explained(task: Task) -> Explanation | None:
    """Why a waiting task waits; None for a task that does not wait."""
    if task.state != TaskState.QUEUED or task.run_id is None:
        return None
    run = Run.objects.get(pk=task.run_id)
    place = place_in_line(task)
    reasons = list(run.reason.get("reasons") or [])
    if not reasons or not _still_waits(run, task):
        # New: the next pass looks at it within moments.
        return Explanation("", [], place)
    return Explanation(str(run.reason_code), reasons, place, run.reason_at)


def reasons_seen(user: User, reasons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The reasons with ids only of what the user may know of; all numbers stay.

    What is not theirs is null; from lists it is missing. At most four queries.
    """
    if is_admin(user):
        return reasons
    details = [detail for reason in reasons for detail in reason.get("details", ())]
    seen = {
        "pool": _seen(pools_visible_to(user), details, "pool"),
        "policy": _seen(policies_visible_to(user), details, "policy", "policies"),
        "queue": _seen(queues_visible_to(user), details, "queue"),
        "user": {str(user.pk)},
        "tasks": _seen(tasks_visible_to(user), details, "tasks"),
    }
    seen["policies"] = seen["policy"]
    return [
        {**reason, "details": [_told(detail, seen) for detail in reason.get("details", ())]}
        for reason in reasons
    ]


def _seen(rows: QuerySet[Any], details: list[dict[str, Any]], *fields: str) -> set[str]:
    named = {
        given
        for detail in details
        for field in fields
        if field in detail
        for given in (detail[field] if isinstance(detail[field], list) else [detail[field]])
    }
    if not named:
        return set()
    return {str(pk) for pk in rows.filter(pk__in=named).values_list("pk", flat=True)}


def _told(detail: dict[str, Any], seen: dict[str, set[str]]) -> dict[str, Any]:
    told = dict(detail)
    for field in told.keys() & seen.keys():
        given = told[field]
        if isinstance(given, list):
            told[field] = [one for one in given if str(one) in seen[field]]
        elif str(given) not in seen[field]:
            told[field] = None
    return told


def _still_waits(run: Run, task: Task) -> bool:
    """Whether what was said about the first task of the run is not about one long gone."""
    if run.head_id == task.pk:
        return True
    head = Task.objects.filter(pk=str(run.head_id), run=run.pk, state=TaskState.QUEUED)
    return run.head_id is not None and head.exists()
