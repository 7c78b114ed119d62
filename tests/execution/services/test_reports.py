"""What a node reports, and what becomes of it in the database: every cell of the table."""

import time
from collections.abc import Iterable
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.protocol.answers import Clocks, LogChunk, ReportedMember, SyncReport
from apps.execution.protocol.requests import MemberKey
from apps.execution.services.applier import LAUNCH_IN_FLIGHT, ReportOutcome
from apps.execution.services.reports import (
    ReportContext,
    log_positions,
    member_key,
    members_of,
    report_apply,
)
from apps.nodes.models import Node
from apps.policies.models import Policy
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services.attempts.next_state import MemberResult
from apps.tasks.services.members import logs
from apps.tasks.services.members.exits import member_note_exit
from apps.tasks.services.members.launch import member_claim_start, member_note_start
from apps.tasks.services.stop import task_abort
from tests.allocation.state import enqueue, make_node
from tests.people import Example

BOOT = "boot-1"


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.bare_metal, name="b1", boot_id=BOOT)


@pytest.fixture
def attempt(node: Node, example: Example, alice: User) -> Attempt:
    enqueue(alice, example.dev_queue)
    run_pass()
    return Attempt.objects.get()


@pytest.fixture
def claimed(attempt: Attempt) -> Attempt:
    member_claim_start(member_id=attempt.members.get().pk, token="t")
    attempt.refresh_from_db()
    return attempt


@pytest.fixture
def running(claimed: Attempt) -> Attempt:
    member_note_start(member_id=claimed.members.get().pk, at=timezone.now())
    claimed.refresh_from_db()
    return claimed


@pytest.fixture
def stopping(running: Attempt, alice: User) -> Attempt:
    task_abort(actor=alice, task=Task.objects.get(pk=running.task_id))
    running.refresh_from_db()
    return running


def member_report(attempt: Attempt, state: str, **changes: object) -> ReportedMember:
    fields: dict[str, object] = {
        "task_id": str(attempt.task_id),
        "generation": attempt.generation,
        "rank": 0,
        "is_stop_asked": False,
    }
    return ReportedMember(state=state, **(fields | changes))  # type: ignore[arg-type]  # fields by name


def apply_report(
    node: Node,
    *reported: ReportedMember,
    boot: str = BOOT,
    asked_with: Iterable[Member] | None = None,
    parts: tuple[LogChunk, ...] = (),
    launching: tuple[int, ...] = (),
) -> ReportOutcome:
    node.refresh_from_db()
    members = members_of(node) if asked_with is None else asked_with
    clocks = Clocks(helper="1", boot_id=boot, uptime_s=100.0, wall_s=time.time())
    context = ReportContext(members, launching=launching)
    return report_apply(node, SyncReport("v", reported, parts), clocks, context)


def states_of(attempt: Attempt) -> tuple[str, str]:
    attempt.refresh_from_db()
    return str(attempt.state), str(Task.objects.get(pk=attempt.task_id).state)


def claimed_at(attempt: Attempt, ago: timedelta) -> None:
    Attempt.objects.filter(pk=attempt.pk).update(not_before=timezone.now() - ago)


def test_what_never_ran_ends_by_the_report_once_no_launch_can_say_so(
    node: Node, claimed: Attempt
) -> None:
    """It stayed where it was for ever: its launch had been answered while it was being made."""
    never_ran = member_report(claimed, "exited", exit_code=None, error="its runtime is gone")
    launching = (claimed.members.get().pk,)

    assert apply_report(node, never_ran, launching=launching).acknowledged == ()
    assert states_of(claimed)[0] == "starting"

    assert apply_report(node, never_ran).acknowledged == (never_ran.member,)
    assert states_of(claimed) == ("finished", "failed")


def test_an_absent_launch_under_way_is_waited_for(node: Node, claimed: Attempt) -> None:
    claimed_at(claimed, LAUNCH_IN_FLIGHT - timedelta(seconds=5))

    assert apply_report(node) == ReportOutcome()

    assert states_of(claimed) == ("starting", "allocated")


def test_an_absent_launch_whose_window_has_closed_is_given_back(
    node: Node, claimed: Attempt
) -> None:
    claimed_at(claimed, LAUNCH_IN_FLIGHT + timedelta(seconds=1))
    # While its image is being fetched it is not lost.
    apply_report(node, launching=(claimed.members.get().pk,))
    assert states_of(claimed) == ("starting", "allocated")

    apply_report(node)

    assert states_of(claimed) == ("allocated", "allocated")
    assert claimed.detail == "The launch got lost."


def test_what_was_never_sent_is_not_missed(node: Node, attempt: Attempt) -> None:
    Attempt.objects.update(allocated_at=timezone.now() - timedelta(hours=1))

    assert apply_report(node) == ReportOutcome()

    assert states_of(attempt) == ("allocated", "allocated")
    assert attempt.start_failures == 0


def test_a_created_member_is_started_again_only_after_the_window(
    node: Node, claimed: Attempt
) -> None:
    apply_report(node, member_report(claimed, "created"))
    assert states_of(claimed) == ("starting", "allocated")
    claimed_at(claimed, LAUNCH_IN_FLIGHT + timedelta(seconds=1))

    apply_report(node, member_report(claimed, "created"))

    assert states_of(claimed) == ("allocated", "allocated")


def test_a_start_that_the_node_tells_is_noted(node: Node, claimed: Attempt) -> None:
    at = timezone.now() - timedelta(seconds=20)

    apply_report(node, member_report(claimed, "running", started_wall_s=at.timestamp()))

    assert states_of(claimed) == ("running", "running")
    assert claimed.started_at is not None
    assert abs(claimed.started_at - at) < timedelta(milliseconds=1)


def test_a_start_in_the_future_of_a_wrong_clock_is_now(node: Node, claimed: Attempt) -> None:
    ahead = timezone.now() + timedelta(hours=3)

    apply_report(node, member_report(claimed, "running", started_wall_s=ahead.timestamp()))

    claimed.refresh_from_db()
    assert claimed.started_at is not None
    assert claimed.started_at <= timezone.now()


@pytest.mark.parametrize("fixture", ["claimed", "running", "stopping"])
def test_a_result_is_stored_and_then_acknowledged(
    node: Node, fixture: str, request: pytest.FixtureRequest
) -> None:
    attempt: Attempt = request.getfixturevalue(fixture)

    result = apply_report(
        node, member_report(attempt, "exited", exit_code=5, started_wall_s=1.0, error="oh")
    )

    want = "aborted" if fixture == "stopping" else "failed"
    assert states_of(attempt) == ("finished", want)
    assert (attempt.exit_code, attempt.detail) == (5, "oh")
    assert result.acknowledged == (member_key(attempt.members.get()),)


def test_the_result_waits_for_the_last_byte_of_the_log(node: Node, running: Attempt) -> None:
    end = member_report(running, "exited", exit_code=0, log_bytes=6)
    part = LogChunk(str(running.task_id), 1, 0, 0, b"abc")

    assert apply_report(node, end, parts=(part,)).acknowledged == ()
    assert states_of(running) == ("running", "running")
    apply_report(node, end, parts=(LogChunk(str(running.task_id), 1, 0, 3, b"def"),))

    assert states_of(running) == ("finished", "completed")
    assert running.log_bytes == 6


def test_of_each_member_one_piece_of_its_log_is_taken(node: Node, running: Attempt) -> None:
    pieces = [LogChunk(str(running.task_id), 1, 0, at, b"abc") for at in (0, 3, 6)]

    apply_report(node, member_report(running, "running"), parts=tuple(pieces))
    running.refresh_from_db()
    assert running.log_bytes == 3


def test_a_log_beyond_the_bound_does_not_keep_the_result_back(
    node: Node, running: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("applier", "reports"):
        monkeypatch.setattr(f"apps.execution.services.{module}.MOST_BYTES", 3)
    monkeypatch.setattr(logs, "MOST_BYTES", 3)
    end = member_report(running, "exited", exit_code=0, log_bytes=900)
    apply_report(node, end, parts=(LogChunk(str(running.task_id), 1, 0, 0, b"abc"),))
    (position,) = log_positions(members_of(node))
    assert position.offset == 3

    apply_report(node, end, parts=(LogChunk(str(running.task_id), 1, 0, 3, b"d"),))

    assert states_of(running) == ("finished", "completed")
    assert (running.log_bytes, running.log_is_cut) == (3, True)


def test_a_running_member_that_is_gone_failed(node: Node, running: Attempt) -> None:
    apply_report(node)

    assert states_of(running) == ("finished", "failed")
    assert running.detail.startswith("container_lost")


def test_a_member_that_began_after_the_report_was_made_is_not_gone(
    node: Node, claimed: Attempt
) -> None:
    before = members_of(node)
    member_note_start(member_id=claimed.members.get().pk, at=timezone.now())

    apply_report(node, asked_with=before)

    assert states_of(claimed) == ("running", "running")


def test_what_ran_before_a_new_boot_is_lost_and_waits_again(node: Node, running: Attempt) -> None:
    apply_report(node, boot="boot-2")

    assert states_of(running) == ("lost", "queued")
    node.refresh_from_db()
    assert node.boot_id == "boot-2"


def test_a_running_member_that_the_node_never_started_is_killed_and_waits_again(
    node: Node, running: Attempt
) -> None:
    result = apply_report(node, member_report(running, "created"))

    assert states_of(running)[1] == "queued"
    assert result.to_stop == (member_key(running.members.get()),)


def test_a_running_member_that_runs_costs_nothing(node: Node, running: Attempt) -> None:
    assert (
        apply_report(node, member_report(running, "running", started_wall_s=1.0)) == ReportOutcome()
    )

    assert states_of(running) == ("running", "running")


def test_a_stopped_member_that_is_gone_has_stopped(node: Node, stopping: Attempt) -> None:
    apply_report(node)

    assert states_of(stopping) == ("finished", "aborted")


def test_a_stop_during_the_launch_is_not_over_before_the_node_said_so(
    node: Node, claimed: Attempt, alice: User
) -> None:
    task_abort(actor=alice, task=Task.objects.get(pk=claimed.task_id))

    apply_report(node)

    assert states_of(claimed) == ("stopping", "stopping")


def test_a_created_member_that_is_to_stop_is_killed(node: Node, stopping: Attempt) -> None:
    assert apply_report(node, member_report(stopping, "created")).to_stop == (
        member_key(stopping.members.get()),
    )


@pytest.mark.parametrize("state", ["created", "running"])
def test_what_is_over_in_the_database_is_killed_on_the_node(
    node: Node, running: Attempt, state: str
) -> None:
    member = member_key(running.members.get())
    member_note_exit(member_id=running.members.get().pk, ended=MemberResult(0))

    assert apply_report(node, member_report(running, state)).to_stop == (member,)


def test_a_result_that_is_stored_is_acknowledged_again_until_the_node_has_dropped_it(
    node: Node, running: Attempt
) -> None:
    end = member_report(running, "exited", exit_code=0)
    member = member_key(running.members.get())

    assert apply_report(node, end).acknowledged == (member,)
    assert apply_report(node, end).acknowledged == (member,)
    assert not running.members.get().is_acknowledged
    apply_report(node)

    assert running.members.get().is_acknowledged
    # And should it turn up once more, it is still known.
    assert apply_report(node, end) == ReportOutcome(acknowledged=(member,))


def test_an_older_generation_is_killed_and_its_result_dropped(
    node: Node, running: Attempt, alice: User
) -> None:
    Task.objects.update(retries=1)
    member_note_exit(member_id=running.members.get().pk, ended=MemberResult(1))
    run_pass()
    old = member_key(running.members.get())

    assert apply_report(node, member_report(running, "running")).to_stop == (old,)
    assert apply_report(node, member_report(running, "exited", exit_code=0)).acknowledged == (old,)

    assert Task.objects.get(pk=running.task_id).state == "allocated"


def test_what_the_database_does_not_know_is_left_alone_and_recorded(node: Node) -> None:
    foreign = ReportedMember("no-uuid", 1, 0, "running", is_stop_asked=False)
    restored = ReportedMember(
        "0192f0c1-2345-7abc-8def-0123456789ab", 3, 0, "exited", is_stop_asked=False
    )

    result = apply_report(node, foreign, restored)

    assert result == ReportOutcome(
        unknown=(MemberKey(restored.task_id, 3, 0), MemberKey("no-uuid", 1, 0))
    )


def test_a_quiet_node_with_64_tasks_costs_as_many_queries_as_an_empty_one(
    example: Example, alice: User
) -> None:
    Policy.objects.filter(pk=example.dev.pk).get().amounts.all().delete()
    example.bare_metal.capacity = {"gpu": "256"}
    example.bare_metal.save()
    node = make_node(example.bare_metal, name="large", gpus=256, boot_id=BOOT)
    with CaptureQueriesContext(connection) as empty:
        apply_report(node)
    enqueue(alice, example.dev_queue, 64)
    run_pass()
    Member.objects.update(state="running", started_at=timezone.now())
    Attempt.objects.update(state="starting")
    Attempt.objects.update(state="running")
    attempts = list(Attempt.objects.all())
    assert len(attempts) == 64

    with CaptureQueriesContext(connection) as busy:
        result = apply_report(
            node, *(member_report(one, "running", started_wall_s=1.0) for one in attempts)
        )

    assert result == ReportOutcome()
    assert len(busy) == len(empty)


def test_work_that_another_node_row_has_is_never_unknown(
    node: Node, running: Attempt, example: Example
) -> None:
    """The same machine under a second name ended the first name's work after ten minutes."""
    second = make_node(example.bare_metal, name="b2", boot_id=BOOT)

    result = apply_report(second, member_report(running, "running"))

    assert result == ReportOutcome()
    assert states_of(running) == ("running", "running")


def test_what_a_removed_node_has_left_on_its_machine_is_ended_under_the_new_name(
    node: Node, running: Attempt, example: Example
) -> None:
    member_note_exit(member_id=running.members.get().pk, ended=MemberResult(None, is_lost=True))
    Node.objects.filter(pk=node.pk).update(removed_at=timezone.now())
    second = make_node(example.bare_metal, name="b1", boot_id=BOOT)

    result = apply_report(second, member_report(running, "running"))

    assert (result.to_stop, result.unknown) == ((member_report(running, "running").member,), ())
