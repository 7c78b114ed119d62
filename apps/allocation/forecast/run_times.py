"""How long work runs, as far as it can be known: time limits, and what ended before."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from apps.allocation.engine.model.snapshot import Id

# Fewer ended attempts than this say nothing about a queue; then those of all queues count.
ENOUGH = 20
# Fewer attempts than this that ran longer than a task has run already say nothing about its rest.
ENOUGH_LONGER = 5
SECOND = 1_000_000


class RunTimeSource(StrEnum):
    """The source of the length of a task; the weaker the later."""

    TIME_LIMIT = "time_limit"
    QUEUE = "queue"
    ALL_QUEUES = "all_queues"


@dataclass(frozen=True, slots=True)
class RunTimes:
    """What is known about run times, in microseconds.

    `limits` by task, of running and waiting ones that have a time limit. `by_queue` and `overall`
    are run times of ended attempts, ascending.
    """

    limits: Mapping[Id, int] = field(default_factory=dict)
    by_queue: Mapping[Id, Sequence[int]] = field(default_factory=dict)
    overall: Sequence[int] = ()

    def source(self, task: Id, queue: Id | None) -> RunTimeSource | None:
        """What `run_time` goes by; None where nothing is known."""
        if queue is not None and len(self.by_queue.get(queue, ())) >= ENOUGH:
            return RunTimeSource.QUEUE
        if task in self.limits:
            return RunTimeSource.TIME_LIMIT
        return RunTimeSource.ALL_QUEUES if len(self.overall) >= ENOUGH else None

    def run_time(self, task: Id, queue: Id | None, *, ran: int, chance: float) -> int | None:
        """How long a task runs in all that has run for `ran` already.

        Args:
            chance: from 0 to 1: with which the real length is at most the answer.

        Returns:
            More than `ran`, unless its time is up; None where nothing is known.
        """
        limit = self.limits.get(task)
        match self.source(task, queue):
            case None:
                return None
            case RunTimeSource.TIME_LIMIT:
                # People ask for more time than they need; how much more is not known.
                return ran + round(chance * max((limit or 0) - ran, 0))
            case RunTimeSource.QUEUE if queue is not None:
                found = _rest(self.by_queue[queue], ran, chance)
            case _:
                found = _rest(self.overall, ran, chance)
        return found if limit is None else min(found, limit)


def _rest(ended: Sequence[int], ran: int, chance: float) -> int:
    """Of those that ran longer; beyond them, as likely to run as long again as to end before."""
    first = bisect_right(ended, ran)
    longer = len(ended) - first
    if longer < ENOUGH_LONGER:
        return round(max(ran, SECOND) / max(1 - chance, 0.01))
    at = chance * (longer - 1)
    low = first + int(at)
    high = min(low + 1, len(ended) - 1)
    return round(ended[low] + (ended[high] - ended[low]) * (at - int(at)))
