"""How good expected starts are: estimated while a history is played, compared with what came."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from apps.allocation.engine.model.snapshot import Id, Snapshot
from apps.allocation.forecast import Arrivals, Estimate, RunTimes, expected_start
from apps.allocation.forecast.arrivals import SPAN_US
from apps.allocation.replay.playback import SECOND, TaskRecord
from apps.allocation.replay.trace import TraceTask
from apps.allocation.simulation.simulated_state import GroupKey

# As many of the last ended jobs of a team as an estimate goes by.
LAST = 500


@dataclass(frozen=True, slots=True)
class EstimateSample:
    """An estimate made for a job when it was submitted; times in seconds from then."""

    task: TraceTask
    estimate: Estimate | None
    earliest_s: int = 0
    latest_s: int | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many starts fell into their interval, of the estimates with this basis.

    `half`: of the measured time, 1 or 2. `basis` "none": there was no estimate, `samples` only.
    """

    half: int
    basis: str
    samples: int
    inside: int
    earlier: int
    later: int


def coverage(
    samples: Iterable[EstimateSample], records: Mapping[int, TaskRecord], middle_s: int
) -> tuple[Coverage, ...]:
    """By half and basis; jobs submitted from `middle_s` on are the second half."""
    groups: dict[tuple[int, str], list[EstimateSample]] = {}
    for sample in samples:
        half = 1 if sample.task.submitted_s < middle_s else 2
        basis = sample.estimate.basis.value if sample.estimate else "none"
        groups.setdefault((half, basis), []).append(sample)
    return tuple(_covered(*key, groups[key], records) for key in sorted(groups))


def _covered(
    half: int, basis: str, samples: Sequence[EstimateSample], records: Mapping[int, TaskRecord]
) -> Coverage:
    estimated = [
        (sample, records[sample.task.number].ran[0][0] - sample.task.submitted_s)
        for sample in samples
        if sample.estimate is not None
    ]
    earlier = sum(wait < sample.earliest_s for sample, wait in estimated)
    later = sum(
        sample.latest_s is not None and wait > sample.latest_s for sample, wait in estimated
    )
    inside = len(estimated) - earlier - later
    return Coverage(half, basis, len(samples), inside, earlier, later)


class EstimateSampler:
    """Estimates the start of every `each`-th job that waits, as an installation could have."""

    def __init__(self, queues: Mapping[str, str], *, start_s: int, end_s: int, each: int) -> None:
        self.samples: list[EstimateSample] = []
        self._queues = queues
        self._start_s, self._end_s = start_s, end_s
        self._each = each
        self._seen = 0
        self._history: dict[Id, _Ended] = {queue: _Ended() for queue in queues.values()}
        self._overall = _Ended()
        self._recent: deque[tuple[int, GroupKey]] = deque()

    def arrived(self, _task: TraceTask, group_key: GroupKey, submitted_us: int) -> None:
        self._recent.append((submitted_us, group_key))

    def ended(self, task: TraceTask, ran_us: int) -> None:
        self._history[self._queues[task.team]].add(ran_us)
        self._overall.add(ran_us)

    def waits(self, task: TraceTask, snapshot: Callable[[], Snapshot]) -> None:
        if not self._start_s <= task.submitted_s < self._end_s:
            return
        self._seen += 1
        if self._seen % self._each:
            return
        now = snapshot()
        found = expected_start(
            now,
            task=task.number,
            run_times=self._run_times(),
            arrivals=self._arrivals(now.now_us),
            seed=task.number,
        )
        if not isinstance(found, Estimate):
            self.samples.append(EstimateSample(task, None))
            return
        latest = found.latest_us
        self.samples.append(
            EstimateSample(
                task,
                found,
                earliest_s=(found.earliest_us - now.now_us) // SECOND,
                latest_s=None if latest is None else -((now.now_us - latest) // SECOND),
            )
        )

    def _arrivals(self, now_us: int) -> Arrivals:
        while self._recent and self._recent[0][0] <= now_us - SPAN_US:
            self._recent.popleft()
        return Arrivals(now_us, SPAN_US, tuple(self._recent))

    def _run_times(self) -> RunTimes:
        by_queue = {queue: tuple(ended.ascending) for queue, ended in self._history.items()}
        return RunTimes(by_queue=by_queue, overall=tuple(self._overall.ascending))


class _Ended:
    """The run times of the last jobs that ended, ascending."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque()
        self.ascending: list[int] = []

    def add(self, ran_us: int) -> None:
        self._recent.append(ran_us)
        insort(self.ascending, ran_us)
        if len(self._recent) > LAST:
            self.ascending.remove(self._recent.popleft())
