"""A day of the demonstration, played through the engine: there is always something to see."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from apps.allocation.engine import Engine
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import (
    NodeSnapshot,
    PolicySnapshot,
    PoolSnapshot,
    ProfileSnapshot,
    QueuedTask,
    QueueSnapshot,
    Snapshot,
)
from apps.allocation.simulation.simulated_state import GroupKey, SimulatedState
from rpm.demonstration.catalog import DEV, GPU, POOLS, PROFILES, RESEARCH, TEAMS
from rpm.demonstration.demand import CLAIM, FAILING, MOST_ALIVE, AliveTask, NextTask, next_tasks

TICK = timedelta(seconds=30)
RESERVED = 8000


@dataclass(slots=True)
class PlayedTask:
    """A task of the day; `began` None while it waits."""

    next_task: NextTask
    began: datetime | None = None

    @property
    def ends_at(self) -> datetime | None:
        return self.began and self.began + timedelta(seconds=self.next_task.seconds)


@pytest.mark.parametrize("day", [6, 9, 10], ids=["Wednesday", "Saturday", "Sunday"])
def test_at_any_moment_tasks_run_wait_and_are_over_quota(day: int) -> None:
    played = _play(datetime(2026, 5, day, tzinfo=UTC))

    assert played["ticks"] == 2880
    assert played["without_running"] == played["without_waiting"] == 0
    # A claim may leave Research with what is reserved, for a moment.
    assert played["without_over_quota"] <= 10
    assert played["preempted"] >= 20
    assert played["failed"] >= 20
    assert played["most_alive"] <= MOST_ALIVE
    assert played["held_at_night"] < 0.95 * played["held_by_day"]
    assert played["waits_at_night"] < 0.9 * played["waits_by_day"]


def _play(day: datetime) -> Counter[str]:
    state, engine = SimulatedState(_snapshot()), Engine()
    alive: dict[int, PlayedTask] = {}
    played: Counter[str] = Counter()
    last: dict[str, datetime] = {}
    now, count = day, 0
    while now < day + timedelta(days=1):
        for number in [pk for pk, one in alive.items() if one.ends_at and one.ends_at <= now]:
            state.end(number)
            del alive[number]
        for one in _next(alive, last, now):
            count += 1
            alive[count], last[one.name] = PlayedTask(one), now
            played["failed"] += one.has_failed
            gpu = Quantities.of({"gpu": GPU[one.profile]})
            key = GroupKey(f"{one.team} {one.profile}", gpu, is_preemptible=one.is_preemptible)
            state.arrive(key, QueuedTask(_us(now), count))
        played["preempted"] += _decide(state, engine, alive, now)
        _count(played, list(alive.values()), now)
        now += TICK
    return played


def _next(alive: dict[int, PlayedTask], last: dict[str, datetime], now: datetime) -> list[NextTask]:
    facts = [
        AliveTask(
            team=one.next_task.team,
            name=f"{one.next_task.name}-1",
            profile=one.next_task.profile,
            began=one.began,
            ends_at=one.ends_at,
        )
        for one in alive.values()
    ]
    return next_tasks(facts, now, claimed_at=last.get(CLAIM), failed_at=last.get(FAILING))


def _decide(
    state: SimulatedState, engine: Engine, alive: dict[int, PlayedTask], now: datetime
) -> int:
    """How many tasks were preempted."""
    preempted = 0
    while state.has_waiting:
        plan = engine.decide(state.snapshot(_us(now)))
        state.carry_out(plan, _us(now))
        for preempt in plan.preempted:
            alive[int(preempt.task)].began = None
        for placement in plan.placed:
            alive[int(placement.task)].began = now
        preempted += len(plan.preempted)
        if not plan.placed or not plan.preempted:
            break
    return preempted


def _count(played: Counter[str], alive: list[PlayedTask], now: datetime) -> None:
    running = [one for one in alive if one.began is not None]
    held = {
        team: sum(GPU[one.next_task.profile] for one in running if one.next_task.team == team)
        for team in TEAMS
    }
    assert held[DEV] <= RESERVED
    played["ticks"] += 1
    played["most_alive"] = max(played["most_alive"], len(alive))
    played["without_running"] += not running
    played["without_waiting"] += len(running) == len(alive)
    played["without_over_quota"] += held[RESEARCH] <= RESERVED
    # Six hours of each.
    when = "at_night" if now.hour < 6 else "by_day" if 9 <= now.hour < 15 else ""
    if when:
        played[f"held_{when}"] += sum(held.values())
        played[f"waits_{when}"] += len(alive) - len(running)


def _snapshot() -> Snapshot:
    eight = Quantities.of({"gpu": 8000})
    return Snapshot(
        pools=tuple(
            PoolSnapshot(
                id=one.name,
                name=one.name,
                capacity=eight,
                profiles=one.profiles,
                nodes=(NodeSnapshot(id=f"node of {one.name}", name="node", capacity=eight),),
            )
            for one in POOLS
        ),
        profiles=tuple(
            ProfileSnapshot(
                id=one.name,
                name=one.name,
                request=Quantities.of({"gpu": GPU[one.name]}),
                pools=tuple(link.pool for link in one.pools),
                policies=TEAMS,
            )
            for one in PROFILES
        ),
        policies=tuple(
            PolicySnapshot(
                id=team,
                name=team,
                rank=rank,
                reserved=eight,
                limit=Quantities.of({"gpu": 16_000}),
            )
            for rank, team in enumerate(TEAMS)
        ),
        queues=tuple(
            QueueSnapshot(id=f"{team} {one.name}", policy=team, profile=one.name)
            for team in TEAMS
            for one in PROFILES
        ),
    )


def _us(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000
