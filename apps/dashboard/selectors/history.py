"""What happened to a task, from its attempts, its events and its reasons."""

from dataclasses import dataclass

from django.db.models import Prefetch

from apps.allocation.explaining import past_reasons
from apps.events.models import Event
from apps.tasks.models import Attempt, Holding, ReasonChange, Task

MOST_EVENTS = 60


@dataclass(frozen=True, slots=True)
class History:
    """Attempts oldest first; events and reasons newest first."""

    attempts: tuple[Attempt, ...]
    events: tuple[Event, ...]
    reasons: tuple[ReasonChange, ...]

    def taker_policy(self, generation: int) -> int | None:
        """The policy of whose task the attempt was stopped for."""
        for attempt in self.attempts:
            if attempt.generation == generation and attempt.stops_for is not None:
                return attempt.stops_for.policy_id
        return None

    def standing(self, generation: int) -> str:
        """How the pass counted the attempt when it was admitted."""
        for event in self.events:
            if event.data.get("generation") == generation and "standing" in event.data:
                return str(event.data["standing"])
        return ""


def task_history(task: Task) -> History:
    """In six queries at most, however much happened."""
    holdings = Holding.objects.select_related("node")
    attempts = (
        task.attempts.select_related("pool", "stops_for")
        .prefetch_related(Prefetch("holdings", holdings))
        .order_by("generation")
    )
    events = Event.objects.filter(object_type="task", object_id=str(task.pk))
    return History(
        attempts=tuple(attempts),
        events=tuple(events.select_related("actor")[:MOST_EVENTS]),
        reasons=tuple(past_reasons(task)),
    )
