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
from apps.execution.protocol.answers import Clocks, LogPart, Report, ReportedMember
from apps.execution.protocol.requests import Member
from apps.execution.services.applying import LAUNCH_IN_FLIGHT, Reported
from apps.execution.services.reporting import (
    Asked,
    key_of,
    log_positions,
    members_of,
    report_apply,
)
from apps.nodes.models import Node
from apps.policies.models import Policy
from apps.tasks.models import Attempt, Holding, Task
from apps.tasks.services import logs
from apps.tasks.services.attempts import Ended, member_claim_start, member_exited, member_started
from apps.tasks.services.ending import task_abort
from tests.allocation.state import enqueue, make_node
from tests.cast import Example

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
    member_claim_start(holding_id=attempt.holdings.get().pk, token="t")
    attempt.refresh_from_db()
    return attempt


@pytest.fixture
def running(claimed: Attempt) -> Attempt:
    member_started(holding_id=claimed.holdings.get().pk, at=timezone.now())
    claimed.refresh_from_db()
    return claimed


@pytest.fixture
def stopping(running: Attempt, alice: User) -> Attempt:
    task_abort(actor=alice, task=Task.objects.get(pk=running.task_id))
    running.refresh_from_db()
    return running


def told(attempt: Attempt, state: str, **changes: object) -> ReportedMember:
    fields: dict[str, object] = {
        "task_id": str(attempt.task_id),
        "generation": attempt.generation,
        "rank": 0,
        "state": state,
        "is_stop_asked": False,
    }
    return ReportedMember(**(fields | changes))  # type: ignore[arg-type]  # fields by name


def hear(
    node: Node,
    *members: ReportedMember,
    boot: str = BOOT,
    asked_with: Iterable[Holding] | None = None,
    parts: tuple[LogPart, ...] = (),
    launching: tuple[int, ...] = (),
) -> Reported:
    node.refresh_from_db()
    holdings = members_of(node) if asked_with is None else asked_with
    clocks = Clocks(helper="1", boot_id=boot, uptime_s=100.0, wall_s=time.time())
    asked = Asked(holdings, launching=launching)
    return report_apply(node, Report("v", members, parts), clocks, asked)


def seen(attempt: Attempt) -> tuple[str, str]:
    attempt.refresh_from_db()
    return str(attempt.state), str(Task.objects.get(pk=attempt.task_id).state)


def claimed_at(attempt: Attempt, ago: timedelta) -> None:
    Attempt.objects.filter(pk=attempt.pk).update(not_before=timezone.now() - ago)


def test_what_never_ran_ends_by_the_report_once_no_launch_can_say_so(
    node: Node, claimed: Attempt
) -> None:
    """It stayed where it was for ever: its launch had been answered while it was being made."""
    never_ran = told(claimed, "exited", exit_code=None, error="its runtime is gone")
    launching = (claimed.holdings.get().pk,)

    assert hear(node, never_ran, launching=launching).acknowledged == ()
    assert seen(claimed)[0] == "starting"

    assert hear(node, never_ran).acknowledged == (never_ran.member,)
    assert seen(claimed) == ("finished", "failed")


def test_an_absent_launch_under_way_is_waited_for(node: Node, claimed: Attempt) -> None:
    claimed_at(claimed, LAUNCH_IN_FLIGHT - timedelta(seconds=5))

    assert hear(node) == Reported()

    assert seen(claimed) == ("starting", "allocated")


def test_an_absent_launch_whose_window_has_closed_is_given_back(
    node: Node, claimed: Attempt
) -> None:
    claimed_at(claimed, LAUNCH_IN_FLIGHT + timedelta(seconds=1))

    hear(node)

    assert seen(claimed) == ("allocated", "allocated")
    assert claimed.detail == "The launch got lost."


def test_what_was_never_sent_is_not_missed(node: Node, attempt: Attempt) -> None:
    Attempt.objects.update(allocated_at=timezone.now() - timedelta(hours=1))

    assert hear(node) == Reported()

    assert seen(attempt) == ("allocated", "allocated")
    assert attempt.start_failures == 0


def test_a_created_member_is_started_again_only_after_the_window(
    node: Node, claimed: Attempt
) -> None:
    hear(node, told(claimed, "created"))
    assert seen(claimed) == ("starting", "allocated")
    claimed_at(claimed, LAUNCH_IN_FLIGHT + timedelta(seconds=1))

    hear(node, told(claimed, "created"))

    assert seen(claimed) == ("allocated", "allocated")


def test_a_start_that_the_node_tells_is_noted(node: Node, claimed: Attempt) -> None:
    at = timezone.now() - timedelta(seconds=20)

    hear(node, told(claimed, "running", started_wall_s=at.timestamp()))

    assert seen(claimed) == ("running", "running")
    assert claimed.started_at is not None
    assert abs(claimed.started_at - at) < timedelta(milliseconds=1)


def test_a_start_in_the_future_of_a_wrong_clock_is_now(node: Node, claimed: Attempt) -> None:
    ahead = timezone.now() + timedelta(hours=3)

    hear(node, told(claimed, "running", started_wall_s=ahead.timestamp()))

    claimed.refresh_from_db()
    assert claimed.started_at is not None
    assert claimed.started_at <= timezone.now()


@pytest.mark.parametrize("fixture", ["claimed", "running", "stopping"])
def test_a_result_is_stored_and_then_acknowledged(
    node: Node, fixture: str, request: pytest.FixtureRequest
) -> None:
    attempt: Attempt = request.getfixturevalue(fixture)

    result = hear(node, told(attempt, "exited", exit_code=5, started_wall_s=1.0, error="oh"))

    want = "aborted" if fixture == "stopping" else "failed"
    assert seen(attempt) == ("finished", want)
    assert (attempt.exit_code, attempt.detail) == (5, "oh")
    assert result.acknowledged == (key_of(attempt.holdings.get()),)


def test_the_result_waits_for_the_last_byte_of_the_log(node: Node, running: Attempt) -> None:
    end = told(running, "exited", exit_code=0, log_bytes=6)
    part = LogPart(str(running.task_id), 1, 0, 0, b"abc")

    assert hear(node, end, parts=(part,)).acknowledged == ()
    assert seen(running) == ("running", "running")
    hear(node, end, parts=(LogPart(str(running.task_id), 1, 0, 3, b"def"),))

    assert seen(running) == ("finished", "completed")
    assert running.log_bytes == 6


def test_of_each_member_one_piece_of_its_log_is_taken(node: Node, running: Attempt) -> None:
    pieces = [LogPart(str(running.task_id), 1, 0, at, b"abc") for at in (0, 3, 6)]

    hear(node, told(running, "running"), parts=tuple(pieces))
    running.refresh_from_db()
    assert running.log_bytes == 3


def test_a_log_beyond_the_bound_does_not_keep_the_result_back(
    node: Node, running: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("applying", "reporting"):
        monkeypatch.setattr(f"apps.execution.services.{module}.MOST_BYTES", 3)
    monkeypatch.setattr(logs, "MOST_BYTES", 3)
    end = told(running, "exited", exit_code=0, log_bytes=900)
    hear(node, end, parts=(LogPart(str(running.task_id), 1, 0, 0, b"abc"),))
    (position,) = log_positions(members_of(node))
    assert position.offset == 3

    hear(node, end, parts=(LogPart(str(running.task_id), 1, 0, 3, b"d"),))

    assert seen(running) == ("finished", "completed")
    assert (running.log_bytes, running.log_is_cut) == (3, True)


def test_a_running_member_that_is_gone_failed(node: Node, running: Attempt) -> None:
    hear(node)

    assert seen(running) == ("finished", "failed")
    assert running.detail.startswith("container_lost")


def test_a_member_that_began_after_the_report_was_made_is_not_gone(
    node: Node, claimed: Attempt
) -> None:
    before = members_of(node)
    member_started(holding_id=claimed.holdings.get().pk, at=timezone.now())

    hear(node, asked_with=before)

    assert seen(claimed) == ("running", "running")


def test_what_ran_before_a_new_boot_is_lost_and_waits_again(node: Node, running: Attempt) -> None:
    hear(node, boot="boot-2")

    assert seen(running) == ("lost", "queued")
    node.refresh_from_db()
    assert node.boot_id == "boot-2"


def test_a_running_member_that_the_node_never_started_is_killed_and_waits_again(
    node: Node, running: Attempt
) -> None:
    result = hear(node, told(running, "created"))

    assert seen(running)[1] == "queued"
    assert result.to_stop == (key_of(running.holdings.get()),)


def test_a_running_member_that_runs_costs_nothing(node: Node, running: Attempt) -> None:
    assert hear(node, told(running, "running", started_wall_s=1.0)) == Reported()

    assert seen(running) == ("running", "running")


def test_a_stopped_member_that_is_gone_has_stopped(node: Node, stopping: Attempt) -> None:
    hear(node)

    assert seen(stopping) == ("finished", "aborted")


def test_a_stop_during_the_launch_is_not_over_before_the_node_said_so(
    node: Node, claimed: Attempt, alice: User
) -> None:
    task_abort(actor=alice, task=Task.objects.get(pk=claimed.task_id))

    hear(node)

    assert seen(claimed) == ("stopping", "stopping")


def test_a_created_member_that_is_to_stop_is_killed(node: Node, stopping: Attempt) -> None:
    assert hear(node, told(stopping, "created")).to_stop == (key_of(stopping.holdings.get()),)


@pytest.mark.parametrize("state", ["created", "running"])
def test_what_is_over_in_the_database_is_killed_on_the_node(
    node: Node, running: Attempt, state: str
) -> None:
    member = key_of(running.holdings.get())
    member_exited(holding_id=running.holdings.get().pk, ended=Ended(0))

    assert hear(node, told(running, state)).to_stop == (member,)


def test_a_result_that_is_stored_is_acknowledged_again_until_the_node_has_dropped_it(
    node: Node, running: Attempt
) -> None:
    end = told(running, "exited", exit_code=0)
    member = key_of(running.holdings.get())

    assert hear(node, end).acknowledged == (member,)
    assert hear(node, end).acknowledged == (member,)
    assert not running.holdings.get().is_acknowledged
    hear(node)

    assert running.holdings.get().is_acknowledged
    # And should it turn up once more, it is still known.
    assert hear(node, end) == Reported(acknowledged=(member,))


def test_an_older_generation_is_killed_and_its_result_dropped(
    node: Node, running: Attempt, alice: User
) -> None:
    Task.objects.update(retries=1)
    member_exited(holding_id=running.holdings.get().pk, ended=Ended(1))
    run_pass()
    old = key_of(running.holdings.get())

    assert hear(node, told(running, "running")).to_stop == (old,)
    assert hear(node, told(running, "exited", exit_code=0)).acknowledged == (old,)

    assert Task.objects.get(pk=running.task_id).state == "allocated"


def test_what_the_database_does_not_know_is_left_alone_and_told(node: Node) -> None:
    stranger = ReportedMember("no-uuid", 1, 0, "running", is_stop_asked=False)
    restored = ReportedMember(
        "0192f0c1-2345-7abc-8def-0123456789ab", 3, 0, "exited", is_stop_asked=False
    )

    result = hear(node, stranger, restored)

    assert result == Reported(unknown=(Member(restored.task_id, 3, 0), Member("no-uuid", 1, 0)))


def test_a_quiet_node_with_64_tasks_costs_as_many_queries_as_an_empty_one(
    example: Example, alice: User
) -> None:
    Policy.objects.filter(pk=example.dev.pk).get().amounts.all().delete()
    example.bare_metal.capacity = {"gpu": "256"}
    example.bare_metal.save()
    node = make_node(example.bare_metal, name="large", gpus=256, boot_id=BOOT)
    with CaptureQueriesContext(connection) as empty:
        hear(node)
    enqueue(alice, example.dev_queue, 64)
    run_pass()
    Holding.objects.update(state="running", started_at=timezone.now())
    Attempt.objects.update(state="starting")
    Attempt.objects.update(state="running")
    attempts = list(Attempt.objects.all())
    assert len(attempts) == 64

    with CaptureQueriesContext(connection) as busy:
        result = hear(node, *(told(one, "running", started_wall_s=1.0) for one in attempts))

    assert result == Reported()
    assert len(busy) == len(empty)


def test_one_exchange_asks_for_as_many_logs_as_the_node_reads_ended_ones_first() -> None:
    attempt = Attempt(generation=1)
    holdings = [
        Holding(pk=n, attempt=attempt, rank=n, state="running", log_offset=n) for n in range(1500)
    ]
    holdings.append(Holding(pk=9999, attempt=attempt, rank=9999, state="exited", log_offset=77))

    wanted = log_positions(holdings)

    assert len(wanted) == 1000
    assert [one.rank for one in wanted[:3]] == [9999, 0, 1]


def test_work_that_another_node_row_has_is_never_unknown(
    node: Node, running: Attempt, example: Example
) -> None:
    """The same machine under a second name ended the first name's work after ten minutes."""
    second = make_node(example.bare_metal, name="b2", boot_id=BOOT)

    result = hear(second, told(running, "running"))

    assert result == Reported()
    assert seen(running) == ("running", "running")


def test_what_a_removed_node_has_left_on_its_machine_is_ended_under_the_new_name(
    node: Node, running: Attempt, example: Example
) -> None:
    member_exited(holding_id=running.holdings.get().pk, ended=Ended(None, is_lost=True))
    Node.objects.filter(pk=node.pk).update(removed_at=timezone.now())
    second = make_node(example.bare_metal, name="b1", boot_id=BOOT)

    result = hear(second, told(running, "running"))

    assert (result.to_stop, result.unknown) == ((told(running, "running").member,), ())
