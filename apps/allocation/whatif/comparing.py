"""What a change would do: two states at rest beside each other; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from apps.allocation.engine.plan import Place, Preempt, Wait
from apps.allocation.engine.snapshot import Id, Policy, Pool, Queue, Run, Running, Snapshot
from apps.allocation.whatif.counting import reservations_of
from apps.allocation.whatif.settling import Settled
from apps.tasks.fitting import Ceiling, Room, never_fits


@dataclass(frozen=True, slots=True)
class Never:
    """Waiting tasks that could never run any more; `problems` are sentences per field.

    `index` is the place of their run in the snapshot's `runs`.
    """

    index: int
    run: Run
    problems: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """What the change does to single tasks, compared with what happens without it.

    * starts: wait now, and run only with the change
    * preempted: run now, and stop only because of the change
    * moved: run on, elsewhere in their pool, only with the change
    * delayed: would start without the change, and wait with it
    * spared: would be preempted without the change, and run on with it
    * rejected: could never run any more
    """

    starts: tuple[Place, ...]
    preempted: tuple[Preempt, ...]
    moved: tuple[Id, ...]
    delayed: tuple[Id, ...]
    spared: tuple[Id, ...]
    rejected: tuple[Never, ...]
    waiting: tuple[tuple[Run, Wait], ...]


def compare(now: Snapshot, before: Settled, after: Settled) -> Difference:
    """The difference that a change makes.

    Args:
        now: the state of this moment.
        before, after: that state at rest, without and with the change.
    """
    runs_now = _running(now)
    without, with_it = _running(before.snapshot), _running(after.snapshot)
    rejected = tuple(_never(before.snapshot, after.snapshot))
    hopeless = {one.index for one in rejected}
    moved_anyway = set(before.moved)
    return Difference(
        starts=tuple(
            place
            for task, place in after.placed.items()
            if task in with_it and task not in without and task not in runs_now
        ),
        preempted=tuple(
            one
            for task, one in after.preempted.items()
            if task in runs_now and task in without and task not in with_it
        ),
        moved=tuple(
            task
            for task in after.moved
            if task in with_it and task in without and task not in moved_anyway
        ),
        delayed=tuple(one for one in without if one not in runs_now and one not in with_it),
        spared=tuple(one for one in runs_now if one in with_it and one not in without),
        rejected=rejected,
        waiting=tuple(
            (after.snapshot.runs[wait.run], wait)
            for wait in after.waiting
            if wait.count and wait.run not in hopeless
        ),
    )


def _running(snapshot: Snapshot) -> dict[Id, Running]:
    return {
        held.task: group
        for group in snapshot.running
        if not group.is_stopping
        for held in group.tasks
    }


def _never(before: Snapshot, after: Snapshot) -> Iterator[Never]:
    """Runs that wait, could run one day before, and never after."""
    hope, doubt = _Fits(before), _Fits(after)
    for index, run in enumerate(after.runs):
        if run.count:
            problems = doubt.problems(run)
            if problems and not hope.problems(run):
                yield Never(index, run, problems)


class _Fits:
    """Judges runs as enqueueing does, on the configuration of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._queues: dict[Id, Queue] = {queue.id: queue for queue in snapshot.queues}
        self._profiles = {profile.id: profile for profile in snapshot.profiles}
        self._policies: dict[Id, Policy] = {policy.id: policy for policy in snapshot.policies}
        self._pools: dict[Id, Pool] = {pool.id: pool for pool in snapshot.pools}
        self._reserved = reservations_of(snapshot.policies)
        self._known: dict[tuple[object, ...], Mapping[str, str]] = {}

    def problems(self, run: Run) -> Mapping[str, str]:
        """Empty where it can run; nothing is said of a queue that this side does not have."""
        queue = self._queues.get(run.queue)
        if queue is None:
            return {}
        kind = (
            queue.policy,
            queue.profile,
            run.request,
            run.replicas,
            run.is_preemptible,
            run.can_exceed_limit,
        )
        if kind not in self._known:
            self._known[kind] = never_fits(
                request=run.request.as_dict(),
                replicas=run.replicas,
                is_preemptible=run.is_preemptible,
                ceilings=self._ceilings(queue.policy, skips_own=run.can_exceed_limit),
                rooms=self._rooms(queue.profile),
            )
        return self._known[kind]

    def _ceilings(self, policy: Id, *, skips_own: bool) -> list[Ceiling]:
        ceilings: list[Ceiling] = []
        at: Id | None = policy
        while at is not None:
            row = self._policies[at]
            limit = {} if skips_own and at == policy else row.limit.as_dict()
            ceilings.append(Ceiling(self._reserved[at], limit, row.user_limit.as_dict()))
            at = row.parent
        return ceilings

    def _rooms(self, profile: Id) -> list[Room]:
        pools = [self._pools[one] for one in self._profiles[profile].pools if one in self._pools]
        return [
            Room(
                capacity=pool.capacity.as_dict(),
                nodes=tuple(node.capacity.as_dict() for node in pool.nodes) or None,
            )
            for pool in pools
        ]
