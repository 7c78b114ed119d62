"""Figures of replays that can be worked out on paper."""

import json

import pytest

from apps.allocation.replay.measures import ReplayReport, ReplayTerms, replay
from apps.allocation.replay.regimes import FIFO, REGIMES, STATIC, reservations
from apps.allocation.replay.tables import data, table
from tests.allocation.replay.histories import task

HOUR = 3600

# Half of the two GPUs is reserved for each team: `b` reclaims one from job 2, which goes on when
# job 3 has ended, and job 5 comes when it is done.
JOBS = (
    task(1, -HOUR, HOUR, gpus=1, team="a"),
    task(2, 0, 2 * HOUR, gpus=1, team="a"),
    task(3, 0, 2 * HOUR, gpus=1, team="a"),
    task(4, 4200, 2 * HOUR, gpus=1, team="b"),
    task(5, 4200, 2 * HOUR, gpus=1, team="b"),
)


def replayed(name: str, *, checkpoint_s: int | None = 1800) -> ReplayReport:
    return replay(REGIMES[name], JOBS, ReplayTerms(2, 0, 4 * HOUR, checkpoint_s))


def test_a_reservation_is_the_share_of_submitted_gpu_time_but_at_least_the_largest_job() -> None:
    tasks = (
        task(1, 0, 100, gpus=1, team="a"),
        task(2, 0, 50, gpus=2, team="b"),
        task(3, 0, 1, gpus=4, team="c"),
        task(4, -1, 10**6, gpus=3, team="d"),
        task(5, 9, 10**6, gpus=1, team="a"),
    )

    found = reservations(tasks, gpus=10, start_s=0, end_s=9)

    assert found == {"a": 4, "b": 4, "c": 4, "d": 3}


def test_waits_of_one_line() -> None:
    report = replayed(FIFO)

    waits = report.overall.waits
    assert report.overall.tasks == 4
    assert (waits.mean_s, waits.median_s, waits.p95_s) == (1500.0, 1500, 3000)
    assert report.utilisation(report.overall, 2) == 1.0
    assert report.overall.preemptions == 0


def test_partitions_are_as_large_as_the_reservations() -> None:
    report = replayed(STATIC)

    assert [(row.name, row.reserved) for row in report.teams] == [("a", 1), ("b", 1)]
    assert [row.waits.longest_s for row in report.teams] == [2 * HOUR, 2 * HOUR]


def test_what_a_preemption_costs() -> None:
    report = replayed("reclaim/priority")

    row_of_a, row_of_b = report.teams
    assert (report.overall.preemptions, row_of_b.preemptions) == (1, 0)
    assert (row_of_a.preemptions, row_of_a.most_preempted) == (1, 1)
    assert row_of_a.lost_s == 600
    assert row_of_a.first_waits.longest_s == 0
    assert row_of_a.waits.longest_s == 3000
    assert row_of_b.waits.longest_s == 3 * HOUR - 4200
    assert (report.covered.tasks, report.covered.longest_wait_s) == (2, 0)
    assert report.covered.waited_s == 0


def test_without_checkpoints_all_of_it_is_lost() -> None:
    assert replayed("reclaim/priority", checkpoint_s=None).overall.lost_s == 4200


@pytest.mark.parametrize("name", REGIMES)
def test_every_regime_shows_every_team_and_survives_json(name: str) -> None:
    report = replayed(name)

    text = table([report])
    assert text.startswith("regime")
    assert f"\n{name}" in text
    assert [row["name"] for row in json.loads(json.dumps(data(report)))["teams"]] == ["a", "b"]
