"""A history played through the engine, moment by moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import groupby
from typing import Protocol

from apps.allocation.engine import Engine
from apps.allocation.engine.model.quantities import GPU, Quantities
from apps.allocation.engine.model.snapshot import Id, QueuedTask, Snapshot
from apps.allocation.replay.regimes import ReplayPart
from apps.allocation.replay.trace import TraceTask
from apps.allocation.simulation.simulated_state import GroupKey, SimulatedState

SECOND = 1_000_000


@dataclass(slots=True)
class TaskRecord:
    """What became of one job: when it ran, each time it did, in the trace's seconds.

    `was_covered`: when it was submitted, its team's reservation held it with all that the team
    had running and waiting.
    """

    task: TraceTask
    ran: list[tuple[int, int]] = field(default_factory=list)
    was_covered: bool = False
    is_refused: bool = False


@dataclass(slots=True)
class ReplayResult:
    """All jobs of a part, and how much work they were.

    `unsettled` counts the moments whose passes were cut short because they preempted the same job
    twice: level `rank` has such cases (docs/replay.md). `covered_wait_s` counts the seconds in
    which, for some team, a job waited that the team's reservation would have held with its running
    work.
    """

    records: list[TaskRecord]
    moments: int = 0
    passes: int = 0
    unsettled: int = 0
    covered_wait_s: int = 0


class Observer(Protocol):
    """Follows a history while it is played, and changes nothing."""

    def arrived(self, task: TraceTask, group_key: GroupKey, submitted_us: int) -> None:
        """`task` was enqueued, by the clock of the snapshots."""

    def waits(self, task: TraceTask, snapshot: Callable[[], Snapshot]) -> None:
        """`task` was submitted and did not start at once; `snapshot` is of the moment after."""

    def ended(self, task: TraceTask, ran_us: int) -> None:
        """`task` has ended by itself, its last start `ran_us` ago."""


def play(
    part: ReplayPart,
    *,
    checkpoint_s: int | None,
    on_progress: Callable[[int], None] = lambda _count: None,
    observer: Observer | None = None,
    skips_idle: bool = True,
) -> ReplayResult:
    """Let the engine decide every moment at which something arrives or ends.

    Victims are gone at the moment of the pass and wait again as of their submission. They go on
    from their last checkpoint, one every `checkpoint_s` since their start (None: from the
    beginning). The tasks that get their capacity start at once.

    Args:
        on_progress: called with the number of jobs that ended since the last call.
        observer: gets what waits and what ends.
        skips_idle: leave out passes that provably decide nothing; for tests, False.
    """
    return _Player(part, checkpoint_s, on_progress, observer, skips_idle=skips_idle).run()


class _Player:
    def __init__(
        self,
        part: ReplayPart,
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
        self.engine = Engine()
        self.state = SimulatedState(part.base)
        self.records = {task.number: TaskRecord(task) for task in part.tasks}
        self.result = ReplayResult(list(self.records.values()))
        self.left_s = {task.number: task.duration_s for task in part.tasks}
        self.started_s: dict[Id, int] = {}
        # (moment, job, when it started): an entry whose job was preempted meanwhile is void.
        self.ends: list[tuple[int, int, int]] = []
        self.checkpoints: list[tuple[int, int, int]] = []
        # The engine's times are positive.
        self.zero_s = min((task.submitted_s for task in part.tasks), default=0) - 1
        self.group_keys: dict[tuple[str, int], GroupKey] = {}
        self.coverage = _Coverage(part)

    def run(self) -> ReplayResult:
        arrivals = _moments(self.part.tasks)
        upcoming = next(arrivals, None)
        while upcoming is not None or self.ends:
            now = self._next_moment(upcoming)
            self.result.moments += 1
            needs_pass = self._end(now)
            arrived: list[TraceTask] = []
            if upcoming is not None and upcoming[0] == now:
                arrived = upcoming[1]
                needs_pass = self._arrive(arrived) or needs_pass
                upcoming = next(arrivals, None)
            if self.state.has_waiting and (needs_pass or not self.skips_idle):
                self._decide(now)
            self._show(arrived, now)
            if upcoming is not None or self.ends:
                spent = self._next_moment(upcoming) - now
                self.result.covered_wait_s += self.coverage.is_waiting() * spent
        return self.result

    def _next_moment(self, upcoming: tuple[int, list[TraceTask]] | None) -> int:
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
                self.state.end(number)
                count += 1
                if self.observer is not None:
                    self.observer.ended(self.records[number].task, (now - started) * SECOND)
        self.on_progress(count)
        return count > 0

    def _show(self, arrived: list[TraceTask], now: int) -> None:
        if self.observer is None:
            return
        for task in arrived:
            if self.state.is_waiting(task.number):
                self._save(now)
                now_us = (now - self.zero_s) * SECOND
                self.observer.waits(task, partial(self.state.snapshot, now_us, is_whole=True))

    def _stop(self, number: int, now: int) -> None:
        record = self.records[number]
        record.ran.append((self.started_s.pop(number), now))
        self.coverage.stop(record.task)

    def _arrive(self, tasks: list[TraceTask]) -> bool:
        needs_pass = False
        for task in tasks:
            record = self.records[task.number]
            if task.gpu_milli > self.part.base.pools[0].capacity.get(GPU):
                record.is_refused = True
                self.on_progress(1)
                continue
            record.was_covered = self.coverage.covers(task)
            self.coverage.wait(task)
            head = QueuedTask((task.submitted_s - self.zero_s) * SECOND, task.number)
            needs_pass = self.state.arrive(self._group_key(task), head) or needs_pass
            if self.observer is not None:
                self.observer.arrived(task, self._group_key(task), head.submitted_us)
        return needs_pass

    def _group_key(self, task: TraceTask) -> GroupKey:
        key = (task.team, task.gpu_milli)
        if key not in self.group_keys:
            queue = self.part.queues[task.team]
            self.group_keys[key] = GroupKey(queue, Quantities.of({GPU: task.gpu_milli}))
        return self.group_keys[key]

    def _decide(self, now: int) -> None:
        """Again while something was preempted: its victims wait now.

        After a pass without victims, another one decides nothing (docs/allocation.md: a second
        pass on the outcome rests).
        """
        now_us = (now - self.zero_s) * SECOND
        self._save(now)
        taken: set[Id] = set()
        while self.state.has_waiting:
            plan = self.engine.decide(self.state.snapshot(now_us))
            self.result.passes += 1
            if not plan.placed:
                return
            self.state.carry_out(plan, now_us)
            victims = {preempt.task for preempt in plan.preempted}
            for preempt in plan.preempted:
                self._preempt(int(preempt.task), now)
            for placement in plan.placed:
                self._start(int(placement.task), now)
            if self.skips_idle and not victims:
                return
            if victims & taken:
                self.result.unsettled += 1
                return
            taken |= victims

    def _preempt(self, number: int, now: int) -> None:
        self.left_s[number] -= saved_s(now - self.started_s[number], self.checkpoint_s)
        self._stop(number, now)
        self.coverage.wait(self.records[number].task)

    def _start(self, number: int, now: int) -> None:
        self.started_s[number] = now
        heappush(self.ends, (now + self.left_s[number], number, now))
        if self.checkpoint_s is not None:
            heappush(self.checkpoints, (now + self.checkpoint_s, number, now))
        self.coverage.start(self.records[number].task)

    def _save(self, now: int) -> None:
        """Report the checkpoints up to now; nothing reads them between two passes."""
        every = self.checkpoint_s
        while every is not None and self.checkpoints and self.checkpoints[0][0] <= now:
            _, number, started = heappop(self.checkpoints)
            if self.started_s.get(number) == started:
                at = started + saved_s(now - started, every)
                self.state.checkpoint(number, (at - self.zero_s) * SECOND)
                heappush(self.checkpoints, (at + every, number, started))


def saved_s(ran_s: int, checkpoint_s: int | None) -> int:
    """How much of the time that a job ran outlives a preemption."""
    return 0 if checkpoint_s is None else ran_s // checkpoint_s * checkpoint_s


def _moments(tasks: Iterable[TraceTask]) -> Iterator[tuple[int, list[TraceTask]]]:
    """Jobs that arrive in the same second, in order."""
    for submitted, together in groupby(tasks, key=lambda task: task.submitted_s):
        yield submitted, list(together)


class _Coverage:
    """Counted apart from the engine, from reservations and GPUs alone, to check its decisions."""

    def __init__(self, part: ReplayPart) -> None:
        self.free = {str(policy.id): policy.reserved.get(GPU) for policy in part.base.policies}
        self.queues = part.queues
        # By policy and GPUs: how many wait.
        self.waiting: dict[str, dict[int, int]] = {name: {} for name in self.free}

    def covers(self, task: TraceTask) -> bool:
        policy = self.queues[task.team]
        waiting = sum(milli * count for milli, count in self.waiting[policy].items())
        return task.gpu_milli + waiting <= self.free[policy]

    def wait(self, task: TraceTask) -> None:
        waiting = self.waiting[self.queues[task.team]]
        waiting[task.gpu_milli] = waiting.get(task.gpu_milli, 0) + 1

    def start(self, task: TraceTask) -> None:
        policy = self.queues[task.team]
        self.free[policy] -= task.gpu_milli
        left = self.waiting[policy].pop(task.gpu_milli) - 1
        if left:
            self.waiting[policy][task.gpu_milli] = left

    def stop(self, task: TraceTask) -> None:
        self.free[self.queues[task.team]] += task.gpu_milli

    def is_waiting(self) -> bool:
        """Whether a job waits that its policy would cover."""
        return any(
            milli <= self.free[policy]
            for policy, waiting in self.waiting.items()
            for milli in waiting
        )
