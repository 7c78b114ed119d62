"""Beat by the monotonic clock: jumps of the wall clock do not change its schedule."""

import heapq
import time
from typing import Any

from celery.beat import PersistentScheduler, event_t
from celery.schedules import crontab


class SteadyScheduler(PersistentScheduler):
    """Every entry each `schedule` seconds, and once when beat starts.

    Celery's own asks the wall clock when an entry ran last: a clock that was two hours ahead for
    a moment leaves it waiting for two hours.
    """

    def _when(self, _entry: Any, next_time_to_run: float, *_: object) -> float:
        return time.monotonic() + (next_time_to_run or 0)

    def is_due(self, entry: Any) -> tuple[bool, float]:
        """Asked when its time has come; Celery's own clean-up goes by the time of day."""
        if isinstance(entry.schedule, crontab):
            due, next_s = super().is_due(entry)
            return bool(due), float(next_s)
        return True, entry.schedule.seconds

    def populate_heap(self, *_: object) -> None:
        self._heap = [event_t(self._when(one, 0), 5, one) for one in self.schedule.values()]
        heapq.heapify(self._heap)
