"""Rows that are kept for a set time are removed after it, and no others."""

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.events.models import Event
from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.models import (
    Attempt,
    AttemptLog,
    HeldDevice,
    IdempotencyKey,
    Member,
    ReasonChange,
    Task,
)
from apps.tasks.services import retention
from apps.tasks.services.attempts.ends import attempt_stop
from apps.tasks.services.members.logs import log_append
from apps.tasks.services.retention import Retention, expired_remove, retention_of
from apps.usage.models import OwnerDay
from apps.usage.services.sums import usage_book
from tests.allocation.state import enqueue, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db

MONTH = Retention(logs=timedelta(days=30), tasks=timedelta(days=30))
LATER = timedelta(days=31)


@pytest.fixture
def ended(example: Example, alice: User) -> Task:
    """An ended task with a log, whose node has acknowledged its end."""
    make_node(example.bare_metal, name="b1")
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    member = Member.objects.get()
    log_append(member_id=member.pk, offset=0, content=b"step 1\n", at=timezone.now())
    end(task)
    return task


def end(task: Task, *, is_acknowledged: bool = True) -> None:
    """As a report that it completed would, in the rows alone."""
    now = timezone.now()
    Attempt.objects.filter(task=task).update(
        state=AttemptState.FINISHED, ended_at=now, is_booked=True
    )
    Member.objects.filter(attempt__task=task).update(
        released_at=now, is_acknowledged=is_acknowledged
    )
    HeldDevice.objects.filter(member__attempt__task=task).update(released_at=now)
    Task.objects.filter(pk=task.pk).update(state=TaskState.COMPLETED, ended_at=now)


def test_what_is_young_stays(ended: Task) -> None:
    removed = expired_remove(MONTH)

    assert (removed.tasks, removed.log_pieces, removed.is_over) == (0, 0, True)
    assert AttemptLog.objects.count() == 1


def test_nothing_goes_while_the_clock_is_years_ahead(
    ended: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, real_s = timezone.now, time.time
    years = timedelta(days=3650)
    monkeypatch.setattr(timezone, "now", lambda: real() + years)
    monkeypatch.setattr(time, "time", lambda: real_s() + years.total_seconds())

    removed = expired_remove(MONTH)

    assert (removed.tasks, removed.log_pieces, removed.keys) == (0, 0, 0)
    assert Task.objects.filter(pk=ended.pk).exists()


def test_an_old_task_goes_with_everything_that_is_stored_about_it(ended: Task) -> None:
    ReasonChange.objects.create(task=ended, at=timezone.now(), code="full")
    assert Event.objects.filter(object_id=str(ended.pk)).exists()
    other = Event.objects.create(kind="node.added", object_type="node", object_id="1")

    removed = expired_remove(MONTH, now=timezone.now() + LATER)

    assert removed.tasks == 1
    assert not Task.objects.exists()
    assert not Attempt.objects.exists()
    assert not Member.objects.exists()
    assert not AttemptLog.objects.exists()
    assert not ReasonChange.objects.exists()
    assert not Event.objects.filter(object_id=str(ended.pk)).exists()
    assert Event.objects.filter(pk=other.pk).exists()


def test_the_output_goes_before_the_task_where_that_is_asked(ended: Task) -> None:
    kept = Retention(logs=timedelta(days=30), tasks=None)

    removed = expired_remove(kept, now=timezone.now() + LATER)

    assert (removed.log_pieces, removed.tasks) == (1, 0)
    assert Attempt.objects.get().log_bytes == 7
    assert not AttemptLog.objects.exists()


def test_what_the_sums_of_usage_lack_stays_until_it_is_booked(ended: Task) -> None:
    Attempt.objects.update(is_booked=False)
    late = timezone.now() + LATER
    assert expired_remove(MONTH, now=late).tasks == 0

    usage_book()

    assert expired_remove(MONTH, now=late).tasks == 1
    assert OwnerDay.objects.get().admitted == 1


def test_what_is_kept_for_ever_stays(ended: Task) -> None:
    removed = expired_remove(
        retention_of(logs_days=0, tasks_days=0), now=timezone.now() + timedelta(days=9999)
    )

    assert (removed.tasks, removed.log_pieces) == (0, 0)
    assert Task.objects.count() == 1


@pytest.mark.parametrize("state", [TaskState.ALLOCATED, TaskState.RUNNING, TaskState.STOPPING])
def test_live_work_stays_however_old_it_is(example: Example, alice: User, state: TaskState) -> None:
    make_node(example.bare_metal, name="b1")
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    member = Member.objects.get()
    log_append(member_id=member.pk, offset=0, content=b"step 1\n", at=timezone.now())
    if state == TaskState.RUNNING:
        Task.objects.filter(pk=task.pk).update(state=TaskState.RUNNING)
    if state == TaskState.STOPPING:
        attempt_stop(attempt_id=member.attempt_id, target=TaskState.ABORTED, detail="asked")
    assert Task.objects.get().state == state

    removed = expired_remove(MONTH, now=timezone.now() + timedelta(days=999))

    assert (removed.tasks, removed.log_pieces) == (0, 0)


def test_waiting_work_and_drafts_stay(example: Example, alice: User) -> None:
    enqueue(alice, example.dev_queue)

    assert expired_remove(MONTH, now=timezone.now() + timedelta(days=999)).tasks == 0


def test_a_task_that_was_started_again_stays_with_its_earlier_attempts(ended: Task) -> None:
    Task.objects.filter(pk=ended.pk).update(state=TaskState.QUEUED, ended_at=None)

    assert expired_remove(MONTH, now=timezone.now() + LATER).tasks == 0
    assert Attempt.objects.count() == 1


def test_a_task_whose_node_has_not_acknowledged_its_result_stays(ended: Task) -> None:
    Member.objects.update(is_acknowledged=False)

    assert expired_remove(MONTH, now=timezone.now() + LATER).tasks == 0

    node = Member.objects.get().node
    assert node is not None
    node.removed_at = timezone.now()
    node.save()
    assert expired_remove(MONTH, now=timezone.now() + LATER).tasks == 1


def test_a_task_for_which_another_still_leaves_stays(
    ended: Task, example: Example, alice: User
) -> None:
    """The capacity of the other one is charged to it."""
    (victim,) = enqueue(alice, example.dev_queue)
    run_pass()
    leaving = Attempt.objects.get(task=victim)
    Attempt.objects.filter(pk=leaving.pk).update(stops_for=Attempt.objects.get(task=ended))

    assert expired_remove(MONTH, now=timezone.now() + LATER).tasks == 0

    end(victim)
    assert expired_remove(MONTH, now=timezone.now() + LATER).tasks == 2


def test_the_latest_event_of_all_stays(ended: Task) -> None:
    """Nodes remember its number: one that falls would look like a restored backup."""
    latest = Event.objects.create(kind="task.ended", object_type="task", object_id=str(ended.pk))

    expired_remove(MONTH, now=timezone.now() + LATER)

    assert Event.objects.order_by("-pk").values_list("pk", flat=True).first() == latest.pk


def test_old_events_go_but_for_those_of_tasks_and_the_latest(ended: Task) -> None:
    kept = retention_of(logs_days=0, tasks_days=0, events_days=30)
    Event.objects.create(kind="node.added", object_type="node", object_id="1")
    of_tasks = set(Event.objects.filter(object_type__in=("task", "attempt")))
    young = expired_remove(kept)
    latest = Event.objects.create(kind="node.left", object_type="node", object_id="1")

    removed = expired_remove(kept, now=timezone.now() + LATER)

    assert young.events == 0
    assert removed.events > 0
    assert set(Event.objects.all()) == {*of_tasks, latest}
    assert expired_remove(retention_of(logs_days=0, tasks_days=0)).events == 0


def test_keys_of_requests_go_after_a_week(alice: User, ended: Task) -> None:
    def keep(key: str, age: timedelta) -> None:
        IdempotencyKey.objects.create(
            user=alice, key=key, body_hash="x", task_id=ended.pk, created_at=timezone.now() - age
        )

    keep("old", timedelta(days=8))
    keep("young", timedelta(days=6))

    assert expired_remove(MONTH).keys == 1
    assert IdempotencyKey.objects.get().key == "young"


def test_many_go_in_batches_and_one_run_ends_in_its_time(
    monkeypatch: pytest.MonkeyPatch, ended: Task, example: Example, alice: User
) -> None:
    monkeypatch.setattr(retention, "LOOKED_AT", 3)
    monkeypatch.setattr(retention, "TASKS_AT_ONCE", 2)
    for _ in range(6):
        (task,) = enqueue(alice, example.dev_queue)
        Task.objects.filter(pk=task.pk).update(state=TaskState.ABORTED, ended_at=timezone.now())
    (waiting,) = enqueue(alice, example.dev_queue)

    nothing = expired_remove(MONTH, now=timezone.now() + LATER, run_s=0)
    removed = expired_remove(MONTH, now=timezone.now() + LATER)

    assert (nothing.tasks, nothing.is_over) == (0, False)
    assert (removed.tasks, removed.is_over) == (7, True)
    assert Task.objects.get() == waiting
