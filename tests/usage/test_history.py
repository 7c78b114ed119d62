"""What policies held over days: the sums of each hour, and what is not summed up yet."""

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import User
from apps.tasks.lifecycle.states import AttemptState, AttemptTier
from apps.tasks.models import Attempt, Task
from apps.usage.models import PolicyDay, PolicyHour, QueueDay, UsageRun
from apps.usage.selectors.labels import UsageGroup
from apps.usage.selectors.usage_history import HistoryScope, usage_history
from apps.usage.selectors.waiting_history import waiting_history
from apps.usage.services.sums import usage_book
from tests.allocation.state import apply, decided, enqueue, latest, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("by", [UsageGroup.POLICY, UsageGroup.POOL, UsageGroup.TIER])
@pytest.mark.parametrize("is_booked", [False, True])
def test_all_hours_together_are_what_was_held(
    by: UsageGroup, is_booked: bool, example: Example, alice: User
) -> None:
    make_node(example.h100, name="h1")
    ended, live = enqueue(alice, example.dev_queue, 2)
    apply(*decided())
    now = timezone.now()
    for task, since, until in ((ended, 100, 70.25), (live, 50.5, None)):
        Attempt.objects.filter(pk=latest(task).pk).update(
            allocated_at=now - since * HOUR,
            ended_at=None if until is None else now - until * HOUR,
            request={"gpu": 4000},
            tier=AttemptTier.RESERVED,
        )
    if is_booked:
        assert usage_book(now=now) == 2

    found = usage_history(by, HistoryScope([example.dev.pk]), until=now, hours=7 * 24)

    [values] = found.values.values()
    hours = (now - found.began) / HOUR
    held = 4 * (29.75 + 50.5) if hours > 90 else 4 * 50.5
    assert sum(values) / 1000 * hours / len(values) == pytest.approx(held, rel=0.01)
    assert values[-1] == values[-20] == 4000
    other = HistoryScope([example.research.pk])
    assert usage_history(by, other, until=now, hours=7 * 24).values == {}


def test_tasks_that_are_removed_stay_in_it(example: Example, alice: User) -> None:
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    for hours in (10, 20, 30):
        PolicyHour.objects.create(
            at=now - hours * HOUR, policy=example.dev, pool=example.h100, held=8 * 3_600_000_000
        )

    scope = HistoryScope([example.dev.pk])
    [values] = usage_history(UsageGroup.POLICY, scope, until=now, hours=7 * 24).values.values()

    assert sum(values) / 1000 * 7 * 24 / 96 == pytest.approx(24, rel=0.001)


@pytest.mark.parametrize("is_booked", [False, True])
def test_what_waited_for_days_is_summed_up_with_its_admission(
    is_booked: bool, example: Example, alice: User
) -> None:
    make_node(example.h100, name="h1")
    ended, live = enqueue(alice, example.dev_queue, 2)
    apply(*decided())
    now = timezone.now()
    for task, submitted, allocated, until in ((ended, 100, 70, 60), (live, 90, 20, None)):
        Task.objects.filter(pk=task.pk).update(submitted_at=now - submitted * HOUR)
        Attempt.objects.filter(pk=latest(task).pk).update(
            allocated_at=now - allocated * HOUR,
            ended_at=None if until is None else now - until * HOUR,
            request={"gpu": 4000},
        )
    Attempt.objects.filter(pk=latest(ended).pk).update(state=AttemptState.FINISHED)
    [waiting] = enqueue(alice, example.dev_queue)
    Task.objects.filter(pk=waiting.pk).update(submitted_at=now - 10 * HOUR)
    if is_booked:
        while usage_book(now=now):
            pass
        # Sums are enough: no attempt that has ended is read.
        with CaptureQueriesContext(connection) as queries:
            found = waited(example, now)
        attempts = [one["sql"] for one in queries if 'FROM "tasks_attempt"' in one["sql"]]
        assert all("is_booked" in one or "generation" in one for one in attempts)
    found = waited(example, now)

    means = [round(one, -2) for one in found]
    assert [means[hour] for hour in (-95, -80, -50, -25, -5)] == [4000, 8000, 4000, 4000, 4000]
    assert means[-15] == 0
    assert sum(found) == pytest.approx(4000 * (30 + 70 + 10), rel=0.02)


def test_waits_from_before_they_were_summed_up_are_read_from_the_attempts(
    example: Example, alice: User
) -> None:
    now = timezone.now()
    make_node(example.h100, name="h1")
    enqueue(alice, example.dev_queue)
    apply(*decided())
    Task.objects.update(submitted_at=now - 60 * HOUR)
    Attempt.objects.update(allocated_at=now - 50 * HOUR)
    usage_book(now=now)
    for table in (PolicyHour, PolicyDay, QueueDay):
        table._default_manager.update(demand=0)
    assert sum(waited(example, now)) == 0

    UsageRun.objects.update_or_create(id=1, defaults={"at": now, "demand_since": now})

    assert sum(waited(example, now)) == pytest.approx(4000 * 10, rel=0.02)


def waited(example: Example, now: datetime) -> tuple[int, ...]:
    """By hour, of seven days."""
    began, scope = now - timedelta(days=7), HistoryScope([example.dev.pk])
    return waiting_history(scope, began=began, until=now, steps=7 * 24)
