"""Work that this very pass placed: it may be taken again in it, and then waits on."""

from __future__ import annotations

from dataclasses import replace

from apps.allocation.engine.compiled import Work
from apps.allocation.engine.flocks import Flock, flock_of_work
from apps.allocation.engine.prey import Prey
from apps.allocation.engine.snapshot import Held, Id, Preemption
from apps.allocation.engine.working import Pass, Placed


class Again:
    """What was placed in this pass and may be taken again.

    It has not started, so that no `min_runtime` protects it and nothing that it did is lost. A run
    of which a task was taken again is closed: neither that task nor a later one of it is placed in
    this pass any more, so that two tasks cannot take the same room from one another. Work of
    strict policies is left alone: later tasks may have started behind it.
    """

    def __init__(self, state: Pass, prey: Prey) -> None:
        self._state = state
        self._prey = prey
        self._seen = 0
        self._flocks: dict[tuple[int, int], Flock] = {}
        self._closed: dict[int, Work] = {}
        # By task, where it was placed.
        self.entries: dict[Id, Placed] = {}
        # How often anything was placed; by policy, how often it got more of its own to take.
        self.changes = 0
        self.own = [0] * len(state.compiled.policies)

    def notice_placed(self) -> None:
        """Take in what was placed since the last time."""
        placed = self._state.placed
        while self._seen < len(placed):
            self._enter(placed[self._seen])
            self._seen += 1

    def _enter(self, placed: Placed) -> None:
        work = placed.work
        self.changes += 1
        self._prey.refresh(work.chain)
        level = self._state.compiled.levels[placed.pool]
        if level is Preemption.NONE or not work.run.is_preemptible or work.is_strict:
            return
        name = (work.index, placed.pool)
        flock = self._flocks.get(name)
        if flock is None:
            flock = flock_of_work(work, placed.pool)
            self._flocks[name] = flock
            self._prey.add(flock)
        head = work.head(placed.number)
        started_us = self._state.compiled.snapshot.now_us
        flock.left.insert(0, Held(head.task, head.submitted_us, started_us))
        self.entries[head.task] = placed
        self.own[work.policy] += 1
        self._prey.versions[placed.pool] += self._prey.is_prey(flock)

    def withdraw(self, task: Id) -> None:
        """A task is taken again; ledger, room and flock know already."""
        entry = self.entries[task]
        work = entry.work
        placed = self._state.placed
        placed.pop(next(at for at, one in enumerate(placed) if one is entry))
        self._seen -= 1
        self.changes += 2
        work.taken -= 1
        work.is_closed = True
        self._closed[work.index] = work
        for turned in self._state.turned.values():
            turned.pop(work.index, None)

    def restore(self, task: Id) -> None:
        """It has its place after all."""
        entry = self.entries[task]
        entry.work.taken += 1
        self._state.placed.append(entry)
        self._seen += 1
        self.changes += 1

    def finish(self) -> dict[Id, Id]:
        """Let the earlier tasks of each closed run have its places, and open it again.

        Returns:
            By task, the one that has its place now.
        """
        instead: dict[Id, Id] = {}
        placed = self._state.placed
        for work in self._closed.values():
            places = [at for at, one in enumerate(placed) if one.work is work]
            places.sort(key=lambda at: placed[at].number)
            for number, at in enumerate(places):
                old = work.head(placed[at].number).task
                instead[old] = work.head(number).task
                placed[at] = replace(placed[at], number=number)
            work.is_closed = False
        return instead
