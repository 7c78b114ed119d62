"""Members of a gang run together, and end together when one fails."""

from datetime import timedelta

from django.utils import timezone

from apps.accounts.models import User
from apps.tasks.models import Task
from apps.tasks.services.attempts.next_state import MemberResult
from apps.tasks.services.members.exits import member_note_exit
from apps.tasks.services.members.launch import member_claim_start, member_note_start
from apps.tasks.services.stop import task_abort
from tests.people import Example
from tests.tasks.services.members import gang, is_released, running, states_of


def test_a_gang_runs_when_its_last_member_does(served: Example, alice: User) -> None:
    attempt, first, second = gang(alice, served)
    for member in (first, second):
        member_claim_start(member_id=member.pk, token="t")

    member_note_start(member_id=first.pk, at=timezone.now())
    assert states_of(attempt) == ("starting", "allocated")
    member_note_start(member_id=second.pk, at=timezone.now())

    assert states_of(attempt) == ("running", "running")


def test_a_member_of_a_gang_that_completes_waits_for_the_others(
    served: Example, alice: User
) -> None:
    attempt, first, second = gang(alice, served)
    running(attempt)

    member_note_exit(member_id=first.pk, ended=MemberResult(0))
    assert states_of(attempt) == ("running", "running")
    assert not is_released(attempt)
    member_note_exit(member_id=second.pk, ended=MemberResult(0))

    assert states_of(attempt) == ("finished", "completed")


def test_a_gang_ends_with_the_member_that_ended_last_whichever_reports_last(
    served: Example, alice: User
) -> None:
    attempt, first, second = gang(alice, served)
    running(attempt)
    ended = timezone.now() + timedelta(minutes=90)

    member_note_exit(member_id=second.pk, ended=MemberResult(0, at=ended))
    earlier = MemberResult(0, at=ended - timedelta(minutes=80))
    member_note_exit(member_id=first.pk, ended=earlier)

    attempt.refresh_from_db()
    assert attempt.ended_at == ended
    assert Task.objects.get(pk=attempt.task_id).ended_at == ended


def test_a_failing_member_stops_the_others_and_its_words_are_kept(
    served: Example, alice: User
) -> None:
    attempt, first, second = gang(alice, served)
    running(attempt)

    member_note_exit(member_id=second.pk, ended=MemberResult(3, "out of memory"))
    assert states_of(attempt) == ("stopping", "stopping")
    assert not is_released(attempt)
    member_note_exit(member_id=first.pk, ended=MemberResult(143))

    assert states_of(attempt) == ("finished", "failed")
    task = Task.objects.get(pk=attempt.task_id)
    assert task.state_detail == "Member 1 ended with code 3. out of memory"
    # Not that of the first member, which only stopped when it was asked to.
    attempt.refresh_from_db()
    assert (task.exit_code, attempt.exit_code, attempt.detail) == (3, 3, "out of memory")


def test_the_cause_at_the_end_of_long_words_is_kept(served: Example, alice: User) -> None:
    attempt, first, second = gang(alice, served)
    running(attempt)
    words = "Trying to pull the image. " + "Copying blob. " * 60 + "manifest unknown"

    member_note_exit(member_id=second.pk, ended=MemberResult(None, words))
    member_note_exit(member_id=first.pk, ended=MemberResult(143))

    task = Task.objects.get(pk=attempt.task_id)
    assert task.state_detail == f"Member 1 ended without an exit code. {words}"


def test_a_gang_with_retries_goes_back_after_a_failing_member(served: Example, alice: User) -> None:
    attempt, first, second = gang(alice, served, retries=1)
    running(attempt)

    member_note_exit(member_id=second.pk, ended=MemberResult(3))
    member_note_exit(member_id=first.pk, ended=MemberResult(143))

    assert states_of(attempt) == ("finished", "queued")
    assert Task.objects.get(pk=attempt.task_id).failures == 1


def test_an_abort_counts_more_than_a_failing_member(served: Example, alice: User) -> None:
    attempt, first, second = gang(alice, served, retries=1)
    running(attempt)
    member_note_exit(member_id=second.pk, ended=MemberResult(3))

    task_abort(actor=alice, task=Task.objects.get(pk=attempt.task_id))
    member_note_exit(member_id=first.pk, ended=MemberResult(143))

    assert states_of(attempt) == ("finished", "aborted")


def test_a_gang_that_loses_one_node_stops_on_the_other_and_waits_again(
    served: Example, alice: User
) -> None:
    attempt, first, second = gang(alice, served)
    running(attempt)

    member_note_exit(member_id=first.pk, ended=MemberResult(None, "gone", is_lost=True))
    assert states_of(attempt) == ("stopping", "stopping")
    member_note_exit(member_id=second.pk, ended=MemberResult(143))

    assert states_of(attempt)[1] == "queued"
