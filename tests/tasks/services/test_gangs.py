"""Members of a gang run together, and end together when one fails."""

from django.utils import timezone

from apps.accounts.models import User
from apps.tasks.models import Task
from apps.tasks.services.attempts import (
    Ended,
    member_claim_start,
    member_exited,
    member_started,
)
from apps.tasks.services.ending import task_abort
from tests.cast import Example
from tests.tasks.services.members import gang, is_released, running, seen


def test_a_gang_runs_when_its_last_member_does(served: Example, alice: User) -> None:
    attempt, first, second = gang(alice, served)
    for holding in (first, second):
        member_claim_start(holding_id=holding.pk, token="t")

    member_started(holding_id=first.pk, at=timezone.now())
    assert seen(attempt) == ("starting", "allocated")
    member_started(holding_id=second.pk, at=timezone.now())

    assert seen(attempt) == ("running", "running")


def test_a_member_of_a_gang_that_completes_waits_for_the_others(
    served: Example, alice: User
) -> None:
    attempt, first, second = gang(alice, served)
    running(attempt)

    member_exited(holding_id=first.pk, ended=Ended(0))
    assert seen(attempt) == ("running", "running")
    assert not is_released(attempt)
    member_exited(holding_id=second.pk, ended=Ended(0))

    assert seen(attempt) == ("finished", "completed")


def test_a_failing_member_stops_the_others_and_its_words_are_kept(
    served: Example, alice: User
) -> None:
    attempt, first, second = gang(alice, served)
    running(attempt)

    member_exited(holding_id=second.pk, ended=Ended(3, "out of memory"))
    assert seen(attempt) == ("stopping", "stopping")
    assert not is_released(attempt)
    member_exited(holding_id=first.pk, ended=Ended(143))

    assert seen(attempt) == ("finished", "failed")
    task = Task.objects.get(pk=attempt.task_id)
    assert task.state_detail == "Member 1 ended with code 3. out of memory"
    # Not that of the first member, which only did what it was told.
    attempt.refresh_from_db()
    assert (task.exit_code, attempt.exit_code, attempt.detail) == (3, 3, "out of memory")


def test_the_cause_at_the_end_of_long_words_is_kept(served: Example, alice: User) -> None:
    attempt, first, second = gang(alice, served)
    running(attempt)
    words = "Trying to pull the image. " + "Copying blob. " * 60 + "manifest unknown"

    member_exited(holding_id=second.pk, ended=Ended(None, words))
    member_exited(holding_id=first.pk, ended=Ended(143))

    task = Task.objects.get(pk=attempt.task_id)
    assert task.state_detail == f"Member 1 ended without an exit code. {words}"


def test_a_gang_with_retries_goes_back_after_a_failing_member(served: Example, alice: User) -> None:
    attempt, first, second = gang(alice, served, retries=1)
    running(attempt)

    member_exited(holding_id=second.pk, ended=Ended(3))
    member_exited(holding_id=first.pk, ended=Ended(143))

    assert seen(attempt) == ("finished", "queued")
    assert Task.objects.get(pk=attempt.task_id).failures == 1


def test_an_abort_counts_more_than_a_failing_member(served: Example, alice: User) -> None:
    attempt, first, second = gang(alice, served, retries=1)
    running(attempt)
    member_exited(holding_id=second.pk, ended=Ended(3))

    task_abort(actor=alice, task=Task.objects.get(pk=attempt.task_id))
    member_exited(holding_id=first.pk, ended=Ended(143))

    assert seen(attempt) == ("finished", "aborted")


def test_a_gang_that_loses_one_node_stops_on_the_other_and_waits_again(
    served: Example, alice: User
) -> None:
    attempt, first, second = gang(alice, served)
    running(attempt)

    member_exited(holding_id=first.pk, ended=Ended(None, "gone", is_lost=True))
    assert seen(attempt) == ("stopping", "stopping")
    member_exited(holding_id=second.pk, ended=Ended(143))

    assert seen(attempt)[1] == "queued"
