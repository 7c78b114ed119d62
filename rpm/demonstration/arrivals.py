"""The tasks that the teams of the demonstration enqueued on a day: peaks by day, quiet nights."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from apps.tasks.lifecycle.states import TaskState
from rpm.demonstration.catalog import DEV, NOTEBOOK, PEOPLE, RESEARCH, TASK_NAMES

WEEKDAY, WEEKEND = 36, 9
# How many of the tasks of a day come in each hour (UTC).
HOURS = (2, 1, 1, 1, 1, 1, 2, 5, 10, 14, 15, 13, 9, 12, 15, 14, 12, 10, 7, 5, 4, 4, 3, 2)
TEAM_SHARES = {DEV: 40, RESEARCH: 60}
PROFILE_SHARES = {
    DEV: {"0.5xGPU": 30, "2xGPU": 35, "4xGPU": 33, "8xGPU": 2},
    RESEARCH: {"0.5xGPU": 15, "2xGPU": 30, "4xGPU": 45, "8xGPU": 10},
}
OUTCOMES: Final[Mapping[str, int]] = {
    TaskState.COMPLETED: 87,
    TaskState.FAILED: 9,
    TaskState.ABORTED: 4,
}
MEDIAN_S = {"0.5xGPU": 1800, "2xGPU": 4500, "4xGPU": 5400, "8xGPU": 5400}
LEAST_S, MOST_S = 240, 9 * 3600


@dataclass(frozen=True, slots=True)
class Arrival:
    """A task of a team, how long it ran in all, and its last state."""

    at: datetime
    team: str
    person: str
    profile: str
    name: str
    duration_s: int
    end: TaskState


def arrivals_of(day: date) -> list[Arrival]:
    """The same for the same day, whenever and wherever it is asked for, in order of time."""
    rng = random.Random(f"RPM demonstration, {day.isoformat()}")  # noqa: S311 - no secret
    usual = WEEKDAY if day.weekday() < 5 else WEEKEND
    count = max(3, round(rng.gauss(usual, usual / 8)))
    found = [_arrival(rng, day, number) for number in range(count)]
    found.append(_nightly(rng, day))
    if day.weekday() < 5:
        found.append(_notebook(rng, day))
    return sorted(found, key=lambda one: (one.at, one.name))


def _arrival(rng: random.Random, day: date, number: int) -> Arrival:
    hour = rng.choices(range(24), HOURS)[0]
    at = _moment(day) + timedelta(hours=hour, seconds=rng.randrange(3600))
    team = _pick(rng, TEAM_SHARES)
    profile = _pick(rng, PROFILE_SHARES[team])
    end = TaskState(_pick(rng, OUTCOMES))
    duration = MEDIAN_S[profile] * math.exp(rng.gauss(0, 0.8))
    if end != TaskState.COMPLETED:
        duration *= rng.uniform(0.05, 0.6)
    return Arrival(
        at=at,
        team=team,
        person=rng.choice(PEOPLE[team]),
        profile=profile,
        name=f"{rng.choice(TASK_NAMES[team])}-{day:%m%d}{number:02}",
        duration_s=round(min(max(duration, LEAST_S), MOST_S)),
        end=end,
    )


def _nightly(rng: random.Random, day: date) -> Arrival:
    at = _moment(day) + timedelta(hours=1, seconds=rng.randrange(60))
    end = TaskState.FAILED if rng.random() < 0.1 else TaskState.COMPLETED
    name = f"nightly-regression-{day:%m%d}"
    return Arrival(at, DEV, PEOPLE[DEV][0], "2xGPU", name, rng.randrange(4000, 9000), end)


def _notebook(rng: random.Random, day: date) -> Arrival:
    """It holds its GPUs for most of a working day, and uses none."""
    at = _moment(day) + timedelta(hours=8, seconds=rng.randrange(7200))
    person, name = rng.choice(PEOPLE[DEV]), f"{NOTEBOOK}-{day:%m%d}"
    end = TaskState.COMPLETED
    return Arrival(at, DEV, person, "2xGPU", name, rng.randrange(10_000, 26_000), end)


def _moment(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _pick(rng: random.Random, shares: Mapping[str, int]) -> str:
    return rng.choices(list(shares), list(shares.values()))[0]
