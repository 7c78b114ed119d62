"""The bound on the bytes of all tasks of one user, in whatever state.

The sum reads one index entry for each task of the user. A process reads it once for every
hundredth of the bound that it accepts, so no row is locked and hardly any request waits for it;
each process may exceed the bound by that hundredth, and by one request.
"""

import time
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Sum

from apps.core.errors import Conflict
from apps.tasks.models import Task

MOST_REMEMBERED = 10_000
# A user above the bound who asks again at once gets the answer of the last sum.
REFUSED_S = 1.0


@dataclass(slots=True)
class _Stored:
    """The last sum of a user, and the bytes that this process accepted since then."""

    sum: int
    at: float
    since: int = 0

    def with_one(self, size: int) -> int:
        """The sum with one more task, as far as this process knows."""
        return self.sum + self.since + size


_stored: dict[int, _Stored] = {}


def storage_is_due(owner_id: int, size: int) -> bool:
    """Whether it is time to sum up before a task of this size; if not, the task is counted."""
    most: int = settings.RPM_TASK_BYTES_PER_PERSON
    if not most:
        return False
    known = _stored.get(owner_id)
    if known is None or known.since + size > most // 100 or known.with_one(size) > most:
        return True
    known.since += size
    return False


def check_may_store(owner_id: int, size: int) -> None:
    """Raise Conflict where the tasks of this user would exceed the bound."""
    if not storage_is_due(owner_id, size):
        return
    most: int = settings.RPM_TASK_BYTES_PER_PERSON
    known, now = _stored.get(owner_id), time.monotonic()
    if known is None or known.with_one(size) <= most or now - known.at >= REFUSED_S:
        if len(_stored) >= MOST_REMEMBERED:
            _stored.clear()
        known = _stored[owner_id] = _Stored(stored_bytes(owner_id), now)
    if known.with_one(size) > most:
        raise _too_much_stored(known.with_one(size), most)
    known.since += size


def stored_bytes(owner_id: int) -> int:
    """The bytes that the tasks of this user take now."""
    found = Task.objects.filter(owner=owner_id).order_by().aggregate(sum=Sum("size_bytes"))
    return found["sum"] or 0


def _too_much_stored(wanted: int, most: int) -> Conflict:
    problem = f"may take {most} bytes at most, and would take {wanted}"
    advice = "remove drafts, or abort tasks that wait"
    if settings.KEEP_TASKS_DAYS:
        advice += "; ended tasks are removed within minutes, oldest first"
    return Conflict(f"Tasks of one user {problem}: {advice}.", fields={"body": problem})
