"""Expected starts from the database."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.forecast import Basis, Estimate, expected_start
from apps.allocation.forecast.history import load_run_times
from apps.allocation.loader import load
from apps.allocation.loader.texts import microseconds
from apps.allocation.services import run_pass
from apps.tasks.models import Attempt, Task
from tests.allocation.state import begin, end, enqueue, latest, make_node
from tests.people import Example

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


def test_an_estimate_goes_by_what_is_read(busy: list[Task]) -> None:
    snapshot = load(now_us=now_us()).snapshot
    run_times, arrivals = load_run_times(snapshot)

    found = expected_start(snapshot, task=str(busy[2].pk), run_times=run_times, arrivals=arrivals)

    assert isinstance(found, Estimate)
    assert found.basis is Basis.TIME_LIMIT
    assert found.latest_us is not None
    assert snapshot.now_us <= found.earliest_us < found.latest_us


def test_run_times_are_of_attempts_that_ended_by_themselves(
    busy: list[Task], example: Example
) -> None:
    finish(busy[0], ran=HOUR)
    finish(busy[1], ran=2 * HOUR, is_preempted=True)

    run_times, _ = load_run_times(load(now_us=now_us()).snapshot)

    (found,) = run_times.by_queue[example.dev_queue.pk]
    assert found == pytest.approx(HOUR.total_seconds() * 10**6, rel=0.01)
    assert run_times.overall == [found]


def test_limits_are_of_what_runs_and_what_waits(busy: list[Task]) -> None:
    run_times, _ = load_run_times(load(now_us=now_us()).snapshot)

    heads = {str(task.pk) for task in busy[2:3]}
    assert {str(busy[0].pk), str(busy[1].pk)} | heads <= set(run_times.limits)
    assert set(run_times.limits.values()) == {3600 * 10**6}


def test_arrivals_are_what_was_enqueued_within_a_day(busy: list[Task], example: Example) -> None:
    Task.objects.filter(pk=busy[0].pk).update(submitted_at=timezone.now() - 25 * HOUR)

    _, arrivals = load_run_times(load(now_us=now_us()).snapshot)

    kinds = [group_key for _, group_key in arrivals.recent]
    assert len(kinds) >= 2
    assert {group_key.queue for group_key in kinds} == {example.dev_queue.pk}
    assert {group_key.request for group_key in kinds} == {Quantities.whole(gpu=4)}
    assert [at for at, _ in arrivals.recent] == sorted(at for at, _ in arrivals.recent)
    assert busy[0].submitted_at is not None
    assert len(kinds) == len(load(now_us=now_us()).snapshot.queued_groups[0].heads) + 1


def test_it_takes_three_queries(busy: list[Task], django_assert_num_queries: Any) -> None:
    snapshot = load(now_us=now_us()).snapshot

    with django_assert_num_queries(3):
        run_times, _ = load_run_times(snapshot)

    assert str(busy[2].pk) in run_times.limits
