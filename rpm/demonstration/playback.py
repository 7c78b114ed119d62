"""What became of the tasks of the demonstration's past: the engine decides every moment of it."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from uuid import UUID

from apps.allocation.engine import Engine
from apps.allocation.engine.model.plan import Placement, Plan
from apps.allocation.engine.model.snapshot import (
    Id,
    MemberPlacement,
    QueuedTask,
    QueueSnapshot,
    Snapshot,
)
from apps.allocation.simulation.simulated_state import GroupKey, SimulatedState
from apps.tasks.lifecycle.states import AttemptTier
from apps.usage.selectors.current_usage import Amounts, LiveAttempt, tiers_of
from rpm.demonstration.arrivals import Arrival
from rpm.demonstration.catalog import GPU

SAVES_EVERY_S = 1800
# Of one moment; a few are enough.
MOST_PASSES = 20


@dataclass(slots=True)
class PastAttempt:
    """One attempt; `past_tiers` are those before `tier`, each with its end.

    `stops_for` is the attempt that it was preempted for.
    """

    queue: QueueSnapshot
    pool: Id
    gpu_milli: int
    members: tuple[MemberPlacement, ...]
    began: datetime
    tier: AttemptTier
    past_tiers: list[tuple[AttemptTier, datetime]] = field(default_factory=list)
    ended: datetime | None = None
    stops_for: "PastAttempt | None" = None

    @property
    def saved_at(self) -> datetime | None:
        """When it last saved its work; it does every half hour."""
        if self.ended is None:
            return None
        times = int((self.ended - self.began).total_seconds()) // SAVES_EVERY_S
        return self.began + timedelta(seconds=times * SAVES_EVERY_S) if times else None


@dataclass(slots=True)
class PastTask:
    """A task and its attempts; all but the last one were preempted."""

    arrival: Arrival
    left_s: int
    attempts: list[PastAttempt] = field(default_factory=list)


def play(
    base: Snapshot,
    arrivals: Sequence[Arrival],
    *,
    queues: Mapping[tuple[str, str], Id],
    amounts: Mapping[int, Amounts],
    until: datetime,
) -> list[PastTask]:
    """The tasks that ran before `until`; those that still run then end shortly before.

    Args:
        base: a configuration in which nothing waits or runs.
        arrivals: in order of time.
        queues: by names of team and profile.
        amounts: of the policies.
    """
    player = _Player(base, arrivals, queues, amounts)
    player.run(until)
    return [one for one in player.tasks if one.attempts]


class _Player:
    """`running` are the live attempts by number of their task, which is its id for the engine."""

    def __init__(
        self,
        base: Snapshot,
        arrivals: Sequence[Arrival],
        queues: Mapping[tuple[str, str], Id],
        amounts: Mapping[int, Amounts],
    ) -> None:
        self.engine = Engine()
        self.simulated = SimulatedState(base)
        self.tasks = [PastTask(one, one.duration_s) for one in arrivals]
        self.running: dict[int, PastAttempt] = {}
        self.amounts = amounts
        by_id = {queue.id: queue for queue in base.queues}
        self.queues = {names: by_id[queue] for names, queue in queues.items()}
        self.requests = {profile.id: profile.request for profile in base.profiles}
        # (moment, task, number of attempts): void where the task was preempted meanwhile.
        self.ends: list[tuple[datetime, int, int]] = []

    def run(self, until: datetime) -> None:
        coming = [number for number, one in enumerate(self.tasks) if one.arrival.at < until][::-1]
        while coming or self.ends:
            moments = [self.tasks[coming[-1]].arrival.at] if coming else []
            now = min([*moments, *(end[0] for end in self.ends[:1])])
            if now >= until:
                break
            while self.ends and self.ends[0][0] == now:
                _, number, attempt = heappop(self.ends)
                if number in self.running and len(self.tasks[number].attempts) == attempt:
                    self._end(number, now)
            while coming and self.tasks[coming[-1]].arrival.at == now:
                self._arrive(coming.pop())
            self._decide(now)
            self._label(now)
        rng = random.Random(until.isoformat())  # noqa: S311 - no secret
        for number, one in sorted(self.running.items()):
            # None of them ends before its tier changed last, or all at one moment.
            least = max([one.began, *(at for _, at in one.past_tiers)])
            self._end(number, least + (until - least) * rng.uniform(0.9, 1))

    def _arrive(self, number: int) -> None:
        arrival = self.tasks[number].arrival
        queue = self.queues[arrival.team, arrival.profile]
        key = GroupKey(queue.id, self.requests[queue.profile])
        self.simulated.arrive(key, QueuedTask(_us(arrival.at), number))

    def _decide(self, now: datetime) -> None:
        """Again while something is preempted: its victims wait now."""
        for _ in range(MOST_PASSES):
            if not self.simulated.has_waiting:
                return
            plan = self.engine.decide(self.simulated.snapshot(_us(now)))
            if not plan.placed:
                return
            self.simulated.carry_out(plan, _us(now))
            self._carry_out(plan, now)
            if not plan.preempted:
                return

    def _carry_out(self, plan: Plan, now: datetime) -> None:
        for placement in plan.placed:
            self._start(placement, now)
        for preempt in plan.preempted:
            number = int(preempt.task)
            past, task = self.running.pop(number), self.tasks[number]
            past.ended, past.stops_for = now, self.running[int(preempt.beneficiary)]
            saved = past.saved_at or past.began
            task.left_s -= int((saved - past.began).total_seconds())

    def _start(self, placement: Placement, now: datetime) -> None:
        number = int(placement.task)
        task = self.tasks[number]
        past = PastAttempt(
            queue=self.queues[task.arrival.team, task.arrival.profile],
            pool=placement.pool,
            gpu_milli=GPU[task.arrival.profile],
            members=placement.members,
            began=now,
            tier=AttemptTier(placement.tier.value),
        )
        task.attempts.append(past)
        self.running[number] = past
        heappush(
            self.ends, (now + timedelta(seconds=max(task.left_s, 60)), number, len(task.attempts))
        )

    def _end(self, number: int, at: datetime) -> None:
        self.running.pop(number).ended = at.replace(microsecond=at.microsecond // 1000 * 1000)
        self.simulated.end(number)

    def _label(self, now: datetime) -> None:
        """Tiers as pages label them: a task that ends may let another one be covered."""
        live = [
            LiveAttempt(
                task_id=UUID(int=number),
                policy_id=int(one.queue.policy),
                queue_id=int(one.queue.id),
                pool_id=int(one.pool),
                amounts={"gpu": one.gpu_milli},
                priority=0,
                is_preemptible=True,
                since=one.began,
                is_started=True,
                owner_id=0,
            )
            for number, one in self.running.items()
        ]
        for task, tier in tiers_of(live, self.amounts).items():
            past = self.running[task.int]
            if past.tier != tier and past.began < now:
                past.past_tiers.append((past.tier, now))
            past.tier = tier


def _us(at: datetime) -> int:
    return int((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1_000_000
