"""The past of the demonstration is as the product would have written it."""

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta

import pytest
from django.db.models import Sum

from apps.nodes.models import Node
from apps.tasks.models import Attempt, AttemptUse, DeviceUse, Member, Task
from apps.usage.models import OwnerDay, PolicyDay, PolicyHour, QueueDay
from apps.usage.services.sums import usage_book
from rpm.demonstration import history, setup
from rpm.demonstration.arrivals import arrivals_of
from tests.services.sshd import kill_helpers

NOW = datetime(2026, 5, 20, 15, 7, tzinfo=UTC)
MONDAY = date(2026, 5, 4)


def test_a_day_is_the_same_whenever_it_is_made_and_other_days_differ() -> None:
    assert arrivals_of(MONDAY) == arrivals_of(MONDAY)
    assert arrivals_of(MONDAY) != arrivals_of(MONDAY + timedelta(days=7))


def test_days_have_peaks_and_nights_and_weekends_are_quiet() -> None:
    days = [MONDAY + timedelta(days=number) for number in range(28)]
    hours: dict[int, int] = defaultdict(int)
    counts: dict[bool, list[int]] = {True: [], False: []}
    for day in days:
        found = arrivals_of(day)
        assert [one.at for one in found] == sorted(one.at for one in found)
        assert {one.at.date() for one in found} == {day}
        counts[day.weekday() < 5].append(len(found))
        for one in found:
            hours[one.at.hour] += 1

    assert min(counts[True]) > 1.5 * max(counts[False])
    assert sum(hours[hour] for hour in range(9, 17)) > 5 * sum(hours[hour] for hour in range(6))


@pytest.mark.django_db(transaction=True)
class TestHistory:
    """Loaded once for all that is asked of it, since that takes seconds."""

    def test_it_is_as_the_product_would_have_written_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(setup, "history_load", lambda **_: None)
        monkeypatch.setattr(setup, "tasks_replenish", lambda: 0)
        setup.load()
        first = history.past_tasks(now=NOW)
        assert first == history.past_tasks(now=NOW)
        count = history.history_load(now=NOW)
        for home in Node.objects.values_list("helper_home", flat=True):
            kill_helpers(home)

        assert 500 < count == len(first) < 1500
        _check_tasks()
        _check_capacity()
        _check_sums()
        _check_use()


def _check_tasks() -> None:
    tasks = Task.objects.all()
    assert set(tasks.values_list("state", flat=True)) == {"completed", "failed", "aborted"}
    for task in tasks.prefetch_related("attempts"):
        attempts = sorted(task.attempts.all(), key=lambda one: one.generation)
        assert [one.generation for one in attempts] == list(range(1, task.generation + 1))
        assert task.preemptions == sum(one.is_preempted for one in attempts)
        assert task.ended_at is not None
        assert task.ended_at <= NOW
        moments = [task.submitted_at]
        for one in attempts:
            moments += [one.allocated_at, one.started_at, one.ended_at]
        assert moments == sorted(moments)  # type: ignore[type-var]
        # Ids are times: retention goes by them.
        assert task.pk.int >> 80 == int(task.created_at.timestamp() * 1000)
    assert Attempt.objects.filter(is_preempted=True, stops_for__isnull=False).count() > 10
    assert not Member.objects.filter(is_forgotten=False).exists()


def _check_capacity() -> None:
    """No pool, and no device, ever gives out more than there is; counted from the rows alone."""
    pools: dict[int, list[tuple[datetime, int]]] = defaultdict(list)
    devices: dict[tuple[int | None, int], list[tuple[datetime, int]]] = defaultdict(list)
    for one in Member.objects.select_related("attempt"):
        began, ended = one.attempt.allocated_at, one.released_at
        assert ended is not None
        gpu = one.amounts["gpu"]
        pools[one.pool_id] += [(began, gpu), (ended, -gpu)]
        assert sum(milli for _, milli in one.devices) == gpu
        for index, milli in one.devices:
            devices[one.node_id, index] += [(began, milli), (ended, -milli)]
    assert [_most_held(found) for found in pools.values()] == [8000, 8000]
    assert [_most_held(found) for found in devices.values()] == [1000] * 16


def _most_held(changes: list[tuple[datetime, int]]) -> int:
    held = most = 0
    # What is released at a moment can be given out at it.
    for _, milli in sorted(changes):
        held += milli
        most = max(most, held)
    assert held == 0
    return most


def _check_sums() -> None:
    rows = list(Attempt.objects.all())
    held = sum(
        one.request["gpu"] * ((one.ended_at - one.allocated_at) // timedelta(milliseconds=1))
        for one in rows
        if one.ended_at is not None
    )
    want = {
        "held__sum": held,
        "admitted__sum": len(rows),
        "ended__sum": len(rows),
        "preempted__sum": sum(one.is_preempted for one in rows),
    }
    for table in (PolicyHour, PolicyDay, QueueDay, OwnerDay):
        found = table._default_manager.aggregate(*map(Sum, ("held", "admitted", "ended")))
        found |= table._default_manager.aggregate(Sum("preempted"))
        assert found == want
    assert PolicyDay.objects.filter(tier="over_quota").exists()
    assert usage_book(now=NOW) == 0


def _check_use() -> None:
    """Every attempt tells how it used its GPUs, and notebooks did not."""
    uses = AttemptUse.objects.select_related("attempt__task")
    assert uses.count() == Attempt.objects.count()
    unused = {one.attempt.task.name[:8] for one in uses if one.known_ms and one.used_at is None}
    assert unused == {"notebook"}
    for table in (PolicyHour, PolicyDay, QueueDay, OwnerDay):
        found = table._default_manager.aggregate(*map(Sum, ("held", "known", "used", "idle")))
        assert (
            found["held__sum"] > found["known__sum"] > found["used__sum"] > found["idle__sum"] > 0
        )
    assert not DeviceUse.objects.exists()
