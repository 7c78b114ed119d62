"""Arrays in the queue of the worked example, and what nodes say of their elements."""

from collections import Counter

from apps.accounts.models import User
from apps.tasks.models import Attempt, Task
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import spec_of
from tests.allocation.state import begin, end
from tests.people import Example


def array_of(actor: User, example: Example, size: int, limit: int | None = None) -> Task:
    values = {
        "name": "sweep",
        "queue": example.dev_queue.name,
        "command": ["true"],
        "array": {"size": size, "limit": limit},
    }
    return task_submit(actor=actor, spec=spec_of(values))


def counts(array: Task) -> Counter[str]:
    return Counter(array.elements.values_list("state", flat=True))


def finish(array: Task, *codes: int) -> None:
    """End as many admitted elements as there are exit codes, the oldest first."""
    attempts = Attempt.objects.filter(task__array=array, ended_at=None).order_by("task_id")
    for attempt, code in zip(list(attempts[: len(codes)]), codes, strict=True):
        begin(attempt)
        end(attempt, code=code, is_stop_asked=False)


def stop_all(array: Task) -> None:
    """Nodes say that everything that was asked to stop has stopped."""
    for attempt in Attempt.objects.filter(task__array=array, state="stopping"):
        end(attempt)


def stored(array: Task) -> list[int]:
    return sorted(one.array_index or 0 for one in array.elements.all())
