"""What happened to a task, from its attempts, its events and its reasons."""

from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import Prefetch

from apps.allocation.explanation import past_reasons
from apps.events.models import Event
from apps.tasks.models import Attempt, Member, ReasonChange, Task
from apps.tasks.selectors.visibility import is_shown_alone

MOST_EVENTS = 60
# What events say of the task itself; the rest names where it is, and whom it waits for.
_OF_TASK_ALONE = ("from", "to", "generation", "then", "exit_code", "detail", "reason")


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """Attempts oldest first; events and reasons newest first."""

    attempts: tuple[Attempt, ...]
    events: tuple[Event, ...]
    reasons: tuple[ReasonChange, ...]

    @property
    def state_before_abort(self) -> str:
        """In which state the task was aborted last; empty where that is not known."""
        aborts = (event for event in self.events if event.kind == "task.aborted")
        return str(next((event.data.get("from", "") for event in aborts), ""))

    @property
    def dequeued_at(self) -> datetime | None:
        """When the task became a draft again; None if it never did."""
        return next((event.at for event in self.events if _is_dequeued(event)), None)

    @property
    def enqueued_at(self) -> datetime | None:
        """Since when the task waited that became a draft again; None where that is not known."""
        until = self.dequeued_at
        if until is None:
            return None
        waits = (event for event in self.events if event.kind == "task.queued")
        # One with a generation is the return of an attempt.
        return next((e.at for e in waits if e.at <= until and "generation" not in e.data), None)

    def beneficiary_policy(self, generation: int) -> int | None:
        """The policy of whose task the attempt was stopped for."""
        for attempt in self.attempts:
            if attempt.generation == generation and attempt.stops_for is not None:
                return attempt.stops_for.policy_id
        return None

    def tier(self, generation: int) -> str:
        """How the pass counted the attempt when it was admitted."""
        for event in self.events:
            if event.data.get("generation") == generation and "tier" in event.data:
                return str(event.data["tier"])
        return ""


def _is_dequeued(event: Event) -> bool:
    return event.kind == "task.draft" and bool(event.data.get("from"))


def task_history(task: Task) -> TaskHistory:
    """In six queries at most, however much happened."""
    members = Member.objects.select_related("node")
    attempts = (
        task.attempts.select_related("pool", "stops_for")
        .prefetch_related(Prefetch("members", members))
        .order_by("generation")
    )
    # Rules on the task are in the audit log.
    events = Event.objects.filter(object_type="task", object_id=str(task.pk))
    events = events.exclude(kind__startswith="rule.")
    found = TaskHistory(
        attempts=tuple(attempts),
        events=tuple(events.select_related("actor")[:MOST_EVENTS]),
        reasons=(),
    )
    if is_shown_alone(task):
        return _without_place(found)
    return replace(found, reasons=tuple(past_reasons(task)))


def _without_place(history: TaskHistory) -> TaskHistory:
    """The history for a reader by rule: nothing of queues, pools, other tasks and how it counts."""
    for event in history.events:
        event.queue_id = None
        event.data = {name: event.data[name] for name in _OF_TASK_ALONE if name in event.data}
    for attempt in history.attempts:
        attempt.stops_for = None
    return history
