"""A history played through the engine, moment by moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import groupby
from typing import Protocol

from apps.allocation.engine import decide
from apps.allocation.engine.quantities import GPU, Quantities
from apps.allocation.engine.snapshot import Head, Id, Snapshot
from apps.allocation.forecast.world import Kind, World
from apps.allocation.replay.regimes import Part
from apps.allocation.replay.trace import Job

SECOND = 1_000_000


@dataclass(slots=True)
class Record:
    """What became of one job: when it ran, each time it did, in the trace's seconds.

    `was_covered`: when it was submitted, its team's reservation held it beside all that the team
    had running and waiting.
    """

    job: Job
    ran: list[tuple[int, int]] = field(default_factory=list)
    was_covered: bool = False
    is_refused: bool = False


@dataclass(slots=True)
class Played:
    """All jobs of a part, and how much work they were.

    `unsettled` counts the moments whose passes were cut short because they took the same job back
    twice: level `rank` has such cases (docs/replay.md).
    `covered_wait_s` counts the seconds in which, for some team, a job waited that the team's
    reservation would have held beside its running work.
    """

    records: list[Record]
    moments: int = 0
    passes: int = 0
    unsettled: int = 0
    covered_wait_s: int = 0


class Observer(Protocol):
    """Looks on while a history is played, and changes nothing."""

    def arrived(self, job: Job, kind: Kind, submitted_us: int) -> None:
        """`job` was enqueued, by the clock of the snapshots."""

    def waits(self, job: Job, snapshot: Callable[[], Snapshot]) -> None:
        """`job` was submitted and did not start at once; `snapshot` is of the moment after."""

    def ended(self, job: Job, ran_us: int) -> None:
        """`job` has ended by itself, its last start `ran_us` ago."""


def play(
    part: Part,
    *,
    checkpoint_s: int | None,
    on_progress: Callable[[int], None] = lambda _count: None,
    observer: Observer | None = None,
    skips_idle: bool = True,
) -> Played:
    """Let the engine decide every moment at which something arrives or ends.

    Victims are gone at the moment of the pass and wait again as of their submission. They go on
    from their last checkpoint, one every `checkpoint_s` since their start (None: from the
    beginning). Whoever takes their room starts at once.

    Args:
        on_progress: called with the number of jobs that ended since the last call.
        observer: is told what waits and what ends.
        skips_idle: leave out passes that provably decide nothing; for tests, False.
    """
    return _Playing(part, checkpoint_s, on_progress, observer, skips_idle=skips_idle).run()


class _Playing:
    def __init__(
        self,
        part: Part,
        checkpoint_s: int | None,
        on_progress: Callable[[int], None],
        observer: Observer | None,
        *,
        skips_idle: bool,
    ) -> None:
        self.part = part
        self.checkpoint_s = checkpoint_s
        self.on_progress = on_progress
        self.observer = observer
        self.skips_idle = skips_idle
        self.world = World(part.base)
        self.records = {job.number: Record(job) for job in part.jobs}
        self.played = Played(list(self.records.values()))
        self.left_s = {job.number: job.duration_s for job in part.jobs}
        self.started_s: dict[Id, int] = {}
        # (moment, job, when it started): an entry whose job was preempted meanwhile is void.
        self.ends: list[tuple[int, int, int]] = []
        self.checkpoints: list[tuple[int, int, int]] = []
        # The engine's times are positive.
        self.zero_s = min((job.submitted_s for job in part.jobs), default=0) - 1
        self.kinds: dict[tuple[str, int], Kind] = {}
        self.coverage = _Coverage(part)

    def run(self) -> Played:
        arrivals = _moments(self.part.jobs)
        upcoming = next(arrivals, None)
        while upcoming is not None or self.ends:
            now = self._next_moment(upcoming)
            self.played.moments += 1
            needs_pass = self._end(now)
            arrived: list[Job] = []
            if upcoming is not None and upcoming[0] == now:
                arrived = upcoming[1]
                needs_pass = self._arrive(arrived) or needs_pass
                upcoming = next(arrivals, None)
            if self.world.has_waiting and (needs_pass or not self.skips_idle):
                self._decide(now)
            self._show(arrived, now)
            if upcoming is not None or self.ends:
                spent = self._next_moment(upcoming) - now
                self.played.covered_wait_s += self.coverage.is_waiting() * spent
        return self.played

    def _next_moment(self, upcoming: tuple[int, list[Job]] | None) -> int:
        while self.ends and self.started_s.get(self.ends[0][1]) != self.ends[0][2]:
            heappop(self.ends)
        if upcoming is None:
            return self.ends[0][0]
        return min(upcoming[0], self.ends[0][0]) if self.ends else upcoming[0]

    def _end(self, now: int) -> bool:
        count = 0
        while self.ends and self.ends[0][0] == now:
            _, number, started = heappop(self.ends)
            if self.started_s.get(number) == started:
                self._stop(number, now)
                self.world.end(number)
                count += 1
                if self.observer is not None:
                    self.observer.ended(self.records[number].job, (now - started) * SECOND)
        self.on_progress(count)
        return count > 0

    def _show(self, arrived: list[Job], now: int) -> None:
        if self.observer is None:
            return
        for job in arrived:
            if self.world.is_waiting(job.number):
                self._save(now)
                now_us = (now - self.zero_s) * SECOND
                self.observer.waits(job, partial(self.world.snapshot, now_us, is_whole=True))

    def _stop(self, number: int, now: int) -> None:
        record = self.records[number]
        record.ran.append((self.started_s.pop(number), now))
        self.coverage.stop(record.job)

    def _arrive(self, jobs: list[Job]) -> bool:
        needs_pass = False
        for job in jobs:
            record = self.records[job.number]
            if job.gpu_milli > self.part.base.pools[0].capacity.get(GPU):
                record.is_refused = True
                self.on_progress(1)
                continue
            record.was_covered = self.coverage.covers(job)
            self.coverage.wait(job)
            head = Head((job.submitted_s - self.zero_s) * SECOND, job.number)
            needs_pass = self.world.arrive(self._kind(job), head) or needs_pass
            if self.observer is not None:
                self.observer.arrived(job, self._kind(job), head.submitted_us)
        return needs_pass

    def _kind(self, job: Job) -> Kind:
        key = (job.team, job.gpu_milli)
        if key not in self.kinds:
            queue = self.part.queues[job.team]
            self.kinds[key] = Kind(queue, Quantities.of({GPU: job.gpu_milli}))
        return self.kinds[key]

    def _decide(self, now: int) -> None:
        """Again while something was taken back: its victims wait now.

        After a pass that took nothing, another one decides nothing (docs/allocation.md: a second
        pass on the outcome rests).
        """
        now_us = (now - self.zero_s) * SECOND
        self._save(now)
        taken: set[Id] = set()
        while self.world.has_waiting:
            plan = decide(self.world.snapshot(now_us))
            self.played.passes += 1
            if not plan.placed:
                return
            self.world.carry_out(plan, now_us)
            victims = {preempt.task for preempt in plan.preempted}
            for preempt in plan.preempted:
                self._preempt(int(preempt.task), now)
            for place in plan.placed:
                self._start(int(place.task), now)
            if self.skips_idle and not victims:
                return
            if victims & taken:
                self.played.unsettled += 1
                return
            taken |= victims

    def _preempt(self, number: int, now: int) -> None:
        self.left_s[number] -= saved_s(now - self.started_s[number], self.checkpoint_s)
        self._stop(number, now)
        self.coverage.wait(self.records[number].job)

    def _start(self, number: int, now: int) -> None:
        self.started_s[number] = now
        heappush(self.ends, (now + self.left_s[number], number, now))
        if self.checkpoint_s is not None:
            heappush(self.checkpoints, (now + self.checkpoint_s, number, now))
        self.coverage.start(self.records[number].job)

    def _save(self, now: int) -> None:
        """Tell of the checkpoints up to now; nobody asks for them between two passes."""
        every = self.checkpoint_s
        while every is not None and self.checkpoints and self.checkpoints[0][0] <= now:
            _, number, started = heappop(self.checkpoints)
            if self.started_s.get(number) == started:
                at = started + saved_s(now - started, every)
                self.world.checkpoint(number, (at - self.zero_s) * SECOND)
                heappush(self.checkpoints, (at + every, number, started))


def saved_s(ran_s: int, checkpoint_s: int | None) -> int:
    """How much of the time that a job ran outlives a preemption."""
    return 0 if checkpoint_s is None else ran_s // checkpoint_s * checkpoint_s


def _moments(jobs: Iterable[Job]) -> Iterator[tuple[int, list[Job]]]:
    """Jobs that arrive in the same second, in order."""
    for submitted, together in groupby(jobs, key=lambda job: job.submitted_s):
        yield submitted, list(together)


class _Coverage:
    """Counted beside the engine, from reservations and GPUs alone, to check what it did."""

    def __init__(self, part: Part) -> None:
        self.free = {str(policy.id): policy.reserved.get(GPU) for policy in part.base.policies}
        self.queues = part.queues
        # By policy and GPUs: how many wait.
        self.waiting: dict[str, dict[int, int]] = {name: {} for name in self.free}

    def covers(self, job: Job) -> bool:
        policy = self.queues[job.team]
        waiting = sum(milli * count for milli, count in self.waiting[policy].items())
        return job.gpu_milli + waiting <= self.free[policy]

    def wait(self, job: Job) -> None:
        waiting = self.waiting[self.queues[job.team]]
        waiting[job.gpu_milli] = waiting.get(job.gpu_milli, 0) + 1

    def start(self, job: Job) -> None:
        policy = self.queues[job.team]
        self.free[policy] -= job.gpu_milli
        left = self.waiting[policy].pop(job.gpu_milli) - 1
        if left:
            self.waiting[policy][job.gpu_milli] = left

    def stop(self, job: Job) -> None:
        self.free[self.queues[job.team]] += job.gpu_milli

    def is_waiting(self) -> bool:
        """Whether a job waits that its policy would cover."""
        return any(
            milli <= self.free[policy]
            for policy, waiting in self.waiting.items()
            for milli in waiting
        )
