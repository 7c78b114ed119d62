"""Which tasks the teams of the demonstration enqueue next, so that there is always much to see.

Research takes more than its reservation, always, and by day all that is idle. Dev holds less than
its reservation, and claims more of it now and then: then tasks of Research are preempted.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from rpm.demonstration.arrivals import HOURS
from rpm.demonstration.catalog import DEV, GPU, NOTEBOOK, RESEARCH, TASK_NAMES

# The most tasks that wait or run, and the most that are enqueued at once.
MOST_ALIVE: Final = 24
MOST_AT_ONCE: Final = 16
CAPACITY: Final = 16_000
# With so many of Research nothing is idle, and Dev has to reclaim what it needs; then small tasks
# take what is left.
FOR_CLAIM: Final = {"4xGPU": 3, "2xGPU": 2, "0.5xGPU": 1}
# A task that ends so soon is replaced already.
ENDS_SOON: Final = timedelta(seconds=50)
# A claim waits until what it preempts has run for so long.
SETTLED: Final = timedelta(minutes=2)
FULL_RUN: Final = "pretrain-full-node"
CLAIM: Final = "release-gate"
FAILING: Final = "flaky-import"
FULL_RUN_WAITS: Final = timedelta(hours=6)
FAILS_EVERY: Final = timedelta(minutes=35)


@dataclass(frozen=True, slots=True)
class AliveTask:
    """A task that holds GPUs from `began` until about `ends_at`, or waits: both are None."""

    team: str
    name: str
    profile: str
    began: datetime | None = None
    ends_at: datetime | None = None

    @property
    def gpu(self) -> int:
        return GPU[self.profile]


@dataclass(frozen=True, slots=True)
class NextTask:
    """A task to enqueue; it fails with `has_failed`, after about `seconds`."""

    team: str
    name: str
    profile: str
    seconds: int
    has_failed: bool = False
    is_preemptible: bool = True


def activity(at: datetime) -> float:
    """How busy the teams are, from 0 at night to 1 in the busiest hour of a working day."""
    hour = HOURS[at.hour] / max(HOURS)
    return hour if at.weekday() < 5 else hour / 3


def next_tasks(
    alive: Sequence[AliveTask],
    now: datetime,
    *,
    claimed_at: datetime | None,
    failed_at: datetime | None,
) -> list[NextTask]:
    """What to enqueue now; nothing where enough is alive.

    Args:
        now: in UTC.
        claimed_at, failed_at: when such a task was enqueued last.
    """
    most = min(MOST_AT_ONCE, MOST_ALIVE - len(alive))
    wanted = _wanted(alive, now, claimed_at=claimed_at, failed_at=failed_at)
    return [one for one, _ in zip(wanted, range(most), strict=False)]


def _wanted(
    alive: Sequence[AliveTask],
    now: datetime,
    *,
    claimed_at: datetime | None,
    failed_at: datetime | None,
) -> Iterator[NextTask]:
    rng = random.Random(now.isoformat())  # noqa: S311 - no secret
    busy = activity(now)
    staying = [one for one in alive if one.ends_at is None or one.ends_at > now + ENDS_SOON]
    names = {one.name.rpartition("-")[0] for one in alive}
    if NOTEBOOK not in names:
        yield NextTask(DEV, NOTEBOOK, "2xGPU", 4 * 3600, is_preemptible=False)
    if FULL_RUN not in names:
        yield NextTask(RESEARCH, FULL_RUN, "8xGPU", rng.randrange(600, 1200))
    if failed_at is None or now - failed_at > FAILS_EVERY:
        yield NextTask(RESEARCH, FAILING, "0.5xGPU", rng.randrange(60, 150), has_failed=True)
    # More often by day.
    every = timedelta(minutes=60 - 45 * busy)
    is_claim_due = claimed_at is None or now - claimed_at > every
    settled = sum(one.gpu for one in staying if one.began and one.began < now - SETTLED)
    is_full = settled > CAPACITY - GPU["4xGPU"]
    yield from _dev(staying, rng, busy, is_claim_due=is_claim_due and is_full)
    is_claiming = any(one.team == DEV and one.profile == "4xGPU" for one in alive)
    yield from _research(staying, rng, busy, is_claimed=is_claim_due or is_claiming)


def _dev(
    alive: Sequence[AliveTask], rng: random.Random, busy: float, *, is_claim_due: bool
) -> Iterator[NextTask]:
    """Small tasks by day; and a claim, if it is due and everything is given out."""
    own = [one for one in alive if one.team == DEV and one.profile != "2xGPU"]
    is_claiming = any(one.profile == "4xGPU" for one in own)
    if is_claim_due and not is_claiming:
        yield NextTask(DEV, CLAIM, "4xGPU", rng.randrange(180, 240 + round(500 * busy)))
    small = sum(one.profile == "0.5xGPU" for one in own)
    for _ in range(round(2 * busy) - small):
        yield _usual(DEV, "0.5xGPU", rng, busy)


def _research(
    alive: Sequence[AliveTask], rng: random.Random, busy: float, *, is_claimed: bool
) -> Iterator[NextTask]:
    """A little over its reservation at night, everything idle by day, and some that waits.

    Bare Metal takes 4xGPU alone. A claim needs enough that is over quota, for some minutes.
    """
    own = Counter(one.profile for one in alive if one.team == RESEARCH)
    usual = {"4xGPU": 2 + round(2 * busy), "2xGPU": round(2.4 * busy), "0.5xGPU": 1}
    for profile, count in usual.items():
        for number in range(own[profile], max(count, FOR_CLAIM[profile] if is_claimed else 0)):
            one = _usual(RESEARCH, profile, rng, busy)
            yield one if number < count else replace(one, seconds=rng.randrange(300, 600))


def _usual(team: str, profile: str, rng: random.Random, busy: float) -> NextTask:
    """Longer at night."""
    seconds = rng.randrange(420, 2400) + round(1200 * (1 - busy))
    return NextTask(team, rng.choice(TASK_NAMES[team]), profile, seconds)
