"""Estimates compared with what came."""

from dataclasses import replace

from apps.allocation.forecast import Basis, Estimate
from apps.allocation.replay.estimates import Coverage, EstimateSample, coverage
from apps.allocation.replay.measures import ReplayTerms, replay
from apps.allocation.replay.playback import TaskRecord
from apps.allocation.replay.regimes import FIFO, REGIMES
from apps.allocation.replay.tables import table
from tests.allocation.replay.histories import task

ESTIMATE = Estimate(0, 0, Basis.QUEUE, futures=20, ended=20)


def sample(number: int, submitted: int, earliest: int, latest: int | None) -> EstimateSample:
    return EstimateSample(task(number, submitted, 5), ESTIMATE, earliest, latest)


def test_starts_are_counted_by_half_and_basis() -> None:
    samples = [
        sample(1, 0, 10, 20),
        sample(2, 0, 31, 40),
        sample(3, 9, 10, 29),
        sample(4, 10, 10, None),
        replace(sample(5, 10, 0, 0), estimate=None),
    ]
    waits = {1: 20, 2: 30, 3: 30, 4: 10**6, 5: 1}
    records = {
        one.task.number: TaskRecord(
            one.task,
            [(one.task.submitted_s + waits[one.task.number], one.task.submitted_s + 10**7)],
        )
        for one in samples
    }

    found = coverage(samples, records, middle_s=10)

    assert found == (
        Coverage(1, "queue", samples=3, inside=1, earlier=1, later=1),
        Coverage(2, "none", samples=1, inside=0, earlier=0, later=0),
        Coverage(2, "queue", samples=1, inside=1, earlier=0, later=0),
    )


def test_a_history_of_equal_jobs_starts_them_when_expected() -> None:
    """Two GPUs, a job of ten minutes every four: each waits a little longer than the one before."""
    tasks = tuple(task(number, 240 * number, 600, gpus=1) for number in range(90))

    report = replay(REGIMES[FIFO], tasks, ReplayTerms(2, 0, 240 * 90, None), estimates_each=5)

    estimated = [one for one in report.estimates if one.basis == "queue"]
    assert sum(one.samples for one in estimated) >= 8
    assert sum(one.inside for one in estimated) == sum(one.samples for one in estimated)
    assert "expected starts" in table([report])


def test_only_every_so_manieth_waiting_job_of_the_measured_time_is_estimated() -> None:
    tasks = tuple(task(number, number, 50, gpus=1) for number in range(20))

    report = replay(REGIMES[FIFO], tasks, ReplayTerms(1, 10, 20, None), estimates_each=2)

    assert sum(one.samples for one in report.estimates) == 5
