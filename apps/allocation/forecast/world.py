"""A snapshot that goes on: work arrives, starts, ends and is taken back, one moment after another.

Holds what a `Snapshot` holds, in the shape in which it changes. What did not change between two
moments is the same frozen object in both snapshots.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from apps.allocation.engine.plan import Plan
from apps.allocation.engine.quantities import Quantities
from apps.allocation.engine.snapshot import Head, Held, Id, Preemption, Run, Running, Snapshot

# As many tasks of a run as any pass could start, where nothing in the request is counted.
MANY = 1 << 16


@dataclass(frozen=True, slots=True)
class Kind:
    """What tells the tasks of one run from those of another."""

    queue: Id
    request: Quantities
    replicas: int = 1
    priority: int = 0
    is_preemptible: bool = True
    user: Id | None = None
    can_exceed_limit: bool = False

    @classmethod
    def of_run(cls, run: Run) -> Kind:
        return cls(
            queue=run.queue,
            request=run.request,
            replicas=run.replicas,
            priority=run.priority,
            is_preemptible=run.is_preemptible,
            user=run.user,
            can_exceed_limit=run.can_exceed_limit,
        )

    @classmethod
    def of_running(cls, running: Running, queue: Id) -> Kind:
        return cls(
            queue=queue,
            request=running.request,
            replicas=running.replicas,
            priority=running.priority,
            is_preemptible=running.is_preemptible,
            user=running.user,
            can_exceed_limit=running.can_exceed_limit,
        )


@dataclass(slots=True)
class Line:
    """The waiting tasks of one run, in order; `unseen` wait behind those that are known."""

    kind: Kind
    heads: list[Head] = field(default_factory=list)
    unseen: int = 0
    _run: Run | None = None

    def add(self, head: Head) -> bool:
        """Returns whether it changes what the engine sees besides the count."""
        key = _place(head)
        is_last = not self.heads or _place(self.heads[-1]) < key
        self._run = None
        if is_last:
            self.heads.append(head)
            return len(self.heads) == 1
        insort(self.heads, head, key=_place)
        return True

    def remove(self, task: Id) -> Head:
        """Mostly the first one."""
        place = next(at for at, head in enumerate(self.heads) if head.task == task)
        self._run = None
        return self.heads.pop(place)

    def run(self, most: int) -> Run:
        """Args: most: how many heads it shows at most."""
        if self._run is None or len(self._run.heads) != min(most, len(self.heads)):
            kind = self.kind
            self._run = Run(
                queue=kind.queue,
                request=kind.request,
                count=len(self.heads) + self.unseen,
                heads=tuple(self.heads[:most]),
                replicas=kind.replicas,
                priority=kind.priority,
                is_preemptible=kind.is_preemptible,
                user=kind.user,
                can_exceed_limit=kind.can_exceed_limit,
            )
        return self._run


@dataclass(slots=True)
class Group:
    """Equal running work; `like` has its fields, with any tasks."""

    like: Running
    tasks: dict[Id, Held] = field(default_factory=dict)
    _running: Running | None = None

    def put(self, held: Held) -> None:
        self.tasks[held.task] = held
        self._running = None

    def pop(self, task: Id) -> Held:
        self._running = None
        return self.tasks.pop(task)

    def running(self) -> Running:
        if self._running is None:
            # Spelled out: `replace` takes three times as long, and this is done at every moment.
            like = self.like
            self._running = Running(
                pool=like.pool,
                policy=like.policy,
                profile=like.profile,
                request=like.request,
                tasks=tuple(self.tasks.values()),
                queue=like.queue,
                replicas=like.replicas,
                priority=like.priority,
                is_preemptible=like.is_preemptible,
                user=like.user,
                can_exceed_limit=like.can_exceed_limit,
                is_stopping=like.is_stopping,
            )
        return self._running


def _place(head: Head) -> tuple[int, Id]:
    return (head.submitted_us, head.task)


class World:
    """Everything that waits and runs under one configuration."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Begin at `snapshot`, whose configuration stays."""
        self._base = replace(snapshot, runs=(), running=())
        self._queues = {queue.id: queue for queue in snapshot.queues}
        pools = {profile.id: profile.pools for profile in snapshot.profiles}
        self._pools_of = {queue.id: pools[queue.profile] for queue in snapshot.queues}
        self._rooms = Rooms(snapshot)
        self._lines: dict[Kind, Line] = {}
        self._groups: dict[tuple[Id, Kind], Group] = {}
        # Running work that belongs to no queue any more, or that is stopping.
        self._loose: list[Group] = []
        self._line_of: dict[Id, Line] = {}
        self._group_of: dict[Id, Group] = {}
        self._preemptions: dict[Id, int] = {}
        for run in snapshot.runs:
            self._begin_run(run)
        for group in snapshot.running:
            self._begin_running(group)

    def _begin_run(self, run: Run) -> None:
        line = self._line(Kind.of_run(run))
        line.unseen += run.count - len(run.heads)
        for head in run.heads:
            line.add(head)
            self._line_of[head.task] = line

    def _begin_running(self, running: Running) -> None:
        if running.queue is None or running.is_stopping or running.queue not in self._queues:
            group = Group(running)
            self._loose.append(group)
        else:
            group = self._group(running.pool, Kind.of_running(running, running.queue))
        for held in running.tasks:
            group.put(held)
            self._group_of[held.task] = group
        self._rooms.count(running, -len(running.tasks))

    def _line(self, kind: Kind) -> Line:
        line = self._lines.get(kind)
        if line is None:
            line = Line(kind)
            self._lines[kind] = line
        return line

    def _group(self, pool: Id, kind: Kind) -> Group:
        group = self._groups.get((pool, kind))
        if group is None:
            queue = self._queues[kind.queue]
            group = Group(
                Running(
                    pool=pool,
                    policy=queue.policy,
                    profile=queue.profile,
                    request=kind.request,
                    tasks=(),
                    queue=kind.queue,
                    replicas=kind.replicas,
                    priority=kind.priority,
                    is_preemptible=kind.is_preemptible,
                    user=kind.user,
                    can_exceed_limit=kind.can_exceed_limit,
                )
            )
            self._groups[pool, kind] = group
        return group

    @property
    def has_waiting(self) -> bool:
        return bool(self._line_of)

    def is_waiting(self, task: Id) -> bool:
        return task in self._line_of

    def is_running(self, task: Id) -> bool:
        return task in self._group_of

    def arrive(self, kind: Kind, head: Head) -> bool:
        """A task is enqueued.

        Returns:
            Whether a pass could decide anything because of it. At rest it cannot for one that
            comes behind a waiting equal one: the engine serves equal tasks in order, so before
            it could start, the one before it would, and the last pass left that one waiting.
        """
        line = self._line(kind)
        self._line_of[head.task] = line
        return line.add(head)

    def end(self, task: Id) -> None:
        """A running task is gone."""
        group = self._group_of.pop(task)
        group.pop(task)
        self._rooms.count(group.like, 1)
        self._preemptions.pop(task, None)

    def checkpoint(self, task: Id, at_us: int) -> None:
        """A running task has saved its work."""
        group = self._group_of[task]
        held = group.tasks[task]
        group.put(
            Held(
                task=task,
                submitted_us=held.submitted_us,
                started_us=held.started_us,
                members=held.members,
                checkpointed_us=at_us,
                preemptions=held.preemptions,
                stops_for=held.stops_for,
                is_leaving=held.is_leaving,
                is_movable=held.is_movable,
            )
        )

    def snapshot(self, now_us: int, *, is_whole: bool = False) -> Snapshot:
        """Args: is_whole: with every waiting task, also those that no pass could start."""
        return replace(
            self._base,
            now_us=now_us,
            runs=tuple(
                line.run(MANY if is_whole else self._rooms.most(kind, self._pools_of[kind.queue]))
                for kind, line in self._lines.items()
                if line.heads
            ),
            running=tuple(
                group.running()
                for groups in (self._groups.values(), self._loose)
                for group in groups
                if group.tasks
            ),
        )

    def carry_out(self, plan: Plan, now_us: int) -> None:
        """Victims are gone at once and wait again as of their submission; who is placed, runs."""
        for preempt in plan.preempted:
            self._requeue(preempt.task)
        for move in plan.moved:
            group = self._group_of[move.task]
            held = group.tasks[move.task]
            group.put(replace(held, members=move.members, started_us=now_us))
        for place in plan.placed:
            line = self._line_of.pop(place.task)
            head = line.remove(place.task)
            group = self._group(place.pool, line.kind)
            group.put(
                Held(
                    task=place.task,
                    submitted_us=head.submitted_us,
                    started_us=now_us,
                    members=place.members,
                    preemptions=self._preemptions.get(place.task, 0),
                )
            )
            self._group_of[place.task] = group
            self._rooms.count(group.like, -1)

    def _requeue(self, task: Id) -> None:
        group = self._group_of.pop(task)
        held = group.pop(task)
        self._rooms.count(group.like, 1)
        self._preemptions[task] = held.preemptions + 1
        like = group.like
        if like.queue is not None and like.queue in self._queues:
            self.arrive(Kind.of_running(like, like.queue), Head(held.submitted_us, task))


class Rooms:
    """How many tasks of a kind a pass could start at most; the engine need not see more.

    As many as fit into the empty pools; where nothing can be taken back, as many as fit into what
    is free, and one that does not, which others may have to wait for. Counted by the key of which
    most fit, because a waiting task may hold one key where it lacks another.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        settings = snapshot.settings
        takes_back = settings.has_consolidation or any(
            (pool.preemption or settings.preemption) is not Preemption.NONE
            for pool in snapshot.pools
        )
        # Stopping work and who waits for it stand on the same room.
        self._follows = not takes_back and not any(group.is_stopping for group in snapshot.running)
        self._free = {pool.id: pool.capacity.as_dict() for pool in snapshot.pools}
        self._known: dict[Kind, int] = {}

    def count(self, like: Running, sign: int) -> None:
        free = self._free.get(like.pool)
        if self._follows and free is not None:
            self._known.clear()
            for key, amount in like.request.items():
                if key in free:
                    free[key] += sign * amount * like.replicas

    def most(self, kind: Kind, pools: tuple[Id, ...]) -> int:
        found = self._known.get(kind)
        if found is None:
            found = 1 + sum(self._in_pool(kind, self._free[one]) for one in pools)
            self._known[kind] = found
        return found

    def _in_pool(self, kind: Kind, free: Mapping[str, int]) -> int:
        counts = [
            max(free[key], 0) // (amount * kind.replicas)
            for key, amount in kind.request.items()
            if amount > 0 and key in free
        ]
        return max(counts, default=MANY)
