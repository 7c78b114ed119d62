"""When a waiting task will probably start."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

from apps.allocation.engine import Engine
from apps.allocation.engine.model.snapshot import Id, Snapshot
from apps.allocation.forecast.arrivals import Arrivals
from apps.allocation.forecast.future import MOST_UNSEEN, Future, stand_in, with_everybody
from apps.allocation.forecast.run_times import SECOND, RunTimes, RunTimeSource

# Futures that are computed, and which of them, sorted by start, bound the interval.
FUTURES = 20
EARLY, LATE = 2, 17
# Futures differ less from each other than the world does from them: waits, and half a minute, are
# divided and multiplied by this. Measured on a history of jobs (docs/replay.md).
WIDER = (17, 10)
PAD_US = 30 * SECOND
# Passes of one future, and rows of snapshots that all of them may go through together.
MOST_PASSES = 250
MOST_ROWS = 400_000


class Basis(StrEnum):
    """The basis of an estimate; the weakest of what was used."""

    # It starts with the next pass; run times do not matter.
    NOW = "now"
    TIME_LIMIT = "time_limit"
    QUEUE = "queue"
    ALL_QUEUES = "all_queues"


class NoEstimateReason(StrEnum):
    """Why there is no estimate."""

    # No time limit, and too little has ended yet to go by.
    NOTHING_KNOWN = "nothing_known"
    # It did not start in the computed futures: something else than capacity keeps it.
    NOT_IN_SIGHT = "not_in_sight"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Four of five such tasks start between the two moments, in microseconds as the snapshot's.

    `latest_us` None: not foreseeable. `futures` were computed; `ended` attempts of its queue, or
    of all queues, say how long work runs (0 where `basis` needs none, or rests on the queues of
    other work only).
    """

    earliest_us: int
    latest_us: int | None
    basis: Basis
    futures: int
    ended: int


@dataclass(frozen=True, slots=True)
class NoEstimate:
    reason: NoEstimateReason


def expected_start(
    snapshot: Snapshot,
    *,
    task: Id,
    run_times: RunTimes,
    arrivals: Arrivals | None = None,
    behind: tuple[int, int] | None = None,
    seed: int = 0,
    most_rows: int = MOST_ROWS,
) -> Estimate | NoEstimate:
    """Between which moments a waiting task will probably start, if nothing is changed.

    Runs the engine forward through `FUTURES` possible futures. They differ in how long running
    and waiting work takes, drawn from time limits and from what ended before, and in what is
    enqueued meanwhile: what was enqueued lately, once more, each from another moment on. The
    interval is where the middle of them start the task, widened so that four of five starts
    fell into it when a history of jobs was replayed. Say that it is an estimate, and show its
    basis.

    The same arguments give the same answer. Work is bounded: `MOST_PASSES` per future, fewer in
    large snapshots; typically some tenths of a second.

    Args:
        snapshot: of now.
        task: the id of a head of the snapshot, or, with `behind`, any.
        run_times: what is known of run times; `history.load_run_times` reads them.
        arrivals: what was enqueued lately, from the same place; None: nothing will be.
        behind: of a task behind the heads that its group shows: the index of the group in
            `snapshot.queued_groups`, and its place among all waiting tasks of the group, from 1.
        seed: picks the futures.
        most_rows: of snapshots that all futures may go through together; fewer where a page waits
            for the answer.
    """
    if (
        behind is not None
        and behind[1] > len(snapshot.queued_groups[behind[0]].heads) + MOST_UNSEEN
    ):
        return NoEstimate(NoEstimateReason.NOT_IN_SIGHT)
    known = arrivals or Arrivals(snapshot.now_us, 1)
    estimating = _Estimator(snapshot, run_times, known, seed)
    return estimating.estimate(_wanted(snapshot, task, behind), most_rows)


def _wanted(snapshot: Snapshot, task: Id, behind: tuple[int, int] | None) -> Id:
    """The task, or its stand-in where the snapshot does not show it."""
    if behind is None:
        return task
    index, place = behind
    heads = snapshot.queued_groups[index].heads
    if place <= len(heads):
        return heads[place - 1].task
    return stand_in(index, heads[-1], place - len(heads)).task


def _times(wait_us: int, factor: tuple[int, int]) -> int:
    return (wait_us + PAD_US) * factor[0] // factor[1] - PAD_US


class _Estimator:
    def __init__(
        self, snapshot: Snapshot, run_times: RunTimes, arrivals: Arrivals, seed: int
    ) -> None:
        self.snapshot = with_everybody(snapshot)
        self.run_times = run_times
        self.arrivals = arrivals
        self.seed = seed
        self.engine = Engine()

    def estimate(self, task: Id, most_rows: int) -> Estimate | NoEstimate:
        first = self.engine.decide(self.snapshot)
        now = self.snapshot.now_us
        for placement in first.placed:
            if placement.task == task and not placement.waits_for:
                return Estimate(now, now, Basis.NOW, futures=1, ended=0)
        source = self._source()
        if source is None:
            return NoEstimate(NoEstimateReason.NOTHING_KNOWN)
        most_passes = self._most_passes(most_rows)
        random = Random(self.seed)  # noqa: S311 - futures, no secrets
        starts = [
            self._future(number, random).start_us(task, first, most_passes)
            for number in range(FUTURES)
        ]
        found = sorted(start for start in starts if start is not None)
        if len(found) <= EARLY:
            return NoEstimate(NoEstimateReason.NOT_IN_SIGHT)
        return Estimate(
            earliest_us=now + max(_times(found[EARLY] - now, WIDER[::-1]), 0),
            latest_us=now + _times(found[LATE] - now, WIDER) if len(found) > LATE else None,
            basis=Basis(source.value),
            futures=FUTURES,
            ended=self._ended(task, source),
        )

    def _future(self, number: int, random: Random) -> Future:
        repeated = self.arrivals.repeated(number, FUTURES)
        return Future(self.snapshot, self.run_times, repeated, random, self.engine)

    def _most_passes(self, most_rows: int) -> int:
        rows = (
            len(self.snapshot.queued_groups)
            + len(self.snapshot.running)
            + len(self.snapshot.policies)
        )
        return max(min(MOST_PASSES, most_rows // (FUTURES * max(rows, 1))), 1)

    def _source(self) -> RunTimeSource | None:
        """The weakest that any work goes by; None where something goes by nothing."""
        works = [
            (running_task.task, group.queue)
            for group in self.snapshot.running
            if not group.is_stopping
            for running_task in group.tasks
        ]
        works += [
            (head.task, queued.queue)
            for queued in self.snapshot.queued_groups
            for head in queued.heads
        ]
        found = {self.run_times.source(task, queue) for task, queue in works}
        if None in found:
            return None
        return max((one for one in found if one), key=list(RunTimeSource).index, default=None)

    def _ended(self, task: Id, source: RunTimeSource) -> int:
        """The attempts behind the basis; 0 where it is not the task's own queue that has them."""
        if source is RunTimeSource.TIME_LIMIT:
            return 0
        if source is RunTimeSource.ALL_QUEUES:
            return len(self.run_times.overall)
        queues = (
            queued.queue
            for queued in self.snapshot.queued_groups
            if any(head.task == task for head in queued.heads)
        )
        queue = next(queues, None)
        is_own = self.run_times.source(task, queue) is RunTimeSource.QUEUE
        return len(self.run_times.by_queue[queue]) if is_own and queue is not None else 0
