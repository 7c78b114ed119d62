"""What could be taken back, in groups of equal tasks, and what only protection keeps safe."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from apps.allocation.engine.compiled import UNCOUNTED, Amounts, Compiled, ServingKey, Shape, Work
from apps.allocation.engine.ledger import Ledger
from apps.allocation.engine.snapshot import Held, Id, Preemption, Queue, Running

SECOND = 1_000_000


@dataclass(slots=True, eq=False)
class Flock:
    """Equal tasks of one pool that nothing protects: those that lose least come first.

    `work` is set where this very pass placed them: they start now, so that the smallest id goes
    first, as it would in the next pass.
    """

    pool: int
    chain: tuple[int, ...]
    shape: Shape
    # Nothing of each key that the shape names: to ask whether a policy is over as it is.
    none_more: Amounts
    priority: int
    profile_place: int
    policy_place: int
    user: Id | None
    is_exempt: bool
    is_removed: bool
    left: list[Held]
    work: Work | None = None
    is_sorted: bool = False

    def first(self) -> Held:
        """The task that would lose least; sorted only once somebody asks."""
        if not self.is_sorted:
            self.left.sort(key=least_loss)
            self.is_sorted = True
        return self.left[0]

    def put_back(self, held: Held) -> None:
        """Into `left`, once that is sorted."""
        self.left.insert(bisect_left(self.left, least_loss(held), key=least_loss), held)

    @property
    def policy(self) -> int:
        return self.chain[-1]

    @property
    def place(self) -> tuple[int, int, int]:
        """Its place in the pool, but for the time of submission."""
        return (self.profile_place, self.policy_place, -self.priority)

    def serving_key(self, held: Held) -> ServingKey:
        return (*self.place, 1, held.submitted_us, held.task)

    def book(self, ledger: Ledger, count: int) -> None:
        """Charge `count` of its tasks; a negative count takes them back."""
        ledger.book(
            self.chain,
            tuple((key, count * amount) for key, amount in self.shape.amounts),
            is_preemptible=True,
            is_exempt=self.is_exempt,
            user=self.user,
        )


def find_flocks(compiled: Compiled, linked: set[Id]) -> dict[int, list[Flock]]:
    """By pool, what may be taken or moved. Not: what is not preemptible, stops, waits for others
    to stop, started less than its queue's `min_runtime` ago, or was preempted as often as that
    allows.

    Where taking back is off, there is something to find only for moves.
    """
    queues = compiled.queues
    can_move = compiled.snapshot.settings.has_consolidation
    found: dict[int, list[Flock]] = {}
    for group in compiled.snapshot.running:
        pool = compiled.pool_index.get(group.pool)
        if pool is None or not group.is_preemptible or group.is_stopping:
            continue
        if compiled.levels[pool] is Preemption.NONE and not can_move:
            continue
        queue = queues.get(group.queue) if group.queue is not None else None
        left = list(group.tasks)
        if linked or (queue and (queue.min_runtime_s or queue.max_preemptions is not None)):
            left = [
                held
                for held in left
                if held.task not in linked and protected_until(compiled, queue, held) is None
            ]
        if left:
            found.setdefault(pool, []).append(_flock(compiled, pool, group, left))
    return found


@dataclass(frozen=True, slots=True)
class Protected:
    """A running task that others may have a right to, but not yet."""

    flock: Flock
    task: Id
    until_us: int


def find_protected(compiled: Compiled) -> dict[int, list[Protected]]:
    """By pool, the preemptible work that only its queue's settings keep safe now."""
    queues = {
        queue.id: queue
        for queue in compiled.snapshot.queues
        if queue.min_runtime_s or queue.max_preemptions is not None
    }
    found: dict[int, list[Protected]] = {}
    if not queues:
        return found
    for group in compiled.snapshot.running:
        pool = compiled.pool_index.get(group.pool)
        queue = queues.get(group.queue) if group.queue is not None else None
        if pool is None or queue is None or not group.is_preemptible or group.is_stopping:
            continue
        for held in group.tasks:
            until = protected_until(compiled, queue, held)
            if until is not None and compiled.levels[pool] is not Preemption.NONE:
                flock = _flock(compiled, pool, group, [held])
                found.setdefault(pool, []).append(Protected(flock, held.task, until))
    return found


def protected_until(compiled: Compiled, queue: Queue | None, held: Held) -> int | None:
    """Until when a task may not be taken, `UNCOUNTED` for ever; None when it may be."""
    if queue is None:
        return None
    if queue.max_preemptions is not None and held.preemptions >= queue.max_preemptions:
        return UNCOUNTED
    if not queue.min_runtime_s:
        return None
    until = held.started_us + queue.min_runtime_s * SECOND
    return until if compiled.snapshot.now_us < until else None


def least_loss(held: Held) -> tuple[int, Id]:
    """Sorts first what would lose least: the latest of its start and its last checkpoint."""
    return (-max(held.started_us, held.checkpointed_us or held.started_us), held.task)


def flock_of_work(work: Work, pool: int) -> Flock:
    """For tasks that this pass placed: none is in it yet."""
    profile_place, policy_place, *_ = work.prefixes[pool]
    return Flock(
        pool=pool,
        chain=work.chain,
        shape=work.shape,
        none_more=_none_more(work.shape),
        priority=work.run.priority,
        profile_place=profile_place,
        policy_place=policy_place,
        user=work.run.user,
        is_exempt=work.has_exceeded,
        is_removed=False,
        left=[],
        work=work,
        is_sorted=True,
    )


def _flock(compiled: Compiled, pool: int, group: Running, left: list[Held]) -> Flock:
    policy = compiled.policy_index[group.policy]
    profile = compiled.profiles.get(group.profile)
    models = profile.models if profile else ()
    shape = compiled.shape_of(group.request, group.replicas, models)
    return Flock(
        pool=pool,
        chain=compiled.chains[policy],
        shape=shape,
        none_more=_none_more(shape),
        priority=group.priority,
        profile_place=compiled.profile_places.get((pool, group.profile), UNCOUNTED),
        policy_place=compiled.policy_places.get((group.profile, group.policy), UNCOUNTED),
        user=group.user,
        is_exempt=group.can_exceed_limit,
        is_removed=compiled.policies[policy].is_removed,
        left=left,
    )


def _none_more(shape: Shape) -> Amounts:
    return tuple((key, 0) for key, _ in shape.amounts)
