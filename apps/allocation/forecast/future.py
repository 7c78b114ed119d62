"""One possible future of a snapshot: work ends, the engine decides, until a task starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from random import Random

from apps.allocation.engine import Engine
from apps.allocation.engine.model.plan import Plan
from apps.allocation.engine.model.snapshot import Id, QueuedGroup, QueuedTask, Snapshot
from apps.allocation.forecast.run_times import SECOND, RunTimes
from apps.allocation.simulation.simulated_state import GroupKey, SimulatedState

# Ends that lie closer together than this, or than a part of the time since the beginning, are
# decided together: an estimate need not be finer than its own width.
STEP_US = 30 * SECOND
STEP_PART = 20
# Nothing beyond that is foreseeable.
HORIZON_US = 7 * 24 * 3600 * SECOND
MOST_ARRIVALS = 5_000
# Work that stops is gone soon; how soon is not known.
STOPPING_US = 60 * SECOND
# As many tasks behind the known heads of a group as a forecast puts there.
MOST_UNSEEN = 2_000
# Their ids, where ids are numbers: larger than any real one.
FIRST_STAND_IN = 1 << 48
FIRST_ARRIVAL = 1 << 52


class Future:
    """Runs the engine forward; what it draws depends on `random` alone."""

    def __init__(
        self,
        snapshot: Snapshot,
        run_times: RunTimes,
        arrivals: Iterator[tuple[int, GroupKey]],
        random: Random,
        engine: Engine,
    ) -> None:
        """Args: arrivals: what will be enqueued, and when, in order and without end or empty."""
        self.engine = engine
        self.state = SimulatedState(snapshot)
        self.arrivals = arrivals
        self.upcoming = next(arrivals, None)
        self.arrived = 0
        self.run_times = run_times
        self.random = random
        self.begin_us = snapshot.now_us
        self.has_text_ids = any(
            isinstance(head.task, str)
            for queued in snapshot.queued_groups
            for head in queued.heads[:1]
        )
        self.ends: list[tuple[int, int, Id]] = []
        # By task: what is left of its run time, of those that were preempted here.
        self.left: dict[Id, int] = {}
        # By task: its valid entry in `ends`, which is (moment, turn, task).
        self.turn: dict[Id, int] = {}
        self.due: dict[Id, int] = {}
        self.turns = 0
        for group in snapshot.running:
            for running_task in group.tasks:
                left = STOPPING_US
                if not group.is_stopping:
                    ran = max(snapshot.now_us - running_task.started_us, 0)
                    left = self._draw(running_task.task, group.queue, ran) - ran
                due = self._will_end(running_task.task, snapshot.now_us + max(left, SECOND))
                self.ends.append(due)
        heapify(self.ends)

    def start_us(self, task: Id, first: Plan, most_passes: int) -> int | None:
        """When `task` starts; None where it does not within so many passes, or not in sight.

        Args:
            first: what is decided at the beginning.
        """
        now, plan = self.begin_us, first
        for _ in range(most_passes):
            if any(placement.task == task for placement in plan.placed):
                return now
            self._carry_out(plan, now)
            upcoming = self._advance(now)
            if upcoming is None or upcoming > self.begin_us + HORIZON_US:
                return None
            self._arrive(upcoming)
            if self.arrived > MOST_ARRIVALS:
                return None
            now = upcoming
            plan = self.engine.decide(self.state.snapshot(now))
        return None

    def _draw(self, task: Id, queue: Id | None, ran: int) -> int:
        run_time = self.run_times.run_time(task, queue, ran=ran, chance=self.random.random())
        if run_time is None:
            raise ValueError("nothing is known about the length of a task")
        return run_time

    def _will_end(self, task: Id, at_us: int) -> tuple[int, int, Id]:
        self.turns += 1
        self.turn[task] = self.turns
        self.due[task] = at_us
        return at_us, self.turns, task

    def _carry_out(self, plan: Plan, now: int) -> None:
        for preempt in plan.preempted:
            self.left[preempt.task] = max(self.due[preempt.task] - now, SECOND)
            del self.turn[preempt.task]
        self.state.carry_out(plan, now)
        for placement in plan.placed:
            left = self.left.pop(placement.task, None)
            if left is None:
                left = self._draw(placement.task, placement.queue, 0)
            heappush(self.ends, self._will_end(placement.task, now + max(left, SECOND)))

    def _arrive(self, now: int) -> None:
        """What was enqueued meanwhile."""
        while self.upcoming is not None and self.upcoming[0] <= now:
            at, group_key = self.upcoming
            self.arrived += 1
            task = FIRST_ARRIVAL + self.arrived
            self.state.arrive(group_key, QueuedTask(at, f"~{task}" if self.has_text_ids else task))
            self.upcoming = next(self.arrivals, None)

    def _advance(self, now: int) -> int | None:
        """Let the next work end, and what ends about then; None when nothing runs any more."""
        upto: int | None = None
        while self.ends and (upto is None or self.ends[0][0] <= upto):
            at, turn, task = heappop(self.ends)
            if self.turn.get(task) != turn:
                continue
            if upto is None:
                upto = at + max(STEP_US, (at - self.begin_us) // STEP_PART)
            now = at
            del self.turn[task]
            self.state.end(task)
        return None if upto is None else now


def with_everybody(snapshot: Snapshot) -> Snapshot:
    """With stand-ins for the tasks behind the heads of each group, which start in their turn."""
    queued_groups = tuple(
        _filled(index, queued) for index, queued in enumerate(snapshot.queued_groups)
    )
    return replace(snapshot, queued_groups=queued_groups)


def stand_in(index: int, last: QueuedTask, number: int) -> QueuedTask:
    """The `number`-th task, from 1, behind the last known one of the group at `index`."""
    if isinstance(last.task, int):
        return QueuedTask(last.submitted_us + number, FIRST_STAND_IN + index * MOST_UNSEEN + number)
    return QueuedTask(last.submitted_us + number, f"{last.task}+{number}")


def _filled(index: int, queued: QueuedGroup) -> QueuedGroup:
    unseen = min(queued.count - len(queued.heads), MOST_UNSEEN)
    if unseen <= 0 or not queued.heads:
        return queued
    more = (stand_in(index, queued.heads[-1], number) for number in range(1, unseen + 1))
    return replace(queued, heads=(*queued.heads, *more))
