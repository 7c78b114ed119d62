"""What the teams of the demonstration enqueue: never too much, at any hour enough to see."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rpm.demonstration.catalog import DEV, GPU, NOTEBOOK, RESEARCH
from rpm.demonstration.demand import (
    CLAIM,
    FAILING,
    FULL_RUN,
    MOST_ALIVE,
    AliveTask,
    NextTask,
    activity,
    next_tasks,
)

NIGHT = datetime(2026, 5, 6, 3, tzinfo=UTC)
DAY = datetime(2026, 5, 6, 10, tzinfo=UTC)
SUNDAY = datetime(2026, 5, 10, 12, tzinfo=UTC)


def test_nights_and_weekends_are_quiet() -> None:
    assert activity(NIGHT) < 0.1 < activity(SUNDAY) < 0.5 < activity(DAY) <= 1


@pytest.mark.parametrize("now", [NIGHT, DAY, SUNDAY])
def test_at_any_hour_more_is_wanted_than_reserved_and_some_waits(now: datetime) -> None:
    found = _ask([], now)

    names = [one.name for one in found]
    assert names.count(NOTEBOOK) == names.count(FULL_RUN) == names.count(FAILING) == 1
    assert sum(GPU[one.profile] for one in found if one.team == RESEARCH) > 8000 + GPU["8xGPU"]
    assert all(one.name == NOTEBOOK or 60 <= one.seconds <= 3600 for one in found)
    # Once all of that is there, nothing more.
    assert _ask(_alive(found, now), now, claimed_at=now, failed_at=now) == []


def test_dev_claims_its_share_once_everything_is_given_out() -> None:
    full = _alive(_ask([], DAY), DAY)
    waiting = [replace(one, began=None, ends_at=None) for one in full]
    young = [replace(one, began=DAY - timedelta(minutes=1)) for one in full]

    assert CLAIM not in [one.name for one in (*_ask(waiting, DAY), *_ask(young, DAY))]
    found = [one for one in _ask(full, DAY) if one.name == CLAIM]
    assert [(one.team, one.profile) for one in found] == [(DEV, "4xGPU")]
    assert CLAIM not in [one.name for one in _ask(full, DAY, claimed_at=DAY)]
    assert CLAIM not in [one.name for one in _ask([*full, *_alive(found, DAY)], DAY)]


def test_what_ends_soon_is_replaced_already() -> None:
    full = _alive(_ask([], NIGHT), NIGHT)
    ending = [replace(one, ends_at=NIGHT + timedelta(seconds=20)) for one in full]

    assert _ask(full, NIGHT, claimed_at=NIGHT, failed_at=NIGHT) == []
    found = _ask(ending, NIGHT, claimed_at=NIGHT, failed_at=NIGHT)
    assert [one.profile for one in found] == ["4xGPU", "4xGPU", "0.5xGPU"]


def test_never_more_than_a_bounded_number_waits_or_runs() -> None:
    alive: list[AliveTask] = []
    now = DAY
    for _ in range(200):
        alive += _alive(_ask(alive, now), now)
        assert len(alive) <= MOST_ALIVE
        now += timedelta(seconds=30)
        alive = [one for one in alive if one.ends_at is not None and one.ends_at > now]


def _ask(
    alive: list[AliveTask],
    now: datetime,
    *,
    claimed_at: datetime | None = None,
    failed_at: datetime | None = None,
) -> list[NextTask]:
    return next_tasks(alive, now, claimed_at=claimed_at, failed_at=failed_at)


def _alive(tasks: list[NextTask], now: datetime) -> list[AliveTask]:
    """All of them hold GPUs, however many there are."""
    return [
        AliveTask(
            team=one.team,
            name=f"{one.name}-{number}",
            profile=one.profile,
            began=now - timedelta(minutes=3),
            ends_at=now + timedelta(seconds=one.seconds),
        )
        for number, one in enumerate(tasks)
    ]
