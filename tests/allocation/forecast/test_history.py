"""Expected starts from the database."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine.quantities import Quantities
from apps.allocation.forecast import Basis, Estimate, NoEstimate, Why
from apps.allocation.forecast.history import expected_start_of, load_lengths
from apps.allocation.loader import load
from apps.allocation.loader.running import microseconds
from apps.allocation.services import run_pass
from apps.tasks.models import Attempt, Task
from tests.allocation.state import begin, end, enqueue, latest, make_node
from tests.cast import Example

HOUR = timedelta(hours=1)


@pytest.fixture
def busy(example: Example, alice: User) -> list[Task]:
    """Two tasks of an hour's limit that fill the one node, for ten minutes; three more wait."""
    make_node(example.bare_metal, name="b1")
    tasks = enqueue(alice, example.dev_queue, 5, time_limit_s=3600)
    run_pass()
    begin(*(latest(task) for task in tasks[:2]))
    Attempt.objects.update(started_at=timezone.now() - timedelta(minutes=10))
    return [Task.objects.get(pk=task.pk) for task in tasks]


def now_us() -> int:
    return microseconds(timezone.now())


def finish(task: Task, *, ran: timedelta, **changes: object) -> None:
    """Its attempt has ended by itself."""
    attempt = latest(task)
    end(attempt, code=0, is_stop_asked=False)
    ended = Attempt.objects.filter(pk=attempt.pk)
    ended.update(started_at=timezone.now() - ran, ended_at=timezone.now(), **changes)


def test_time_limits_say_by_when_there_is_room(busy: list[Task]) -> None:
    now = now_us()

    found = expected_start_of(busy[2], now_us=now)

    assert isinstance(found, Estimate)
    assert found.basis is Basis.TIME_LIMIT
    assert found.latest_us is not None
    assert now <= found.earliest_us < found.latest_us <= now + 90 * 60 * 10**6


def test_who_stands_behind_starts_later(busy: list[Task]) -> None:
    now = now_us()

    first = expected_start_of(busy[2], now_us=now)
    last = expected_start_of(busy[4], now_us=now)

    assert isinstance(first, Estimate)
    assert isinstance(last, Estimate)
    assert first.earliest_us < last.earliest_us


def test_without_limits_and_history_there_is_none(busy: list[Task]) -> None:
    Task.objects.update(time_limit_s=None)

    assert expected_start_of(busy[2], now_us=now_us()) == NoEstimate(Why.NOTHING_KNOWN)


def test_what_does_not_wait_has_none(busy: list[Task]) -> None:
    assert expected_start_of(busy[0], now_us=now_us()) == NoEstimate(Why.NOT_IN_SIGHT)


def test_run_times_are_of_attempts_that_ended_by_themselves(
    busy: list[Task], example: Example
) -> None:
    finish(busy[0], ran=HOUR)
    finish(busy[1], ran=2 * HOUR, is_preempted=True)

    lengths, _ = load_lengths(load(now_us=now_us()).snapshot)

    (found,) = lengths.by_queue[example.dev_queue.pk]
    assert found == pytest.approx(HOUR.total_seconds() * 10**6, rel=0.01)
    assert lengths.overall == [found]


def test_limits_are_of_what_runs_and_what_waits(busy: list[Task]) -> None:
    lengths, _ = load_lengths(load(now_us=now_us()).snapshot)

    heads = {str(task.pk) for task in busy[2:3]}
    assert {str(busy[0].pk), str(busy[1].pk)} | heads <= set(lengths.limits)
    assert set(lengths.limits.values()) == {3600 * 10**6}


def test_arrivals_are_what_was_enqueued_within_a_day(busy: list[Task], example: Example) -> None:
    Task.objects.filter(pk=busy[0].pk).update(submitted_at=timezone.now() - 25 * HOUR)

    _, arrivals = load_lengths(load(now_us=now_us()).snapshot)

    kinds = [kind for _, kind in arrivals.recent]
    assert len(kinds) >= 2
    assert {kind.queue for kind in kinds} == {example.dev_queue.pk}
    assert {kind.request for kind in kinds} == {Quantities.whole(gpu=4)}
    assert [at for at, _ in arrivals.recent] == sorted(at for at, _ in arrivals.recent)
    assert busy[0].submitted_at is not None
    assert len(kinds) == len(load(now_us=now_us()).snapshot.runs[0].heads) + 1


def test_it_takes_as_many_queries_for_many_waiting_tasks_as_for_few(
    busy: list[Task], example: Example, alice: User
) -> None:
    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            expected_start_of(busy[2], now_us=now_us())
        return len(queries)

    few = count()
    enqueue(alice, example.dev_queue, 20, time_limit_s=60)

    assert count() == few
