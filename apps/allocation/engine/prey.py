"""What running work could be taken back, in groups of equal tasks, and who has a right to it."""

from __future__ import annotations

from dataclasses import dataclass

from apps.allocation.engine.compiled import (
    UNCOUNTED,
    Amounts,
    Compiled,
    ServingKey,
    Shape,
    Work,
)
from apps.allocation.engine.fair import FairShare, Shares
from apps.allocation.engine.ledger import Ledger
from apps.allocation.engine.snapshot import Held, Id, OverQuota, Preemption, Queue, Running
from apps.allocation.engine.standing import covers_wholly, is_over_quota

SECOND = 1_000_000
# Rights, the better first; under fair shares a second choice comes after all of the first.
FIRST, SECOND_CHOICE = 0, 1


@dataclass(slots=True)
class Flock:
    """Equal running tasks of one pool that nothing protects: those that lose least come first."""

    pool: int
    chain: tuple[int, ...]
    shape: Shape
    priority: int
    profile_place: int
    policy_place: int
    user: Id | None
    is_exempt: bool
    is_removed: bool
    left: list[Held]
    is_sorted: bool = False

    def first(self) -> Held:
        """The task that would lose least; sorted only once somebody asks."""
        if not self.is_sorted:
            self.left.sort(key=least_loss)
            self.is_sorted = True
        return self.left[0]

    @property
    def policy(self) -> int:
        return self.chain[-1]

    def serving_key(self, held: Held) -> ServingKey:
        return (
            self.profile_place,
            self.policy_place,
            -self.priority,
            1,
            held.submitted_us,
            held.task,
        )


def find_flocks(compiled: Compiled, linked: set[Id]) -> dict[int, list[Flock]]:
    """By pool, what may be taken. Not: what is not preemptible, stops, waits for others to stop,
    started less than its queue's `min_runtime` ago, or was preempted as often as that allows.
    """
    queues = {queue.id: queue for queue in compiled.snapshot.queues}
    found: dict[int, list[Flock]] = {}
    for group in compiled.snapshot.running:
        pool = compiled.pool_index.get(group.pool)
        if pool is None or not group.is_preemptible or group.is_stopping:
            continue
        if compiled.levels[pool] is Preemption.NONE:
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


def _flock(compiled: Compiled, pool: int, group: Running, left: list[Held]) -> Flock:
    policy = compiled.policy_index[group.policy]
    profile = compiled.profiles.get(group.profile)
    profiles = compiled.pools[pool].profiles
    policies = profile.policies if profile else ()
    return Flock(
        pool=pool,
        chain=compiled.chains[policy],
        shape=compiled.shape_of(group.request, group.replicas),
        priority=group.priority,
        profile_place=(profiles.index(group.profile) if group.profile in profiles else UNCOUNTED),
        policy_place=policies.index(group.policy) if group.policy in policies else UNCOUNTED,
        user=group.user,
        is_exempt=group.can_exceed_limit,
        is_removed=compiled.policies[policy].is_removed,
        left=left,
    )


class Rights:
    """Who may take capacity from whom, judged by the usage of the moment."""

    def __init__(self, ledger: Ledger, shares: Shares, flocks: dict[int, list[Flock]]) -> None:
        self.ledger = ledger
        self.shares = shares
        self.flocks = flocks
        self._largest: dict[int, FairShare] = {}
        self._lowest_own: dict[tuple[int, int], int] = {}
        for pool, found in flocks.items():
            for flock in found:
                key = (pool, flock.policy)
                priority = self._lowest_own.get(key, flock.priority)
                self._lowest_own[key] = min(priority, flock.priority)
        settings = ledger.compiled.snapshot.settings
        self.is_fair = settings.over_quota is OverQuota.FAIR_SHARE

    def may_have_prey(self, work: Work, pool: int, standing: int) -> bool:
        """Whether a search could find anything at all; most tasks without a right end here.

        Who is covered nowhere on its path, has no lower work of its own policy there and no
        smaller share has no first victim, and rights only grow with victims.
        """
        compiled = self.ledger.compiled
        level = compiled.levels[pool]
        lowest = self._lowest_own.get((pool, work.policy))
        if lowest is not None:
            if not work.run.is_preemptible and lowest <= work.run.priority:
                return True
            if level is not Preemption.RECLAIM and lowest < work.run.priority:
                return True
        if level is Preemption.RANK and is_over_quota(standing, compiled.depth):
            return True
        amounts = work.shape.amounts
        if not work.has_exceeded and any(
            covers_wholly(self.ledger, policy, amounts) for policy in work.chain
        ):
            return True
        return self.is_fair and any(
            self.shares.after(self.ledger, policy, amounts) < self._largest_share(pool)
            for policy in work.chain
        )

    def _largest_share(self, pool: int) -> FairShare:
        """Of all policies that have something to take in `pool`."""
        found = self._largest.get(pool)
        if found is None:
            policies = {policy for flock in self.flocks[pool] for policy in flock.chain}
            found = max(self.shares.after(self.ledger, policy, ()) for policy in sorted(policies))
            self._largest[pool] = found
        return found

    def forget_shares(self) -> None:
        """Usage has changed."""
        self._largest.clear()

    def over_others(
        self, work: Work, flock: Flock, level: Preemption, *, is_over: bool
    ) -> int | None:
        """Right to another policy's work: FIRST, SECOND_CHOICE, or None.

        Args:
            is_over: the taker stands as over quota.
        """
        part = parting(work.chain, flock.chain)
        if all(self.is_over(policy, flock) for policy in flock.chain[part:]):
            mine, theirs = work.chain[part], flock.chain[part]
            if not work.has_exceeded and covers_wholly(self.ledger, mine, work.shape.amounts):
                return FIRST
            if self.is_fair and (tier := self._fairer(work, mine, flock, theirs)) is not None:
                return tier
        if level is Preemption.RANK and not self.is_fair and is_over:
            place = (flock.profile_place, flock.policy_place, -flock.priority)
            if self.is_over(flock.chain[0], flock) and work.prefixes[flock.pool][:3] < place:
                return FIRST
        return None

    def _fairer(self, work: Work, mine: int, flock: Flock, theirs: int) -> int | None:
        taker = self.shares.after(self.ledger, mine, work.shape.amounts)
        if taker >= self.shares.after(self.ledger, theirs, ()):
            return None
        without = tuple((key, -amount) for key, amount in flock.shape.amounts)
        return FIRST if taker <= self.shares.after(self.ledger, theirs, without) else SECOND_CHOICE

    def is_over(self, policy: int, flock: Flock) -> bool:
        """Whether the policy is over for that running work, which its usage includes."""
        none_more: Amounts = tuple((key, 0) for key, _ in flock.shape.amounts)
        return flock.is_exempt or not covers_wholly(self.ledger, policy, none_more)

    def over_own(
        self, work: Work, number: int, flock: Flock, level: Preemption, missing: set[int]
    ) -> bool:
        """Right to work of the taker's own policy; tells about the flock's next task."""
        if flock.serving_key(flock.first()) <= work.serving_key(flock.pool, number):
            return False
        if not work.run.is_preemptible and flock.priority <= work.run.priority:
            return True
        if level is Preemption.RECLAIM or flock.priority >= work.run.priority:
            return False
        reserved = self.ledger.compiled.reserved[work.policy]
        return all(
            amount <= reserved.get(key, 0) for key, amount in work.shape.amounts if key in missing
        )

    def shares_along(self, work: Work, flock: Flock) -> tuple[FairShare, ...]:
        """Shares of the victim's policies, from where its path parts from the taker's."""
        if not self.is_fair:
            return ()
        part = parting(work.chain, flock.chain)
        return tuple(self.shares.after(self.ledger, one, ()) for one in flock.chain[part:])


def parting(mine: tuple[int, ...], theirs: tuple[int, ...]) -> int:
    """The first level from the top at which two paths differ; their length where none does."""
    for level, (one, other) in enumerate(zip(mine, theirs, strict=False)):
        if one != other:
            return level
    return min(len(mine), len(theirs))
