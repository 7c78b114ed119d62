"""What happens to an attempt on its nodes, edge by edge."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.events.models import Event
from apps.policies.models import Queue
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Attempt, Task
from apps.tasks.services.attempts.ends import (
    attempt_end_unstarted,
    attempt_give_up,
    attempt_stop,
)
from apps.tasks.services.attempts.next_state import MemberResult
from apps.tasks.services.members.exits import (
    member_end_unsent,
    member_note_exit,
    members_acknowledge,
)
from apps.tasks.services.members.launch import (
    LaunchRecord,
    back_off_s,
    member_claim_start,
    member_confirm_start,
    member_keep_start,
    member_note_start,
    member_release_start,
)
from apps.tasks.services.stop import task_abort
from tests.people import Example
from tests.tasks.services.members import admitted, is_released, member_of, running, states_of

BOOT = LaunchRecord("boot")


def test_a_start_is_claimed_once(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)

    assert member_claim_start(member_id=member_of(attempt).pk, token="one")
    assert not member_claim_start(member_id=member_of(attempt).pk, token="one")

    assert states_of(attempt) == ("starting", "allocated")
    assert attempt.lock_token == "one"


def test_who_serves_the_node_now_takes_a_start_over_from_who_did(
    served: Example, alice: User
) -> None:
    member = member_of(admitted(alice, served))
    member_claim_start(member_id=member.pk, token="one")

    assert member_claim_start(member_id=member.pk, token="two")

    # The first one wakes up, and finds that it is not its start any more.
    assert not member_keep_start(member_id=member.pk, token="one", detail="")
    assert not member_confirm_start(member_id=member.pk, token="one", launching=BOOT)
    member_release_start(member_id=member.pk, token="one", delay_s=0, detail="old news")
    assert member_confirm_start(member_id=member.pk, token="two", launching=BOOT)


def test_a_start_that_may_have_arrived_stays_one_until_the_node_tells(
    served: Example, alice: User
) -> None:
    attempt = admitted(alice, served)
    member = member_of(attempt)
    member_claim_start(member_id=member.pk, token="t")
    member_confirm_start(member_id=member.pk, token="t", launching=BOOT)

    member_release_start(member_id=member.pk, token="t", delay_s=0, detail="cut")

    assert states_of(attempt) == ("starting", "allocated")
    assert (member_of(attempt).state, member_of(attempt).lock_token) == ("starting", "")
    assert member_claim_start(member_id=member.pk, token="t")


def test_a_start_that_fails_too_often_counts_as_a_try_that_failed(
    served: Example, alice: User
) -> None:
    attempt = admitted(alice, served)

    assert attempt_give_up(attempt_id=attempt.pk, detail="disk full")
    assert member_end_unsent(member_id=member_of(attempt).pk)

    assert states_of(attempt) == ("finished", "failed")
    assert Task.objects.get(pk=attempt.task_id).state_detail == "disk full"


def test_a_start_that_is_no_fault_of_the_task_costs_no_retry(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)
    member_claim_start(member_id=member_of(attempt).pk, token="t")

    member_note_exit(
        member_id=member_of(attempt).pk, ended=MemberResult(None, "gone", is_unfit=True)
    )

    assert states_of(attempt) == ("finished", "queued")
    assert Task.objects.get(pk=attempt.task_id).failures == 0


def test_a_member_that_runs_makes_its_task_run(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)
    at = timezone.now() - timedelta(seconds=3)
    member_claim_start(member_id=member_of(attempt).pk, token="t")

    assert member_note_start(member_id=member_of(attempt).pk, at=at)
    assert not member_note_start(member_id=member_of(attempt).pk, at=timezone.now())

    assert states_of(attempt) == ("running", "running")
    assert attempt.started_at == at
    assert Event.objects.filter(kind="task.running").count() == 1


@pytest.mark.parametrize(
    ("code", "want"),
    [
        pytest.param(0, "completed", id="code 0 completes"),
        pytest.param(7, "failed", id="another code fails"),
        pytest.param(None, "failed", id="no code fails"),
    ],
)
def test_the_end_of_a_member_ends_everything_at_once(
    served: Example, alice: User, code: int | None, want: str
) -> None:
    attempt = admitted(alice, served)
    member = running(attempt)

    assert member_note_exit(member_id=member.pk, ended=MemberResult(code, "its words"))
    assert not member_note_exit(member_id=member.pk, ended=MemberResult(0))

    assert states_of(attempt) == ("finished", want)
    assert (attempt.exit_code, is_released(attempt)) == (code, True)
    task = Task.objects.get(pk=attempt.task_id)
    assert (task.exit_code, task.ended_at == attempt.ended_at) == (code, True)
    assert task.state_detail == ("" if code == 0 else "its words")


def test_a_member_that_ends_before_anybody_saw_it_run_counts(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)
    member_claim_start(member_id=member_of(attempt).pk, token="t")

    member_note_exit(member_id=member_of(attempt).pk, ended=MemberResult(0))

    assert states_of(attempt) == ("finished", "completed")


def test_failures_are_tried_again_as_often_as_asked(served: Example, alice: User) -> None:
    attempt = admitted(alice, served, retries=1)
    member_note_exit(member_id=running(attempt).pk, ended=MemberResult(2))
    assert states_of(attempt) == ("finished", "queued")
    first = Task.objects.get(pk=attempt.task_id)
    assert (first.failures, first.submitted_at is not None) == (1, True)

    run_pass()
    again = Attempt.objects.get(task=attempt.task_id, generation=2)
    member_note_exit(member_id=running(again).pk, ended=MemberResult(2))

    assert states_of(again) == ("finished", "failed")


def test_a_start_that_fails_is_given_back_and_waits_before_the_next(
    served: Example, alice: User
) -> None:
    attempt = admitted(alice, served)
    member_claim_start(member_id=member_of(attempt).pk, token="t")
    before = timezone.now()

    member_release_start(member_id=member_of(attempt).pk, token="t", delay_s=40, detail="disk full")

    assert states_of(attempt) == ("allocated", "allocated")
    assert (attempt.start_failures, attempt.detail) == (1, "disk full")
    assert attempt.not_before is not None
    assert attempt.not_before >= before + timedelta(seconds=40)
    assert member_claim_start(member_id=member_of(attempt).pk, token="t")


def test_waiting_between_starts_doubles_up_to_ten_minutes() -> None:
    assert [back_off_s(count) for count in (0, 1, 2, 3, 20, 10_000)] == [5, 10, 20, 40, 600, 600]


def test_a_stop_before_the_launch_needs_no_node(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)
    task_abort(actor=alice, task=attempt.task)
    assert states_of(attempt) == ("stopping", "stopping")

    assert not member_claim_start(member_id=member_of(attempt).pk, token="t")
    assert attempt_end_unstarted(attempt_id=attempt.pk)

    assert states_of(attempt) == ("finished", "aborted")
    assert is_released(attempt)
    assert not attempt_end_unstarted(attempt_id=attempt.pk)


def test_a_stop_during_the_launch_is_not_overtaken_by_it(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)
    member = member_of(attempt)
    member_claim_start(member_id=member.pk, token="t")
    assert member_confirm_start(member_id=member.pk, token="t", launching=BOOT)

    task_abort(actor=alice, task=attempt.task)

    assert not member_confirm_start(member_id=member.pk, token="t", launching=BOOT)
    # The node may have it by now: only the node's word ends it.
    assert not attempt_end_unstarted(attempt_id=attempt.pk)
    assert not is_released(attempt)
    member_note_exit(member_id=member.pk, ended=MemberResult(None, "Never started."))
    assert states_of(attempt) == ("finished", "aborted")


def test_a_start_that_arrives_after_the_stop_is_noted_and_still_stopped(
    served: Example, alice: User
) -> None:
    attempt = admitted(alice, served)
    member = member_of(attempt)
    member_claim_start(member_id=member.pk, token="t")
    task_abort(actor=alice, task=attempt.task)

    member_note_start(member_id=member.pk, at=timezone.now())

    assert states_of(attempt) == ("stopping", "stopping")
    assert attempt.started_at is not None
    member_note_exit(member_id=member.pk, ended=MemberResult(143))
    assert states_of(attempt) == ("finished", "aborted")


@pytest.mark.parametrize(
    ("on_node_loss", "is_restartable", "want"),
    [
        pytest.param("wait", True, "queued", id="runs again"),
        pytest.param("requeue", True, "queued", id="runs again after its lease"),
        pytest.param("fail", True, "failed", id="fails where the queue says so"),
        pytest.param("requeue", False, "failed", id="is not restartable"),
    ],
)
def test_work_that_is_lost_with_its_node(
    served: Example, alice: User, on_node_loss: str, is_restartable: bool, want: str
) -> None:
    Queue.objects.filter(pk=served.dev_queue.pk).update(on_node_loss=on_node_loss)
    attempt = admitted(alice, served, is_restartable=is_restartable)

    member_note_exit(member_id=running(attempt).pk, ended=MemberResult(None, "gone", is_lost=True))

    assert states_of(attempt) == ("lost", want)
    assert is_released(attempt)
    event = Event.objects.get(kind=f"task.{want}", data__cause="node_loss")
    assert event.object_id == str(attempt.task_id)
    assert Task.objects.get(pk=attempt.task_id).failures == 0


def test_news_of_an_older_generation_change_nothing(served: Example, alice: User) -> None:
    attempt = admitted(alice, served, retries=1)
    member = running(attempt)
    member_note_exit(member_id=member.pk, ended=MemberResult(2))
    run_pass()
    again = Attempt.objects.get(task=attempt.task_id, generation=2)

    assert not member_note_start(member_id=member.pk, at=timezone.now())
    assert not member_note_exit(member_id=member.pk, ended=MemberResult(0))

    assert states_of(again) == ("allocated", "allocated")


def test_only_results_that_are_stored_are_acknowledged(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)
    member = running(attempt)

    members_acknowledge([member.pk])
    assert not member_of(attempt).is_acknowledged
    member_note_exit(member_id=member.pk, ended=MemberResult(0))
    members_acknowledge([member.pk])

    assert member_of(attempt).is_acknowledged


def test_an_attempt_that_is_asked_to_stop_goes_where_it_was_sent(
    served: Example, alice: User
) -> None:
    attempt = admitted(alice, served)
    member = running(attempt)

    assert attempt_stop(attempt_id=attempt.pk, target=TaskState.FAILED, detail="time is over")
    assert not attempt_stop(attempt_id=attempt.pk, target=TaskState.QUEUED, detail="again")
    assert states_of(attempt) == ("stopping", "stopping")
    member_note_exit(member_id=member.pk, ended=MemberResult(143))

    assert states_of(attempt) == ("finished", "failed")
    assert Task.objects.get(pk=attempt.task_id).state_detail == "time is over"
