"""Rules of queues for idle tasks: warned, stopped through the grace period, never on a guess."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from guardian.shortcuts import assign_perm

from apps.accounts.models import User
from apps.configuration.services.queues import profile_disconnect
from apps.core.errors import Conflict, NotAllowed
from apps.events.models import AuditEntry, Event
from apps.nodes.models import Device
from apps.policies.models import Queue
from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.models import (
    Attempt,
    DeviceUse,
    HeldDevice,
    IdleExemption,
    IdleWarning,
    Member,
    Task,
    TaskUserPermission,
)
from apps.tasks.services.attempts.ends import ask_to_stop, attempt_stop
from apps.tasks.services.idle_rules import idle_rules_apply, task_set_idle_exemption
from apps.tasks.services.retention import ended_tasks_remove
from apps.tasks.services.stop import task_dequeue
from tests.allocation.state import apply, begin, decided, end, enqueue, latest, states
from tests.people import Example
from tests.tasks.services.idle_task import BEGIN, MINUTE, STOP, WARN, IdleTask, idle, node, queue

__all__ = ["idle", "node", "queue"]

pytestmark = pytest.mark.django_db

Assert = Callable[..., AbstractContextManager[object]]
ENDS = "Stopped: idle for 25 minutes; queue dev-4xgpu stops idle tasks."


def test_an_idle_task_is_warned_once_and_then_stopped_as_aborted(idle: IdleTask) -> None:
    idle.minutes(WARN - 1)
    assert not IdleWarning.objects.exists()

    idle.minutes(1)
    warning = IdleWarning.objects.get()
    assert (warning.since, warning.stop_at) == (BEGIN, BEGIN + STOP * MINUTE)
    [event] = Event.objects.filter(kind="task.idle_warning")
    assert event.data["minutes_left"] == STOP - WARN

    idle.minutes(STOP - WARN - 1)
    assert (idle.state, idle.kinds()) == (TaskState.RUNNING, ["idle_warning"])

    idle.minutes(1)
    attempt = latest(idle.task)
    assert (idle.state, attempt.state) == (TaskState.STOPPING, AttemptState.STOPPING)
    assert (attempt.stop_target, attempt.stop_detail) == (TaskState.ABORTED, ENDS)
    assert not attempt.is_preempted
    assert not IdleWarning.objects.exists()
    entry = AuditEntry.objects.get(verb="task.stopped_idle")
    assert (entry.object_id, entry.reason) == (str(idle.task.pk), ENDS)

    idle.minutes(3)
    assert Event.objects.filter(kind="task.stopping").count() == 1
    end(attempt, code=0)
    idle.task.refresh_from_db()
    assert (idle.task.state, idle.task.state_detail) == (TaskState.ABORTED, ENDS)
    assert AuditEntry.objects.filter(verb="task.stopped_idle").count() == 1


@pytest.mark.parametrize("percent", [50, None])
def test_the_warning_is_withdrawn_when_it_is_not_known_to_be_idle_any_more(
    idle: IdleTask, percent: int | None
) -> None:
    idle.minutes(WARN + 2)
    idle.minutes(1, percent)

    assert not IdleWarning.objects.exists()
    assert idle.kinds() == ["idle_warning", "idle_warning_withdrawn"]

    idle.minutes(WARN)
    assert IdleWarning.objects.get().stop_at == idle.at + (STOP - WARN) * MINUTE
    idle.minutes(STOP - WARN)
    assert idle.state == TaskState.STOPPING


def test_a_gap_between_samples_is_no_idle_time(idle: IdleTask) -> None:
    idle.minutes(WARN - 5)
    idle.at += 9 * MINUTE
    idle.minutes(3)
    assert not IdleWarning.objects.exists(), "the gap counts for two minutes"

    idle.minutes(1)
    warning = IdleWarning.objects.get()
    assert warning.stop_at == idle.at + (STOP - WARN) * MINUTE

    idle.at += 12 * MINUTE
    idle.minutes(1)
    assert idle.state == TaskState.RUNNING
    warning.refresh_from_db()
    assert warning.stop_at == idle.at + (STOP - WARN - 2) * MINUTE, "later than was said at first"
    idle.minutes(STOP - WARN - 2)
    assert idle.state == TaskState.STOPPING


def test_after_a_long_gap_in_which_it_can_have_worked_the_time_starts_from_zero(
    idle: IdleTask,
) -> None:
    idle.minutes(STOP - 1)
    idle.at += 8 * 60 * MINUTE
    again = idle.at + MINUTE
    idle.minutes(STOP - 6)
    assert idle.state == TaskState.RUNNING
    stop_at = IdleWarning.objects.get().stop_at
    assert stop_at is not None
    assert stop_at >= again + (STOP - 2) * MINUTE

    idle.minutes(10)
    assert idle.state == TaskState.STOPPING
    assert idle.kinds() == ["idle_warning"]


def test_a_clock_that_jumps_stops_nothing_early(idle: IdleTask) -> None:
    idle.minutes(WARN)
    idle.at += 3 * 60 * MINUTE
    idle.minutes(3)
    idle.at -= 3 * 60 * MINUTE
    idle.minutes(3)

    assert idle.state == TaskState.RUNNING
    idle_rules_apply(now=idle.at + 60 * MINUTE)
    assert idle.state == TaskState.RUNNING, "a node that is silent now"


def test_a_gpu_of_which_nothing_is_known_keeps_the_task(idle: IdleTask) -> None:
    devices = HeldDevice.objects.order_by("device__index")
    idle.minutes(WARN + 10, only=devices[3].device.index)

    assert not IdleWarning.objects.exists()
    assert idle.state == TaskState.RUNNING


@pytest.mark.parametrize("change", ["simulated", "share"])
def test_simulated_gpus_and_shares_are_neither_warned_nor_stopped(
    idle: IdleTask, change: str
) -> None:
    idle.minutes(WARN)
    IdleWarning.objects.all().delete()
    if change == "simulated":
        Device.objects.update(is_simulated=True)
    else:
        HeldDevice.objects.update(milli=500)

    idle_rules_apply(now=idle.at)
    assert not IdleWarning.objects.exists()


def test_a_rule_that_changes_warns_again_and_one_that_goes_withdraws(
    idle: IdleTask, queue: Queue
) -> None:
    Queue.objects.filter(pk=queue.pk).update(idle_stop_minutes=None)
    idle.minutes(STOP + 60)
    assert idle.state == TaskState.RUNNING
    assert IdleWarning.objects.get().stop_at is None

    Queue.objects.filter(pk=queue.pk).update(idle_stop_minutes=STOP)
    idle.minutes(1)
    assert IdleWarning.objects.get().stop_at == idle.at + (STOP - WARN) * MINUTE
    assert idle.kinds() == ["idle_warning"] * 2

    Queue.objects.filter(pk=queue.pk).update(idle_warn_minutes=None, idle_stop_minutes=None)
    idle.minutes(STOP)
    assert idle.kinds() == [*["idle_warning"] * 2, "idle_warning_withdrawn"]
    assert idle.state == TaskState.RUNNING


@pytest.mark.parametrize("ends", [True, False])
def test_a_task_that_ends_meanwhile_is_left_alone(
    idle: IdleTask, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle.minutes(WARN)
    attempt = latest(idle.task)
    if ends:
        end(attempt, code=0, is_stop_asked=False)
    else:
        Attempt.objects.update(state=AttemptState.SUSPECT)
    idle.minutes(STOP)

    assert IdleWarning.objects.exists() is not ends
    assert idle.state == (TaskState.COMPLETED if ends else TaskState.RUNNING)
    assert idle.kinds() == ["idle_warning"]


def test_an_exempt_task_is_left_alone_until_the_exemption_ends(
    idle: IdleTask, root: User, alice: User, bob: User
) -> None:
    idle.minutes(WARN)
    for other in (alice, bob):
        with pytest.raises(NotAllowed):
            task_set_idle_exemption(actor=other, task=idle.task, is_exempt=True)

    for _ in range(2):
        task_set_idle_exemption(actor=root, task=idle.task, is_exempt=True)
    assert not IdleWarning.objects.exists(), "withdrawn at once"
    idle.minutes(STOP)
    assert (idle.state, idle.kinds()) == (
        TaskState.RUNNING,
        ["idle_warning", "idle_exempted", "idle_warning_withdrawn"],
    )
    entry = AuditEntry.objects.get(verb="task.idle_exempted")
    assert (entry.actor, entry.object_id) == ("root", str(idle.task.pk))

    task_set_idle_exemption(actor=root, task=idle.task, is_exempt=False)
    idle.minutes(1)
    assert IdleWarning.objects.get().stop_at == idle.at + (STOP - WARN) * MINUTE
    assert AuditEntry.objects.filter(verb="task.idle_exemption_ended").count() == 1
    idle.minutes(STOP - WARN)
    with pytest.raises(Conflict):
        task_set_idle_exemption(actor=root, task=idle.task, is_exempt=True)


def test_an_exemption_ends_when_the_task_leaves_the_queue(
    example: Example, queue: Queue, alice: User, root: User
) -> None:
    kept, dequeued = enqueue(alice, queue, 2)
    for task in (kept, dequeued):
        task_set_idle_exemption(actor=root, task=task, is_exempt=True)

    task_dequeue(actor=alice, task=dequeued)
    assert [one.task for one in IdleExemption.objects.all()] == [kept]
    with pytest.raises(NotAllowed):
        task_set_idle_exemption(actor=root, task=dequeued, is_exempt=True)

    profile_disconnect(actor=root, queue=queue)
    assert not IdleExemption.objects.exists()


def test_a_task_whose_queue_closed_while_it_ran_keeps_no_rule_and_no_exemption(
    idle: IdleTask, queue: Queue, root: User, bob: User
) -> None:
    task_set_idle_exemption(actor=root, task=idle.task, is_exempt=True)
    assign_perm("view_task", bob, idle.task)
    profile_disconnect(actor=root, queue=queue)
    assert IdleExemption.objects.exists()
    attempt = latest(idle.task)
    attempt_stop(attempt_id=attempt.pk, target=TaskState.QUEUED, detail="Its node leaves.")

    end(attempt)

    assert idle.state == TaskState.DRAFT
    assert not IdleExemption.objects.exists()
    assert not TaskUserPermission.objects.exists()


def test_a_run_that_is_cut_off_is_done_again_as_a_whole(
    idle: IdleTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    idle.minutes(WARN - 1)
    for place, minutes in (("attempt_record", 1), ("audit_record", STOP - WARN)):
        idle.minutes(minutes - 1)
        with monkeypatch.context() as patch:
            patch.setattr(f"apps.tasks.services.idle_rules.{place}", killed)
            with pytest.raises(KeyboardInterrupt):
                idle.minutes(1)
        assert idle.kinds() == (["idle_warning"] if minutes > 1 else [])
        assert idle.state == TaskState.RUNNING
        idle_rules_apply(now=idle.at)

    assert idle.kinds() == ["idle_warning"]
    assert Event.objects.filter(kind="task.stopping").count() == 1


def test_an_exempt_task_is_removed_like_any_other(idle: IdleTask, root: User) -> None:
    idle.minutes(WARN)
    task_set_idle_exemption(actor=root, task=idle.task, is_exempt=True)
    end(latest(idle.task), code=0, is_stop_asked=False)
    Attempt.objects.update(is_booked=True)
    DeviceUse.objects.update(is_booked=True)
    Member.objects.update(is_acknowledged=True, is_forgotten=True)

    assert ended_tasks_remove([idle.task.pk]) == 1
    assert not IdleExemption.objects.exists()


def test_a_run_without_rules_asks_little(
    idle: IdleTask,
    queue: Queue,
    django_assert_num_queries: Assert,
) -> None:
    Queue.objects.update(idle_warn_minutes=None, idle_stop_minutes=None)
    with django_assert_num_queries(2):
        idle_rules_apply(now=idle.at)


@pytest.fixture
def two(idle: IdleTask, queue: Queue, alice: User) -> tuple[Task, Task]:
    """The idle task and another one, in the order in which they are seen to."""
    [other] = enqueue(alice, queue)
    apply(*decided())
    begin(latest(other))
    Attempt.objects.update(allocated_at=BEGIN, started_at=BEGIN)
    Member.objects.update(started_at=BEGIN)
    first, second = sorted((idle.task, other), key=lambda task: latest(task).pk)
    return first, second


def test_one_attempt_that_fails_keeps_no_other_from_being_stopped(
    idle: IdleTask, two: tuple[Task, Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_for_the_first(attempt: Attempt, **words: Any) -> Any:
        if attempt.task_id == two[0].pk:
            raise RuntimeError("broken")
        return ask_to_stop(attempt, **words)

    monkeypatch.setattr("apps.tasks.services.idle_rules.ask_to_stop", fail_for_the_first)
    idle.minutes(STOP + 1)

    assert states([*two]) == [TaskState.RUNNING, TaskState.STOPPING]


@pytest.mark.parametrize("is_suspect", [True, False])
def test_one_of_which_nothing_is_known_takes_no_others_turn(
    idle: IdleTask,
    two: tuple[Task, Task],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_suspect: bool,
) -> None:
    monkeypatch.setattr("apps.tasks.services.idle_rules.MOST_AT_ONCE", 1)
    idle.minutes(WARN + 3)
    assert IdleWarning.objects.count() == 2
    if is_suspect:
        Attempt.objects.filter(task=two[0]).update(state=AttemptState.SUSPECT)
    else:
        Device.objects.filter(held__member__attempt__task=two[0]).update(is_simulated=True)
    idle.minutes(STOP - WARN + 3)

    assert latest(two[1]).state == AttemptState.STOPPING
