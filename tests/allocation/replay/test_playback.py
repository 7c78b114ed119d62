"""Replays against small simulations that know nothing of the engine."""

from collections.abc import Sequence
from heapq import heappop, heappush

import pytest
from hypothesis import assume, given, settings

from apps.allocation.engine import Engine
from apps.allocation.engine.model.plan import Placement, Plan, Preempt, Tier
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.replay.playback import TaskRecord, play
from apps.allocation.replay.regimes import FIFO, REGIMES, STATIC, parts
from apps.allocation.replay.trace import TraceTask
from tests.allocation.replay.histories import histories, task

GPUS = 8
RESERVED = {"a": 2, "b": 3, "c": 3}


def records(name: str, tasks: Sequence[TraceTask], **changes: object) -> dict[int, TaskRecord]:
    terms = {"checkpoint_s": 7} | changes
    found = [
        play(part, **terms)  # type: ignore[arg-type]
        for part in parts(REGIMES[name], tasks, RESERVED, GPUS)
    ]
    return {record.task.number: record for one in found for record in one.records}


def starts(found: dict[int, TaskRecord]) -> dict[int, list[tuple[int, int]]]:
    return {number: record.ran for number, record in found.items()}


def first_come(tasks: Sequence[TraceTask], gpus: int) -> dict[int, list[tuple[int, int]]]:
    """One strict queue: each starts when it has arrived, the one before it has started,
    and enough is free.
    """
    free, now = gpus * 1000, -(10**9)
    ends: list[tuple[int, int]] = []
    ran: dict[int, list[tuple[int, int]]] = {}
    for one in tasks:
        ran[one.number] = []
        if one.gpu_milli > gpus * 1000:
            continue
        now = max(now, one.submitted_s)
        while (ends and ends[0][0] <= now) or free < one.gpu_milli:
            end, milli = heappop(ends)
            now = max(now, end)
            free += milli
        heappush(ends, (now + one.duration_s, one.gpu_milli))
        free -= one.gpu_milli
        ran[one.number] = [(now, now + one.duration_s)]
    return ran


@given(histories())
@settings(max_examples=150, deadline=None)
def test_fifo_agrees_job_by_job_with_a_small_event_simulation(tasks: tuple[TraceTask, ...]) -> None:
    assert starts(records(FIFO, tasks)) == first_come(tasks, GPUS)


@given(histories())
@settings(max_examples=150, deadline=None)
def test_static_agrees_job_by_job_with_a_small_event_simulation_of_each_partition(
    tasks: tuple[TraceTask, ...],
) -> None:
    want: dict[int, list[tuple[int, int]]] = {}
    for team, gpus in RESERVED.items():
        want |= first_come([one for one in tasks if one.team == team], gpus)

    assert starts(records(STATIC, tasks)) == want


@pytest.mark.parametrize("name", REGIMES)
@given(tasks=histories(most=16))
@settings(max_examples=40, deadline=None)
def test_a_pass_left_out_would_have_decided_nothing(
    name: str, tasks: tuple[TraceTask, ...]
) -> None:
    partition = parts(REGIMES[name], tasks, RESERVED, GPUS)
    fewer = [play(part, checkpoint_s=7) for part in partition]
    every = [play(part, checkpoint_s=7, skips_idle=False) for part in partition]
    assume(not any(one.unsettled for one in (*fewer, *every)))

    assert [one.records for one in fewer] == [one.records for one in every]
    assert sum(one.passes for one in fewer) <= sum(one.passes for one in every)


@pytest.mark.parametrize("name", [name for name in REGIMES if not name.startswith((STATIC, FIFO))])
@given(tasks=histories())
@settings(max_examples=40, deadline=None)
def test_no_gpu_is_given_twice_and_every_job_is_done_once(
    name: str, tasks: tuple[TraceTask, ...]
) -> None:
    found = records(name, tasks)

    changes = sorted(
        (at, sign * record.task.gpu_milli)
        for record in found.values()
        for start, end in record.ran
        for at, sign in ((start, 1), (end, -1))
        if start < end
    )
    held = 0
    for _, milli in changes:
        held += milli
        assert held <= GPUS * 1000
    for record in found.values():
        kept = sum((end - start) // 7 * 7 for start, end in record.ran[:-1])
        assert kept + record.ran[-1][1] - record.ran[-1][0] == record.task.duration_s


@given(histories())
@settings(max_examples=100, deadline=None)
def test_what_a_reservation_holds_never_waits_where_it_may_reclaim(
    tasks: tuple[TraceTask, ...],
) -> None:
    part = parts(REGIMES["reclaim/priority"], tasks, RESERVED, GPUS)[0]

    assert play(part, checkpoint_s=7).covered_wait_s == 0


def test_what_a_reservation_holds_waits_where_nothing_is_reclaimed() -> None:
    tasks = (task(1, 0, 10, gpus=8, team="a"), task(2, 1, 5, gpus=1, team="b"))
    part = parts(REGIMES["none/priority"], tasks, RESERVED, GPUS)[0]

    played = play(part, checkpoint_s=None)

    assert played.covered_wait_s == 9
    assert [record.was_covered for record in played.records] == [False, True]


@pytest.mark.parametrize(
    ("checkpoint_s", "want_left_s"),
    [
        pytest.param(4, 2, id="from the last checkpoint"),
        pytest.param(10, 10, id="from the beginning before the first"),
        pytest.param(None, 10, id="from the beginning without any"),
    ],
)
def test_a_victim_goes_on_from_its_last_checkpoint(
    checkpoint_s: int | None, want_left_s: int
) -> None:
    tasks = (task(1, 0, 10, gpus=8, team="a"), task(2, 9, 6, gpus=1, team="b"))

    found = records("reclaim/priority", tasks, checkpoint_s=checkpoint_s)

    assert found[1].ran == [(0, 9), (15, 15 + want_left_s)]
    assert found[2].ran == [(9, 15)]


def test_the_victim_is_who_loses_least_since_its_last_checkpoint() -> None:
    longer_but_just_saved = task(1, 0, 50, gpus=4, team="a")
    younger = task(2, 3, 50, gpus=4, team="a")
    taker = task(3, 8, 5, gpus=3, team="b")

    found = records("reclaim/priority", (longer_but_just_saved, younger, taker), checkpoint_s=7)

    assert (len(found[1].ran), len(found[2].ran)) == (2, 1)


def take_turns(_engine: Engine, snapshot: Snapshot) -> Plan:
    """An engine that never rests: waiting work preempts all running work."""
    (group, *_) = snapshot.queued_groups
    taker = group.heads[0].task
    victims = [running_task.task for running in snapshot.running for running_task in running.tasks]
    return Plan(
        placed=(Placement(taker, group.queue, "work", Tier.OVER_QUOTA, waits_for=tuple(victims)),),
        preempted=tuple(Preempt(victim, "work", taker) for victim in victims),
    )


def test_a_moment_whose_passes_take_the_same_job_twice_is_cut_short_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Engine, "decide", take_turns)
    tasks = (task(1, 0, 5, gpus=8, team="a"), task(2, 1, 5, gpus=8, team="b"))
    part = parts(REGIMES["rank/priority"], tasks, RESERVED, GPUS)[0]

    played = play(part, checkpoint_s=1)

    assert (played.unsettled, played.passes) == (1, 5)
    assert [record.ran[-1] for record in played.records] == [(6, 10), (1, 6)]


def test_a_job_larger_than_the_pool_is_refused() -> None:
    found = records(FIFO, (task(1, 0, 5, gpus=9), task(2, 0, 5)))

    assert found[1].is_refused
    assert found[1].ran == []
    assert found[2].ran == [(0, 5)]


def test_the_progress_counts_every_job_once() -> None:
    counts: list[int] = []
    tasks = (task(1, 0, 5, gpus=9), task(2, 0, 5), task(3, 1, 5, gpus=8))

    records(FIFO, tasks, on_progress=counts.append)

    assert sum(counts) == 3
