"""Expected starts that can be worked out on paper, and what they must never do."""

from dataclasses import replace

import pytest

from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import (
    PolicySnapshot,
    PoolSnapshot,
    PreemptionMode,
    ProfileSnapshot,
    QueuedGroup,
    QueuedTask,
    QueueSnapshot,
    RunningGroup,
    RunningTask,
    SettingsSnapshot,
    Snapshot,
)
from apps.allocation.forecast import (
    Arrivals,
    Basis,
    Estimate,
    NoEstimate,
    NoEstimateReason,
    RunTimes,
    expected_start,
)
from apps.allocation.simulation.simulated_state import GroupKey

SECOND = 1_000_000
MINUTE = 60 * SECOND
NOW = 1_000 * MINUTE
ONE = Quantities.whole(gpu=1)
# Whatever is drawn, it runs for an hour.
HOURS = RunTimes(by_queue={"q": (60 * MINUTE,) * 20, "other": (60 * MINUTE,) * 20})
BASE = Snapshot(
    settings=SettingsSnapshot(preemption=PreemptionMode.NONE),
    now_us=NOW,
    pools=(PoolSnapshot("p", "p", ONE, ("w",)),),
    profiles=(ProfileSnapshot("w", "w", ONE, pools=("p",), policies=("other", "q")),),
    policies=(PolicySnapshot("q", "q", 1), PolicySnapshot("other", "other", 0)),
    queues=(QueueSnapshot("q", "q", "w"), QueueSnapshot("other", "other", "w")),
)


def busy(*, ran: int = 10 * MINUTE, waiting: int = 1, **changes: object) -> Snapshot:
    """One GPU, on which a task has run for some time, and tasks `t0`, `t1`, ... that wait."""
    running_task = RunningTask("r", 0, NOW - ran)
    heads = tuple(QueuedTask(NOW - 9 + at, f"t{at}") for at in range(waiting))
    return replace(
        BASE,
        queued_groups=(QueuedGroup("q", ONE, waiting, heads),),
        running=(RunningGroup("p", "q", "w", ONE, (running_task,), queue="q"),),
        **changes,  # type: ignore[arg-type]  # fields of the snapshot
    )


def estimate(snapshot: Snapshot, task: str = "t0", **arguments: object) -> Estimate:
    found = expected_start(
        snapshot,
        task=task,
        **({"run_times": HOURS} | arguments),  # type: ignore[arg-type]  # of expected_start
    )
    assert isinstance(found, Estimate)
    return found


def assert_is_about(found: Estimate, wait_us: int) -> None:
    """The interval around a wait that is the same in all futures."""
    half = 30 * SECOND
    assert found.earliest_us == NOW + (wait_us + half) * 10 // 17 - half
    assert found.latest_us == NOW + (wait_us + half) * 17 // 10 - half


def test_what_fits_starts_now() -> None:
    found = estimate(replace(busy(), running=()), run_times=RunTimes())

    assert found == Estimate(NOW, NOW, Basis.NOW, futures=1, ended=0)


def test_it_starts_when_the_capacity_comes_back() -> None:
    found = estimate(busy(ran=10 * MINUTE))

    assert_is_about(found, 50 * MINUTE)
    assert (found.basis, found.ended) == (Basis.QUEUE, 20)


def test_each_task_ahead_takes_its_time() -> None:
    found = estimate(busy(ran=10 * MINUTE, waiting=3), "t2")

    assert_is_about(found, 170 * MINUTE)


def test_a_time_limit_bounds_it_where_nothing_has_ended_yet() -> None:
    limits = RunTimes(limits={"r": 30 * MINUTE, "t0": MINUTE})

    found = estimate(busy(ran=10 * MINUTE), run_times=limits)

    assert found.basis is Basis.TIME_LIMIT
    assert found.latest_us is not None
    assert NOW <= found.earliest_us < found.latest_us <= NOW + 35 * MINUTE


def test_a_time_limit_cuts_what_history_says() -> None:
    limits = replace(HOURS, limits={"r": 30 * MINUTE})

    assert_is_about(estimate(busy(ran=10 * MINUTE), run_times=limits), 20 * MINUTE)


def test_other_queues_speak_for_one_that_has_too_little_history() -> None:
    run_times = RunTimes(by_queue={"q": (1,) * 5}, overall=(60 * MINUTE,) * 20)

    found = estimate(busy(), run_times=run_times)

    assert (found.basis, found.ended) == (Basis.ALL_QUEUES, 20)
    assert_is_about(found, 50 * MINUTE)


def test_the_history_of_another_queue_is_not_counted_as_its_own() -> None:
    run_times = RunTimes(
        limits={"t0": 30 * MINUTE}, by_queue={"q": (60 * MINUTE,) * 20, "own": (1,) * 5}
    )
    snapshot = busy()
    own = replace(snapshot.queues[0], id="own")
    queued_groups = tuple(replace(queued, queue="own") for queued in snapshot.queued_groups)

    found = estimate(
        replace(snapshot, queues=(*snapshot.queues, own), queued_groups=queued_groups),
        run_times=run_times,
    )

    assert (found.basis, found.ended) == (Basis.QUEUE, 0)


@pytest.mark.parametrize(
    ("snapshot", "run_times", "want"),
    [
        pytest.param(busy(), RunTimes(), NoEstimateReason.NOTHING_KNOWN, id="nothing has ended"),
        pytest.param(
            busy(pools=(PoolSnapshot("p", "p", ONE, ("w",), is_paused=True),)),
            HOURS,
            NoEstimateReason.NOT_IN_SIGHT,
            id="a paused pool",
        ),
        pytest.param(
            busy(settings=SettingsSnapshot(is_enabled=False)),
            HOURS,
            NoEstimateReason.NOT_IN_SIGHT,
            id="switched off",
        ),
    ],
)
def test_where_nobody_can_tell_there_is_none(
    snapshot: Snapshot, run_times: RunTimes, want: NoEstimateReason
) -> None:
    assert expected_start(snapshot, task="t0", run_times=run_times) == NoEstimate(want)


def test_a_task_behind_the_heads_waits_for_those_before_it() -> None:
    snapshot = busy(ran=10 * MINUTE)
    snapshot = replace(snapshot, queued_groups=(replace(snapshot.queued_groups[0], count=5),))

    found = estimate(snapshot, "somewhere", behind=(0, 4))

    assert_is_about(found, 230 * MINUTE)
    assert estimate(snapshot, "t0", behind=(0, 1)) == estimate(snapshot, "t0")


def test_a_task_behind_more_than_a_forecast_looks_at_is_not_in_sight() -> None:
    snapshot = busy()
    snapshot = replace(snapshot, queued_groups=(replace(snapshot.queued_groups[0], count=10**6),))

    found = expected_start(snapshot, task="far", run_times=HOURS, behind=(0, 10**6))

    assert found == NoEstimate(NoEstimateReason.NOT_IN_SIGHT)


def test_the_same_arguments_give_the_same_answer() -> None:
    run_times = RunTimes(by_queue={"q": tuple(range(MINUTE, 99 * MINUTE, MINUTE))})

    first = estimate(busy(waiting=3), "t2", run_times=run_times)

    assert estimate(busy(waiting=3), "t2", run_times=run_times) == first
    assert first.latest_us is not None
    assert first.earliest_us < first.latest_us


def test_what_is_enqueued_every_few_minutes_and_goes_first_pushes_it_back() -> None:
    ahead = GroupKey("other", ONE)
    recent = tuple((NOW - at * MINUTE, ahead) for at in range(180, 0, -20))
    arrivals = Arrivals(NOW, 180 * MINUTE, recent)

    alone = estimate(busy())
    crowded = expected_start(busy(), task="t0", run_times=HOURS, arrivals=arrivals)

    assert_is_about(alone, 50 * MINUTE)
    assert crowded == NoEstimate(NoEstimateReason.NOT_IN_SIGHT)


def test_what_is_enqueued_later_and_goes_behind_changes_nothing() -> None:
    recent = tuple((NOW - at * MINUTE, GroupKey("q", ONE)) for at in range(180, 0, -20))
    arrivals = Arrivals(NOW, 180 * MINUTE, recent)

    assert estimate(busy(waiting=2), "t1", arrivals=arrivals) == estimate(busy(waiting=2), "t1")


def test_a_victim_goes_on_with_what_it_has_left() -> None:
    """`q` reserves the GPU, `other` has run on it for ten minutes: it comes back an hour later."""
    settings = SettingsSnapshot(preemption=PreemptionMode.RECLAIM)
    snapshot = replace(
        BASE,
        settings=settings,
        policies=(PolicySnapshot("q", "q", 1, reserved=ONE), PolicySnapshot("other", "other", 0)),
        queued_groups=(
            QueuedGroup("q", ONE, 1, (QueuedTask(1, "t0"),)),
            QueuedGroup("other", ONE, 1, (QueuedTask(2, "t1"),)),
        ),
        running=(
            RunningGroup(
                "p", "other", "w", ONE, (RunningTask("r", 0, NOW - 10 * MINUTE),), queue="other"
            ),
        ),
    )

    found = estimate(snapshot, "t1")

    assert_is_about(found, 110 * MINUTE)


def test_arrivals_come_round_again_each_future_from_another_moment_on() -> None:
    one, two = GroupKey("q", ONE), GroupKey("other", ONE)
    arrivals = Arrivals(100, 40, ((70, one), (90, two)))

    def first(part: int, count: int) -> list[tuple[int, GroupKey]]:
        repeated = arrivals.repeated(part, 4)
        return [next(repeated) for _ in range(count)]

    assert first(0, 3) == [(110, one), (130, two), (150, one)]
    assert first(1, 3) == [(120, two), (140, one), (160, two)]
    assert list(Arrivals(100, 40).repeated(0, 4)) == []
