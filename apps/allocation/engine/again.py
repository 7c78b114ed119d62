"""Work that this very pass placed: it may be taken again in it, and then waits on."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import replace

from apps.allocation.engine.compiled import Work
from apps.allocation.engine.flocks import Flock, flock_of_work
from apps.allocation.engine.prey import Prey
from apps.allocation.engine.snapshot import Head, Held, Id, Preemption, Run
from apps.allocation.engine.working import Pass, Placed


class Again:
    """What was placed in this pass and may be taken again.

    It has not started, so that no `min_runtime` protects it and nothing that it did is lost. What
    is taken again leaves its run for the rest of the pass, so that two tasks cannot take the same
    room from one another for ever; the rest of the run may still be placed. Work of strict
    policies is left alone: later tasks may have started behind it.
    """

    def __init__(self, state: Pass, prey: Prey) -> None:
        self._state = state
        self._prey = prey
        self._seen = 0
        self._flocks: dict[tuple[int, int], Flock] = {}
        # By work index: the run with all its heads, and how many of them were taken again.
        self._whole: dict[int, tuple[Work, Run]] = {}
        self._out: Counter[int] = Counter()
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
        flock.put_back(Held(head.task, head.submitted_us, started_us))
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
        self._whole.setdefault(work.index, (work, work.run))
        self._out[work.index] += 1
        heads = work.run.heads
        at = entry.number
        work.run = replace(work.run, heads=(*heads[:at], *heads[at + 1 :]))
        if at < work.taken:
            self._renumber(work, at, -1)

    def restore(self, task: Id) -> None:
        """It has its place after all."""
        entry = self.entries[task]
        work = entry.work
        _, whole = self._whole[work.index]
        head = next(one for one in whole.heads if one.task == task)
        heads = work.run.heads
        at = bisect_left(heads, _by_time(head), key=_by_time)
        work.run = replace(whole, heads=(*heads[:at], head, *heads[at:]))
        if at < work.taken:
            self._renumber(work, at, 1)
        work.taken += 1
        self._out[work.index] -= 1
        self.entries[task] = replace(entry, number=at)
        self._state.placed.append(self.entries[task])
        self._seen += 1
        self.changes += 1

    def _renumber(self, work: Work, start: int, by: int) -> None:
        """Its run lost or got a head: what is placed from number `start` on keeps its task."""
        placed = self._state.placed
        for at, one in enumerate(placed):
            if one.work is work and one.number >= start:
                anew = replace(one, number=one.number + by)
                placed[at] = anew
                task = work.head(anew.number).task
                if task in self.entries:
                    self.entries[task] = anew

    def finish(self) -> dict[Id, Id]:
        """Make runs whole again, and let the earlier tasks of each have its places.

        Returns:
            By task, the one that has its place now.
        """
        instead: dict[Id, Id] = {}
        for work, whole in self._whole.values():
            for number in range(work.taken):
                instead[work.head(number).task] = whole.heads[number].task
            work.run = whole
        return instead

    def taken(self) -> tuple[Id, ...]:
        """Once finished: what waits although it was placed. Those of a run are equal."""
        found: list[Id] = []
        for index, count in self._out.items():
            work, whole = self._whole[index]
            found += [head.task for head in whole.heads[work.taken : work.taken + count]]
        return tuple(sorted(found, key=str))


def _by_time(head: Head) -> tuple[int, Id]:
    return head.submitted_us, head.task
