"""Work that the same pass placed: the pass may preempt it again, and then it keeps waiting."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import replace

from apps.allocation.engine.compile.compiled_snapshot import GroupState
from apps.allocation.engine.model.snapshot import (
    Id,
    PreemptionMode,
    QueuedGroup,
    QueuedTask,
    RunningTask,
)
from apps.allocation.engine.state.working_state import PlacedTask, WorkingState
from apps.allocation.engine.steps.preemption.candidate_groups import (
    CandidateGroup,
    candidate_group_of,
)
from apps.allocation.engine.steps.preemption.candidates import Candidates
from apps.allocation.engine.steps.preemption.versions import PreemptionVersions


class Displaceable:
    """What was placed in this pass and may be displaced.

    It has not started, so no `min_runtime` protects it and nothing that it did is lost. A
    displaced task leaves its group for the rest of the pass, so that two tasks cannot take the
    same capacity from one another for ever; the rest of the group may still be placed. Work of
    strict policies is left alone: later tasks may have started behind it.
    """

    def __init__(
        self, state: WorkingState, candidates: Candidates, versions: PreemptionVersions
    ) -> None:
        self._state = state
        self._candidates = candidates
        self._versions = versions
        self._seen = 0
        self._candidate_groups: dict[tuple[int, int], CandidateGroup] = {}
        # By group index: the group with all its heads, and how many of them were displaced.
        self._whole: dict[int, tuple[GroupState, QueuedGroup]] = {}
        self._out: Counter[int] = Counter()
        # By task, where it was placed.
        self.entries: dict[Id, PlacedTask] = {}

    def notice_placed(self) -> None:
        """Take in what was placed since the last call."""
        placed = self._state.placed
        while self._seen < len(placed):
            self._enter(placed[self._seen])
            self._seen += 1

    def _enter(self, placed: PlacedTask) -> None:
        group = placed.group
        self._versions.placements += 1
        self._candidates.refresh(group.chain)
        level = self._state.compiled.levels[placed.pool]
        if level is PreemptionMode.NONE or not group.queued.is_preemptible or group.is_strict:
            return
        name = (group.index, placed.pool)
        candidate = self._candidate_groups.get(name)
        if candidate is None:
            candidate = candidate_group_of(group, placed.pool)
            self._candidate_groups[name] = candidate
            self._candidates.add(candidate)
        head = group.head(placed.number)
        started_us = self._state.compiled.snapshot.now_us
        candidate.restore(RunningTask(head.task, head.submitted_us, started_us))
        self.entries[head.task] = placed
        self._versions.policies[group.policy] += 1
        self._versions.pools[placed.pool] += self._candidates.is_candidate(candidate)

    def withdraw(self, task: Id) -> None:
        """Displace a task; ledger, free capacity and candidate group are updated already."""
        entry = self.entries[task]
        group = entry.group
        placed = self._state.placed
        placed.pop(next(at for at, one in enumerate(placed) if one is entry))
        self._seen -= 1
        self._versions.placements += 2
        group.placed_count -= 1
        self._whole.setdefault(group.index, (group, group.queued))
        self._out[group.index] += 1
        heads = group.queued.heads
        at = entry.number
        group.queued = replace(group.queued, heads=(*heads[:at], *heads[at + 1 :]))
        if at < group.placed_count:
            self._renumber(group, at, -1)

    def restore(self, task: Id) -> None:
        """Undo `withdraw`."""
        entry = self.entries[task]
        group = entry.group
        _, whole = self._whole[group.index]
        head = next(one for one in whole.heads if one.task == task)
        heads = group.queued.heads
        at = bisect_left(heads, _by_time(head), key=_by_time)
        group.queued = replace(whole, heads=(*heads[:at], head, *heads[at:]))
        if at < group.placed_count:
            self._renumber(group, at, 1)
        group.placed_count += 1
        self._out[group.index] -= 1
        self.entries[task] = replace(entry, number=at)
        self._state.placed.append(self.entries[task])
        self._seen += 1
        self._versions.placements += 1

    def _renumber(self, group: GroupState, start: int, by: int) -> None:
        """Its group lost or got a head: what is placed from number `start` on keeps its task."""
        placed = self._state.placed
        for at, one in enumerate(placed):
            if one.group is group and one.number >= start:
                renumbered = replace(one, number=one.number + by)
                placed[at] = renumbered
                task = group.head(renumbered.number).task
                if task in self.entries:
                    self.entries[task] = renumbered

    def finish(self) -> dict[Id, Id]:
        """Restore the groups, and give their placements to their earlier tasks.

        Returns:
            By task, the one that has its placement now.
        """
        instead: dict[Id, Id] = {}
        for group, whole in self._whole.values():
            for number in range(group.placed_count):
                instead[group.head(number).task] = whole.heads[number].task
            group.queued = whole
        return instead

    def displaced(self) -> tuple[Id, ...]:
        """After `finish`: what waits although it was placed. Those of a group are equal."""
        found: list[Id] = []
        for index, count in self._out.items():
            group, whole = self._whole[index]
            found += [
                head.task for head in whole.heads[group.placed_count : group.placed_count + count]
            ]
        return tuple(sorted(found, key=str))


def _by_time(head: QueuedTask) -> tuple[int, Id]:
    return head.submitted_us, head.task
