"""The pass through the database: what it admits, what it writes down, and that it is alone."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine import decide
from apps.allocation.models import PassRecord, PassState
from apps.allocation.scenarios import read_scenario
from apps.allocation.selectors import pass_snapshot
from apps.allocation.services import NEXT_LOCK, PASS_LOCK, SNAPSHOTS_KEPT, run_pass
from apps.events.models import Event
from apps.policies.models import LiveState
from apps.tasks.models import Attempt, HeldDevice, Member, ReasonChange, Task, TaskGroup
from apps.tasks.selectors.queue_order import queue_explanation
from apps.tasks.services.attempts.ends import attempt_end_unstarted
from apps.tasks.services.enqueue.submission import task_run_again
from apps.tasks.services.stop import task_abort
from tests.allocation.state import enqueue, make_node, states
from tests.people import Example
from tests.services.ports import wait_until
from tests.services.timeouts import scale_timeout


@pytest.fixture
def served(example: Example) -> Example:
    make_node(example.h100, name="h1")
    make_node(example.bare_metal, name="b1")
    return example


def test_the_worked_example_comes_out_as_the_contract_says(
    served: Example, alice: User, charlie: User
) -> None:
    dev = enqueue(alice, served.dev_queue, 4)
    research = enqueue(charlie, served.research_queue, 4)

    outcome = run_pass()

    assert (outcome.ran, outcome.placed, outcome.skipped) == (True, 4, 0)
    assert states(dev) == ["allocated", "allocated", "queued", "queued"]
    assert states(research) == ["allocated", "allocated", "queued", "queued"]
    pools = dict(Attempt.objects.values_list("task_id", "pool_id"))
    assert [pools[task.pk] for task in dev[:2]] == [served.bare_metal.pk] * 2
    assert [pools[task.pk] for task in research[:2]] == [served.h100.pk] * 2
    assert set(TaskGroup.objects.values_list("reason_code", flat=True)) == {"capacity"}
    assert set(TaskGroup.objects.values_list("head_id", flat=True)) == {dev[2].pk, research[2].pk}


def test_an_admission_is_written_down_in_attempt_ledger_and_log(
    served: Example, alice: User
) -> None:
    (task,) = enqueue(alice, served.dev_queue)

    run_pass()

    attempt = Attempt.objects.get(task=task)
    assert (attempt.generation, attempt.state, attempt.replicas) == (1, "allocated", 1)
    assert attempt.request == {"gpu": 4000}
    member = Member.objects.get(attempt=attempt)
    assert (member.pool_id, member.amounts) == (served.bare_metal.pk, {"gpu": 4000})
    assert member.released_at is None
    held = HeldDevice.objects.filter(member=member).order_by("device__index")
    assert [[one.device.index, one.milli] for one in held] == member.devices
    assert len(member.devices) == 4
    event = Event.objects.get(kind="task.allocated")
    assert (event.object_id, event.queue_id) == (str(task.pk), served.dev_queue.pk)
    assert event.data["tier"] == "reserved"


def test_a_second_pass_on_the_outcome_decides_nothing(
    served: Example, alice: User, charlie: User
) -> None:
    enqueue(alice, served.dev_queue, 4)
    enqueue(charlie, served.research_queue, 4)
    run_pass()
    reasons = list(ReasonChange.objects.order_by("id").values("task", "code", "blocker"))

    again = run_pass()

    assert (again.ran, again.placed) == (True, 0)
    assert list(ReasonChange.objects.order_by("id").values("task", "code", "blocker")) == reasons
    state = PassState.objects.get()
    assert (state.passes, state.idle_passes) == (2, 1)
    assert PassRecord.objects.count() == 1


def test_freed_devices_are_given_to_the_next_in_line(served: Example, alice: User) -> None:
    tasks = enqueue(alice, served.dev_queue, 5)
    run_pass()
    first = Attempt.objects.get(task=tasks[0])
    freed = list(HeldDevice.objects.filter(member__attempt=first).values_list("device", flat=True))
    task_abort(actor=alice, task=tasks[0])
    assert attempt_end_unstarted(attempt_id=first.pk)

    run_pass()

    taken = HeldDevice.objects.filter(member__attempt__task=tasks[4], released_at__isnull=True)
    assert sorted(taken.values_list("device", flat=True)) == sorted(freed)
    assert states(tasks) == ["aborted", "allocated", "allocated", "allocated", "allocated"]


def test_nothing_is_admitted_while_resource_management_is_off(served: Example, alice: User) -> None:
    tasks = enqueue(alice, served.dev_queue, 2)
    LiveState.objects.update(is_enabled=False)

    run_pass()

    assert states(tasks) == ["queued", "queued"]
    assert TaskGroup.objects.get().reason_code == "disabled"


def test_a_reason_gets_a_line_when_its_code_changes_and_not_for_new_numbers(
    example: Example, alice: User
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    run_pass()
    node = make_node(example.bare_metal, name="b1", gpus=2)
    run_pass()
    node.devices.filter(index=1).delete()
    run_pass()

    lines = ReasonChange.objects.filter(task=task).order_by("id").values_list("code", flat=True)

    assert list(lines) == ["no_server", "capacity"]
    details = TaskGroup.objects.get().reason["reasons"][0]["details"]
    assert 1000 in {detail.get("free") for detail in details}


def test_new_numbers_leave_the_time_since_which_a_reason_holds(
    example: Example, alice: User
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    node = make_node(example.bare_metal, name="b1", gpus=2)
    run_pass()
    since = TaskGroup.objects.get().reason_at
    before = TaskGroup.objects.get().reason
    node.devices.filter(index=1).delete()
    run_pass()

    task_group = TaskGroup.objects.get()

    assert task_group.reason != before
    assert task_group.reason_at == since
    # Aborted and enqueued again, it waits for the same as before, but only since then.
    task_abort(actor=alice, task=task)
    task = task_run_again(actor=alice, task=Task.objects.get())
    run_pass()
    found = queue_explanation(Task.objects.get())
    assert found is not None
    assert found.at is not None
    assert task.submitted_at is not None
    assert found.at >= task.submitted_at


def test_a_new_head_gets_its_own_line(served: Example, alice: User) -> None:
    LiveState.objects.update(is_enabled=False)
    first, second = enqueue(alice, served.dev_queue, 2)
    run_pass()
    task_abort(actor=alice, task=first)

    run_pass()

    lines = ReasonChange.objects.order_by("id").values_list("task_id", "code")
    assert list(lines) == [(first.pk, "disabled"), (second.pk, "disabled")]


def test_a_pass_that_fails_leaves_nothing_behind(
    served: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = enqueue(alice, served.dev_queue, 2)

    def fail(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("apps.allocation.services.apply_reasons", fail)
    with pytest.raises(OSError, match="disk is full"):
        run_pass()

    assert states(tasks) == ["queued", "queued"]
    assert not Attempt.objects.exists()
    assert not HeldDevice.objects.exists()


def test_the_stored_snapshot_is_a_scenario_that_gives_the_same_plan(
    served: Example, alice: User, charlie: User, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    enqueue(alice, served.dev_queue, 4)
    enqueue(charlie, served.research_queue, 4)
    run_pass()
    record = PassRecord.objects.get()
    text = pass_snapshot(record.pk)
    path = tmp_path / "pass.json"
    path.write_text(text)

    call_command("simulate", str(path))

    line = json.loads(capsys.readouterr().out)
    attempts = Attempt.objects.values_list("task_id", "pool__name")
    assert line["running"] == {str(task): pool for task, pool in attempts}
    plan = decide(read_scenario(text).snapshot)
    assert len(record.decisions["placed"]) == len(plan.placed) == 4


def test_only_the_last_snapshots_are_kept_and_old_passes_go(served: Example, alice: User) -> None:
    now = timezone.now()
    old = PassRecord.objects.create(at=now - timedelta(days=31), duration_ms=1)
    PassRecord.objects.bulk_create(
        PassRecord(at=now, duration_ms=1, snapshot=b"x") for _ in range(SNAPSHOTS_KEPT)
    )
    enqueue(alice, served.dev_queue)

    run_pass()

    assert not PassRecord.objects.filter(pk=old.pk).exists()
    assert PassRecord.objects.filter(snapshot__isnull=False).count() == SNAPSHOTS_KEPT
    assert PassRecord.objects.count() == SNAPSHOTS_KEPT + 1


def test_a_pass_makes_as_many_queries_however_much_waits(served: Example, alice: User) -> None:
    (task,) = enqueue(alice, served.dev_queue)
    run_pass()
    copies(task, 10)
    while run_pass().placed:
        pass

    with CaptureQueriesContext(connection) as few:
        run_pass()
    copies(task, 990)
    with CaptureQueriesContext(connection) as many:
        outcome = run_pass()

    assert outcome.placed == 0
    assert len(few) == len(many) <= 25


def copies(task: Task, count: int) -> None:
    names = ("queue_id", "task_group_id", "owner_id", "name")
    fields = {name: getattr(task, name) for name in names}
    Task.objects.bulk_create(
        Task(
            **fields,
            content=task.content,
            state="queued",
            created_at=task.created_at,
            changed_at=task.changed_at,
            submitted_at=task.submitted_at,
        )
        for _ in range(count)
    )


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_of_two_passes_at_once_one_leaves(served: Example) -> None:
    with held_lock(PASS_LOCK):
        assert run_pass().ran is False
    assert run_pass().ran is True


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_what_changed_during_a_pass_is_decided_right_after_it(served: Example) -> None:
    outcomes: list[bool] = []

    def wait_and_pass() -> None:
        try:
            outcomes.append(run_pass(waits=True).ran)
        finally:
            connections.close_all()

    waiting = threading.Thread(target=wait_and_pass)
    with held_lock(PASS_LOCK):
        waiting.start()
        wait_until(lambda: is_locked(NEXT_LOCK), what="the second pass waits")
        # Somebody waits already and has read nothing yet: a third has nothing to add.
        assert run_pass(waits=True).ran is False
        assert outcomes == []
    waiting.join(timeout=scale_timeout(30))

    assert outcomes == [True]
    assert not is_locked(NEXT_LOCK)


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_a_killed_pass_loses_its_lock_and_what_it_wrote(served: Example, alice: User) -> None:
    tasks = enqueue(alice, served.dev_queue, 2)
    with hanging_pass() as process:
        assert run_pass().ran is False
        process.send_signal(signal.SIGKILL)

        wait_until(lambda: not is_locked(PASS_LOCK), what="the lock is free")
        assert states(tasks) == ["queued", "queued"]
        assert run_pass().placed == 2

    assert states(tasks) == ["allocated", "allocated"]


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_a_stopped_pass_loses_its_lock_and_can_write_nothing_when_it_goes_on(
    served: Example, alice: User
) -> None:
    tasks = enqueue(alice, served.dev_queue, 2)
    with hanging_pass(silent_most_ms=500) as process:
        process.send_signal(signal.SIGSTOP)

        wait_until(lambda: not is_locked(PASS_LOCK), what="the lock is free")
        assert run_pass().placed == 2
        process.send_signal(signal.SIGCONT)
        assert process.stdin is not None
        process.stdin.close()

        assert process.wait(scale_timeout(30)) != 0
    assert Attempt.objects.count() == 2
    assert states(tasks) == ["allocated", "allocated"]


@contextmanager
def hanging_pass(silent_most_ms: int = 30_000) -> Iterator[subprocess.Popen[bytes]]:
    """A pass in another process that has written everything and does not commit."""
    at = connection.get_connection_params()
    url = f"postgresql://{at['user']}:{at['password']}@{at['host']}:{at['port']}/{at['dbname']}"
    process = subprocess.Popen(
        [sys.executable, "-c", HANGS_BEFORE_COMMIT, str(silent_most_ms)],
        env=os.environ | {"DATABASE_URL": url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        yield process
    finally:
        process.kill()
        process.wait()


HANGS_BEFORE_COMMIT = """
import os, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "rpm.settings"
django.setup()
from django.db import connection
from apps.allocation import services
from apps.tasks.models import Attempt

def hang(*args):
    assert Attempt.objects.count() == 2
    # Only now: on a busy machine the pass itself may be silent for as long.
    with connection.cursor() as cursor:
        name = "idle_in_transaction_session_timeout"
        cursor.execute("SELECT current_setting(%s)", [name])
        assert cursor.fetchone()[0] == f"{services.SILENT_MOST_MS // 1000}s"
        cursor.execute("SELECT set_config(%s, %s, true)", [name, sys.argv[1]])
    print("written", flush=True)
    # Not a signal: one that comes before the wait for it would be lost.
    sys.stdin.readline()

services._record = hang
services.run_pass()
"""


@contextmanager
def held_lock(number: int) -> Iterator[None]:
    """Another session that holds an advisory lock, as a running pass does."""
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [number])
        yield
        cursor.execute("SELECT pg_advisory_unlock(%s)", [number])
    other.close()


def is_locked(number: int) -> bool:
    """Whether any session of this database holds the advisory lock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database "
            "WHERE locktype = 'advisory' AND objid = %s AND granted "
            "AND datname = current_database()",
            [number],
        )
        return bool(cursor.fetchone()[0])
