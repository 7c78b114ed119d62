"""What happens to an attempt on its nodes, edge by edge."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.events.models import Event
from apps.policies.models import Queue
from apps.tasks.models import Attempt, Task
from apps.tasks.services.attempts import (
    Ended,
    Launching,
    attempt_end_unstarted,
    attempt_give_up,
    attempt_stop,
    back_off_s,
    member_claim_start,
    member_confirm_start,
    member_end_unsent,
    member_exited,
    member_keep_start,
    member_release_start,
    member_started,
    members_acknowledged,
)
from apps.tasks.services.ending import task_abort
from apps.tasks.states import TaskState
from tests.cast import Example
from tests.tasks.services.members import admitted, is_released, member, running, seen

BOOT = Launching("boot")


def test_a_start_is_claimed_once(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)

    assert member_claim_start(holding_id=member(attempt).pk, token="one")
    assert not member_claim_start(holding_id=member(attempt).pk, token="one")

    assert seen(attempt) == ("starting", "allocated")
    assert attempt.lock_token == "one"


def test_who_serves_the_node_now_takes_a_start_over_from_who_did(
    served: Example, alice: User
) -> None:
    holding = member(admitted(alice, served))
    member_claim_start(holding_id=holding.pk, token="one")

    assert member_claim_start(holding_id=holding.pk, token="two")

    # The first one wakes up, and finds that it is not its start any more.
    assert not member_keep_start(holding_id=holding.pk, token="one", detail="")
    assert not member_confirm_start(holding_id=holding.pk, token="one", launching=BOOT)
    member_release_start(holding_id=holding.pk, token="one", delay_s=0, detail="old news")
    assert member_confirm_start(holding_id=holding.pk, token="two", launching=BOOT)


def test_a_start_that_may_have_arrived_stays_one_until_the_node_tells(
    served: Example, alice: User
) -> None:
    attempt = admitted(alice, served)
    holding = member(attempt)
    member_claim_start(holding_id=holding.pk, token="t")
    member_confirm_start(holding_id=holding.pk, token="t", launching=BOOT)

    member_release_start(holding_id=holding.pk, token="t", delay_s=0, detail="cut")

    assert seen(attempt) == ("starting", "allocated")
    assert (member(attempt).state, member(attempt).lock_token) == ("starting", "")
    assert member_claim_start(holding_id=holding.pk, token="t")


def test_a_start_that_fails_too_often_counts_as_a_try_that_failed(
    served: Example, alice: User
) -> None:
    attempt = admitted(alice, served)

    assert attempt_give_up(attempt_id=attempt.pk, detail="disk full")
    assert member_end_unsent(holding_id=member(attempt).pk)

    assert seen(attempt) == ("finished", "failed")
    assert Task.objects.get(pk=attempt.task_id).state_detail == "disk full"


def test_a_start_that_is_no_fault_of_the_task_costs_no_retry(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)
    member_claim_start(holding_id=member(attempt).pk, token="t")

    member_exited(holding_id=member(attempt).pk, ended=Ended(None, "gone", is_unfit=True))

    assert seen(attempt) == ("finished", "queued")
    assert Task.objects.get(pk=attempt.task_id).failures == 0


def test_a_member_that_runs_makes_its_task_run(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)
    at = timezone.now() - timedelta(seconds=3)
    member_claim_start(holding_id=member(attempt).pk, token="t")

    assert member_started(holding_id=member(attempt).pk, at=at)
    assert not member_started(holding_id=member(attempt).pk, at=timezone.now())

    assert seen(attempt) == ("running", "running")
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
    holding = running(attempt)

    assert member_exited(holding_id=holding.pk, ended=Ended(code, "its words"))
    assert not member_exited(holding_id=holding.pk, ended=Ended(0))

    assert seen(attempt) == ("finished", want)
    assert (attempt.exit_code, is_released(attempt)) == (code, True)
    task = Task.objects.get(pk=attempt.task_id)
    assert (task.exit_code, task.ended_at == attempt.ended_at) == (code, True)
    assert task.state_detail == ("" if code == 0 else "its words")


def test_a_member_that_ends_before_anybody_saw_it_run_counts(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)
    member_claim_start(holding_id=member(attempt).pk, token="t")

    member_exited(holding_id=member(attempt).pk, ended=Ended(0))

    assert seen(attempt) == ("finished", "completed")


def test_failures_are_tried_again_as_often_as_asked(served: Example, alice: User) -> None:
    attempt = admitted(alice, served, retries=1)
    member_exited(holding_id=running(attempt).pk, ended=Ended(2))
    assert seen(attempt) == ("finished", "queued")
    first = Task.objects.get(pk=attempt.task_id)
    assert (first.failures, first.submitted_at is not None) == (1, True)

    run_pass()
    again = Attempt.objects.get(task=attempt.task_id, generation=2)
    member_exited(holding_id=running(again).pk, ended=Ended(2))

    assert seen(again) == ("finished", "failed")


def test_a_start_that_fails_is_given_back_and_waits_before_the_next(
    served: Example, alice: User
) -> None:
    attempt = admitted(alice, served)
    member_claim_start(holding_id=member(attempt).pk, token="t")
    before = timezone.now()

    member_release_start(holding_id=member(attempt).pk, token="t", delay_s=40, detail="disk full")

    assert seen(attempt) == ("allocated", "allocated")
    assert (attempt.start_failures, attempt.detail) == (1, "disk full")
    assert attempt.not_before is not None
    assert attempt.not_before >= before + timedelta(seconds=40)
    assert member_claim_start(holding_id=member(attempt).pk, token="t")


def test_waiting_between_starts_doubles_up_to_ten_minutes() -> None:
    assert [back_off_s(count) for count in (0, 1, 2, 3, 20, 10_000)] == [5, 10, 20, 40, 600, 600]


def test_a_stop_before_the_launch_needs_no_node(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)
    task_abort(actor=alice, task=attempt.task)
    assert seen(attempt) == ("stopping", "stopping")

    assert not member_claim_start(holding_id=member(attempt).pk, token="t")
    assert attempt_end_unstarted(attempt_id=attempt.pk)

    assert seen(attempt) == ("finished", "aborted")
    assert is_released(attempt)
    assert not attempt_end_unstarted(attempt_id=attempt.pk)


def test_a_stop_during_the_launch_is_not_overtaken_by_it(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)
    holding = member(attempt)
    member_claim_start(holding_id=holding.pk, token="t")
    assert member_confirm_start(holding_id=holding.pk, token="t", launching=BOOT)

    task_abort(actor=alice, task=attempt.task)

    assert not member_confirm_start(holding_id=holding.pk, token="t", launching=BOOT)
    # The node may have it by now: only the node's word ends it.
    assert not attempt_end_unstarted(attempt_id=attempt.pk)
    assert not is_released(attempt)
    member_exited(holding_id=holding.pk, ended=Ended(None, "Never started."))
    assert seen(attempt) == ("finished", "aborted")


def test_a_start_that_arrives_after_the_stop_is_noted_and_still_stopped(
    served: Example, alice: User
) -> None:
    attempt = admitted(alice, served)
    holding = member(attempt)
    member_claim_start(holding_id=holding.pk, token="t")
    task_abort(actor=alice, task=attempt.task)

    member_started(holding_id=holding.pk, at=timezone.now())

    assert seen(attempt) == ("stopping", "stopping")
    assert attempt.started_at is not None
    member_exited(holding_id=holding.pk, ended=Ended(143))
    assert seen(attempt) == ("finished", "aborted")


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

    member_exited(holding_id=running(attempt).pk, ended=Ended(None, "gone", is_lost=True))

    assert seen(attempt) == ("lost", want)
    assert is_released(attempt)
    event = Event.objects.get(kind=f"task.{want}", data__cause="node_loss")
    assert event.object_id == str(attempt.task_id)
    assert Task.objects.get(pk=attempt.task_id).failures == 0


def test_news_of_an_older_generation_change_nothing(served: Example, alice: User) -> None:
    attempt = admitted(alice, served, retries=1)
    holding = running(attempt)
    member_exited(holding_id=holding.pk, ended=Ended(2))
    run_pass()
    again = Attempt.objects.get(task=attempt.task_id, generation=2)

    assert not member_started(holding_id=holding.pk, at=timezone.now())
    assert not member_exited(holding_id=holding.pk, ended=Ended(0))

    assert seen(again) == ("allocated", "allocated")


def test_only_results_that_are_stored_are_acknowledged(served: Example, alice: User) -> None:
    attempt = admitted(alice, served)
    holding = running(attempt)

    members_acknowledged([holding.pk])
    assert not member(attempt).is_acknowledged
    member_exited(holding_id=holding.pk, ended=Ended(0))
    members_acknowledged([holding.pk])

    assert member(attempt).is_acknowledged


def test_an_attempt_that_is_asked_to_stop_goes_where_it_was_sent(
    served: Example, alice: User
) -> None:
    attempt = admitted(alice, served)
    holding = running(attempt)

    assert attempt_stop(attempt_id=attempt.pk, target=TaskState.FAILED, detail="time is over")
    assert not attempt_stop(attempt_id=attempt.pk, target=TaskState.QUEUED, detail="again")
    assert seen(attempt) == ("stopping", "stopping")
    member_exited(holding_id=holding.pk, ended=Ended(143))

    assert seen(attempt) == ("finished", "failed")
    assert Task.objects.get(pk=attempt.task_id).state_detail == "time is over"
