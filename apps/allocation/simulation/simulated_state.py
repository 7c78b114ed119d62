"""A snapshot that goes on: work arrives, starts, ends and is preempted, one moment after another.

Holds what a `Snapshot` holds, in the shape in which it changes. What did not change between two
moments is the same frozen object in both snapshots.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from apps.allocation.engine.model.plan import Plan
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import (
    Id,
    PreemptionMode,
    QueuedGroup,
    QueuedTask,
    RunningGroup,
    RunningTask,
    Snapshot,
)

# As many tasks of a group as any pass could start, where nothing in the request is counted.
MANY = 1 << 16


@dataclass(frozen=True, slots=True)
class GroupKey:
    """What distinguishes the tasks of one queued group from those of another."""

    queue: Id
    request: Quantities
    replicas: int = 1
    priority: int = 0
    is_preemptible: bool = True
    user: Id | None = None
    can_exceed_limit: bool = False

    @classmethod
    def of_queued(cls, queued: QueuedGroup) -> GroupKey:
        return cls(
            queue=queued.queue,
            request=queued.request,
            replicas=queued.replicas,
            priority=queued.priority,
            is_preemptible=queued.is_preemptible,
            user=queued.user,
            can_exceed_limit=queued.can_exceed_limit,
        )

    @classmethod
    def of_running(cls, running: RunningGroup, queue: Id) -> GroupKey:
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
class QueuedTasks:
    """The waiting tasks of one group, in order; `unseen` wait behind those that are known."""

    group_key: GroupKey
    heads: list[QueuedTask] = field(default_factory=list)
    unseen: int = 0
    _queued: QueuedGroup | None = None

    def add(self, head: QueuedTask) -> bool:
        """Returns whether it changes more for the engine than the count."""
        key = _queue_position(head)
        is_last = not self.heads or _queue_position(self.heads[-1]) < key
        self._queued = None
        if is_last:
            self.heads.append(head)
            return len(self.heads) == 1
        insort(self.heads, head, key=_queue_position)
        return True

    def remove(self, task: Id) -> QueuedTask:
        """Mostly the first one."""
        place = next(at for at, head in enumerate(self.heads) if head.task == task)
        self._queued = None
        return self.heads.pop(place)

    def queued(self, most: int) -> QueuedGroup:
        """Args: most: how many heads it shows at most."""
        if self._queued is None or len(self._queued.heads) != min(most, len(self.heads)):
            group_key = self.group_key
            self._queued = QueuedGroup(
                queue=group_key.queue,
                request=group_key.request,
                count=len(self.heads) + self.unseen,
                heads=tuple(self.heads[:most]),
                replicas=group_key.replicas,
                priority=group_key.priority,
                is_preemptible=group_key.is_preemptible,
                user=group_key.user,
                can_exceed_limit=group_key.can_exceed_limit,
            )
        return self._queued


@dataclass(slots=True)
class RunningTasks:
    """Equal running work; `like` has its fields, with any tasks."""

    like: RunningGroup
    tasks: dict[Id, RunningTask] = field(default_factory=dict)
    _running: RunningGroup | None = None

    def put(self, running_task: RunningTask) -> None:
        self.tasks[running_task.task] = running_task
        self._running = None

    def pop(self, task: Id) -> RunningTask:
        self._running = None
        return self.tasks.pop(task)

    def running(self) -> RunningGroup:
        if self._running is None:
            # Spelled out: `replace` takes three times as long, and this is done at every moment.
            like = self.like
            self._running = RunningGroup(
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


def _queue_position(head: QueuedTask) -> tuple[int, Id]:
    return (head.submitted_us, head.task)


class SimulatedState:
    """Everything that waits and runs under one configuration."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Begin at `snapshot`, whose configuration stays."""
        self._base = replace(snapshot, queued_groups=(), running=())
        self._queues = {queue.id: queue for queue in snapshot.queues}
        pools = {profile.id: profile.pools for profile in snapshot.profiles}
        self._pools_of = {queue.id: pools[queue.profile] for queue in snapshot.queues}
        self._start_bounds = StartBounds(snapshot)
        self._queued_tasks: dict[GroupKey, QueuedTasks] = {}
        self._groups: dict[tuple[Id, GroupKey], RunningTasks] = {}
        # Running work that belongs to no queue any more, or that is stopping.
        self._without_queue: list[RunningTasks] = []
        self._queued_tasks_of: dict[Id, QueuedTasks] = {}
        self._group_of: dict[Id, RunningTasks] = {}
        self._preemptions: dict[Id, int] = {}
        for queued in snapshot.queued_groups:
            self._begin_queued(queued)
        for group in snapshot.running:
            self._begin_running(group)

    def _begin_queued(self, queued: QueuedGroup) -> None:
        queued_tasks = self._queued_tasks_for(GroupKey.of_queued(queued))
        queued_tasks.unseen += queued.count - len(queued.heads)
        for head in queued.heads:
            queued_tasks.add(head)
            self._queued_tasks_of[head.task] = queued_tasks

    def _begin_running(self, running: RunningGroup) -> None:
        if running.queue is None or running.is_stopping or running.queue not in self._queues:
            group = RunningTasks(running)
            self._without_queue.append(group)
        else:
            group = self._group(running.pool, GroupKey.of_running(running, running.queue))
        for running_task in running.tasks:
            group.put(running_task)
            self._group_of[running_task.task] = group
        self._start_bounds.count(running, -len(running.tasks))

    def _queued_tasks_for(self, group_key: GroupKey) -> QueuedTasks:
        queued_tasks = self._queued_tasks.get(group_key)
        if queued_tasks is None:
            queued_tasks = QueuedTasks(group_key)
            self._queued_tasks[group_key] = queued_tasks
        return queued_tasks

    def _group(self, pool: Id, group_key: GroupKey) -> RunningTasks:
        group = self._groups.get((pool, group_key))
        if group is None:
            queue = self._queues[group_key.queue]
            group = RunningTasks(
                RunningGroup(
                    pool=pool,
                    policy=queue.policy,
                    profile=queue.profile,
                    request=group_key.request,
                    tasks=(),
                    queue=group_key.queue,
                    replicas=group_key.replicas,
                    priority=group_key.priority,
                    is_preemptible=group_key.is_preemptible,
                    user=group_key.user,
                    can_exceed_limit=group_key.can_exceed_limit,
                )
            )
            self._groups[pool, group_key] = group
        return group

    @property
    def has_waiting(self) -> bool:
        return bool(self._queued_tasks_of)

    def is_waiting(self, task: Id) -> bool:
        return task in self._queued_tasks_of

    def is_running(self, task: Id) -> bool:
        return task in self._group_of

    def arrive(self, group_key: GroupKey, head: QueuedTask) -> bool:
        """A task is enqueued.

        Returns:
            Whether a pass could decide anything because of it. At rest it cannot for one that
            comes behind a waiting equal one: the engine serves equal tasks in order, so before
            it could start, the one before it would, and the last pass left that one waiting.
        """
        queued_tasks = self._queued_tasks_for(group_key)
        self._queued_tasks_of[head.task] = queued_tasks
        return queued_tasks.add(head)

    def end(self, task: Id) -> None:
        """Remove a running task."""
        group = self._group_of.pop(task)
        group.pop(task)
        self._start_bounds.count(group.like, 1)
        self._preemptions.pop(task, None)

    def checkpoint(self, task: Id, at_us: int) -> None:
        """A running task has saved its work."""
        group = self._group_of[task]
        running_task = group.tasks[task]
        group.put(
            RunningTask(
                task=task,
                submitted_us=running_task.submitted_us,
                started_us=running_task.started_us,
                members=running_task.members,
                checkpointed_us=at_us,
                preemptions=running_task.preemptions,
                stops_for=running_task.stops_for,
                is_leaving=running_task.is_leaving,
                is_movable=running_task.is_movable,
            )
        )

    def snapshot(self, now_us: int, *, is_whole: bool = False) -> Snapshot:
        """Args: is_whole: with every waiting task, also those that no pass could start."""
        return replace(
            self._base,
            now_us=now_us,
            queued_groups=tuple(
                queued_tasks.queued(
                    MANY
                    if is_whole
                    else self._start_bounds.most(group_key, self._pools_of[group_key.queue])
                )
                for group_key, queued_tasks in self._queued_tasks.items()
                if queued_tasks.heads or (is_whole and queued_tasks.unseen)
            ),
            running=tuple(
                group.running()
                for groups in (self._groups.values(), self._without_queue)
                for group in groups
                if group.tasks
            ),
        )

    def end_stopping(self) -> None:
        """Remove everything that is stopping."""
        for group in self._without_queue:
            if group.like.is_stopping:
                for task in tuple(group.tasks):
                    self.end(task)

    def carry_out(
        self, plan: Plan, now_us: int, *, returning: Collection[Id] | None = None
    ) -> None:
        """Victims are gone at once and wait again as of their submission; placed tasks run.

        Args:
            returning: queues whose victims wait again; None: all queues.
        """
        for preempt in plan.preempted:
            queue = self._group_of[preempt.task].like.queue
            if queue in self._queues and (returning is None or queue in returning):
                self._requeue(preempt.task, queue)
            else:
                self.end(preempt.task)
        for move in plan.moved:
            group = self._group_of[move.task]
            running_task = group.tasks[move.task]
            group.put(replace(running_task, members=move.members, started_us=now_us))
        for placement in plan.placed:
            queued_tasks = self._queued_tasks_of.pop(placement.task)
            head = queued_tasks.remove(placement.task)
            group = self._group(placement.pool, queued_tasks.group_key)
            group.put(
                RunningTask(
                    task=placement.task,
                    submitted_us=head.submitted_us,
                    started_us=now_us,
                    members=placement.members,
                    preemptions=self._preemptions.get(placement.task, 0),
                )
            )
            self._group_of[placement.task] = group
            self._start_bounds.count(group.like, -1)

    def _requeue(self, task: Id, queue: Id) -> None:
        group = self._group_of[task]
        running_task = group.tasks[task]
        self.end(task)
        self._preemptions[task] = running_task.preemptions + 1
        head = QueuedTask(running_task.submitted_us, task)
        self.arrive(GroupKey.of_running(group.like, queue), head)


class StartBounds:
    """How many equal tasks a pass could start at most; the engine need not see more.

    As many as fit into the empty pools; without preemption, as many as fit into what is free, and
    one that does not, which others may have to wait for. Counted by the key of which most fit,
    because a waiting task may hold one key where it lacks another.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        settings = snapshot.settings
        can_preempt = settings.has_consolidation or any(
            (pool.preemption or settings.preemption) is not PreemptionMode.NONE
            for pool in snapshot.pools
        )
        # Stopping work and the tasks that wait for it use the same capacity.
        self._follows = not can_preempt and not any(group.is_stopping for group in snapshot.running)
        self._free = {pool.id: pool.capacity.as_dict() for pool in snapshot.pools}
        self._known: dict[GroupKey, int] = {}

    def count(self, like: RunningGroup, sign: int) -> None:
        free = self._free.get(like.pool)
        if self._follows and free is not None:
            self._known.clear()
            for key, amount in like.request.items():
                if key in free:
                    free[key] += sign * amount * like.replicas

    def most(self, group_key: GroupKey, pools: tuple[Id, ...]) -> int:
        found = self._known.get(group_key)
        if found is None:
            found = 1 + sum(self._in_pool(group_key, self._free[one]) for one in pools)
            self._known[group_key] = found
        return found

    def _in_pool(self, group_key: GroupKey, free: Mapping[str, int]) -> int:
        counts = [
            max(free[key], 0) // (amount * group_key.replicas)
            for key, amount in group_key.request.items()
            if amount > 0 and key in free
        ]
        return max(counts, default=MANY)
