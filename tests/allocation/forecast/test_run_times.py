import pytest

from apps.allocation.forecast.run_times import SECOND, RunTimes, RunTimeSource

TEN = tuple(range(10, 210, 10))


@pytest.mark.parametrize(
    ("ran", "chance", "want"),
    [
        pytest.param(0, 0.0, 10, id="the shortest"),
        pytest.param(0, 1.0, 200, id="the longest"),
        pytest.param(0, 0.5, 105, id="the middle"),
        pytest.param(100, 0.0, 110, id="only of those that ran longer"),
        pytest.param(100, 0.5, 155, id="their middle"),
    ],
)
def test_the_length_comes_from_those_of_the_queue_that_ran_longer(
    ran: int, chance: float, want: int
) -> None:
    run_times = RunTimes(by_queue={"q": TEN})

    assert run_times.run_time("t", "q", ran=ran, chance=chance) == want


@pytest.mark.parametrize(
    ("chance", "want"),
    [
        pytest.param(0.0, 190, id="it may end at once"),
        pytest.param(0.5, 380, id="as likely as not it runs as long again"),
        pytest.param(0.9, 1900, id="it may run for very long"),
    ],
)
def test_beyond_what_was_seen_the_past_of_the_task_itself_counts(chance: float, want: int) -> None:
    scaled = tuple(one * SECOND for one in TEN)
    run_times = RunTimes(by_queue={"q": scaled})

    found = run_times.run_time("t", "q", ran=190 * SECOND, chance=chance)

    assert found == pytest.approx(want * SECOND)


@pytest.mark.parametrize(
    ("run_times", "want"),
    [
        pytest.param(RunTimes(), None, id="nothing"),
        pytest.param(RunTimes(overall=TEN), RunTimeSource.ALL_QUEUES, id="all queues"),
        pytest.param(RunTimes(overall=TEN[:9]), None, id="too few of all queues"),
        pytest.param(RunTimes(limits={"t": 9}, overall=TEN), RunTimeSource.TIME_LIMIT, id="limit"),
        pytest.param(
            RunTimes(limits={"t": 9}, by_queue={"q": TEN}), RunTimeSource.QUEUE, id="queue"
        ),
        pytest.param(RunTimes(by_queue={"q": TEN[:9]}), None, id="too few of the queue"),
        pytest.param(RunTimes(by_queue={"p": TEN}), None, id="another queue"),
    ],
)
def test_the_strongest_source_is_used(run_times: RunTimes, want: RunTimeSource | None) -> None:
    assert run_times.source("t", "q") is want


def test_nobody_runs_longer_than_the_limit() -> None:
    run_times = RunTimes(limits={"t": 50}, by_queue={"q": TEN})

    assert run_times.run_time("t", "q", ran=0, chance=1.0) == 50
    assert run_times.run_time("t", "q", ran=0, chance=0.0) == 10
