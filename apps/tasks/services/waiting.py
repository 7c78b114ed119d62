"""How many tasks may wait: of one person in a queue, and in the queue altogether."""

from django.conf import settings

from apps.core.errors import Conflict
from apps.tasks.acceptance import QueueFacts
from apps.tasks.models import Task
from apps.tasks.states import TaskState

# Counting grows with the queue: a process does so once for so many tasks of a person, by which
# the bounds of the installation may be exceeded.
COUNT_EVERY = 1000
MOST_REMEMBERED = 10_000
_since_count: dict[tuple[int, int], int] = {}


def count_is_due(queue_id: int, owner_id: int) -> bool:
    """Whether so many tasks were let in since the last count that it is time for another."""
    bounds = (settings.RPM_WAITING_PER_PERSON, settings.RPM_WAITING_PER_QUEUE)
    since = _since_count.get((queue_id, owner_id), 0) + 1
    if since > min(COUNT_EVERY, min(bounds) // 100):
        return True
    _note(queue_id, owner_id, since)
    return False


def check_may_wait(facts: QueueFacts, owner_id: int) -> None:
    """Raises Conflict where not one more task of this person may wait in the queue."""
    if facts.max_waiting is None and not count_is_due(facts.queue_id, owner_id):
        return
    if room_to_wait(facts, owner_id) < 1:
        raise too_many_waiting(facts)


def room_to_wait(facts: QueueFacts, owner_id: int) -> int:
    """How many more tasks of a person may wait in the queue."""
    _note(facts.queue_id, owner_id, 0)
    waiting = Task.objects.filter(queue_id=facts.queue_id, state=TaskState.QUEUED)
    room = _most_of_one(facts) - waiting.filter(owner_id=owner_id).count()
    return max(0, min(room, settings.RPM_WAITING_PER_QUEUE - waiting.count()))


def too_many_waiting(facts: QueueFacts) -> Conflict:
    problem = f"lets at most {_most_of_one(facts)} tasks of one person wait"
    if facts.max_waiting is None:
        problem += f", and {settings.RPM_WAITING_PER_QUEUE} of all"
    return Conflict(f"Queue {facts.name} {problem}.", fields={"queue": problem})


def _most_of_one(facts: QueueFacts) -> int:
    most: int = settings.RPM_WAITING_PER_PERSON
    return most if facts.max_waiting is None else min(facts.max_waiting, most)


def _note(queue_id: int, owner_id: int, since: int) -> None:
    if len(_since_count) >= MOST_REMEMBERED:
        _since_count.clear()
    _since_count[queue_id, owner_id] = since
