"""Attempts on silent nodes: suspect, charged, and what they were when the node answers."""

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.selectors import attempts_to_suspect, attempts_to_unsuspect
from apps.nodes.models import Node
from apps.tasks.models import Attempt, HeldDevice, Member, Task
from apps.tasks.services.attempts.next_state import MemberResult
from apps.tasks.services.attempts.silence import attempt_suspect, attempt_unsuspect
from apps.tasks.services.members.exits import member_note_exit
from apps.tasks.services.members.launch import (
    LaunchRecord,
    member_claim_start,
    member_confirm_start,
    member_note_start,
)
from apps.tasks.services.stop import task_abort
from tests.allocation.state import enqueue, make_node
from tests.people import Example


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.bare_metal, name="b1")


@pytest.fixture
def sent(node: Node, example: Example, alice: User) -> Attempt:
    enqueue(alice, example.dev_queue)
    run_pass()
    pk = Member.objects.get().pk
    member_claim_start(member_id=pk, token="t")
    member_confirm_start(member_id=pk, token="t", launching=LaunchRecord("boot"))
    return Attempt.objects.get()


@pytest.fixture
def running(sent: Attempt) -> Attempt:
    member_note_start(member_id=Member.objects.get().pk, at=timezone.now())
    return sent


def states_of(attempt: Attempt) -> tuple[str, str]:
    attempt.refresh_from_db()
    return str(attempt.state), str(Task.objects.get().state)


def fall_silent() -> None:
    Node.objects.update(state="suspect")
    for attempt_id in attempts_to_suspect():
        attempt_suspect(attempt_id=attempt_id, detail="its node is silent")


def answer() -> None:
    Node.objects.update(state="healthy")
    for attempt_id in attempts_to_unsuspect():
        attempt_unsuspect(attempt_id=attempt_id)


def test_what_runs_on_a_silent_node_is_suspect_and_stays_charged(running: Attempt) -> None:
    fall_silent()

    assert states_of(running) == ("suspect", "running")
    assert Task.objects.get().state_detail == "its node is silent"
    assert HeldDevice.objects.filter(released_at__isnull=True).count() == 4
    assert attempts_to_unsuspect() == []


def test_it_runs_again_when_the_node_answers(running: Attempt) -> None:
    started_at = Attempt.objects.get().started_at
    fall_silent()

    answer()

    assert states_of(running) == ("running", "running")
    assert (running.started_at, Task.objects.get().state_detail) == (started_at, "")


def test_a_launch_without_an_answer_is_suspect_and_starting_again_afterwards(sent: Attempt) -> None:
    fall_silent()
    assert states_of(sent) == ("suspect", "allocated")

    answer()

    assert states_of(sent) == ("starting", "allocated")


def test_a_start_that_is_heard_of_while_suspect_counts(sent: Attempt) -> None:
    fall_silent()
    member_note_start(member_id=Member.objects.get().pk, at=timezone.now())

    answer()

    assert states_of(sent) == ("running", "running")
    assert sent.started_at is not None


def test_a_result_that_is_heard_of_while_suspect_counts(running: Attempt) -> None:
    fall_silent()

    member_note_exit(member_id=Member.objects.get().pk, ended=MemberResult(0))

    assert states_of(running) == ("finished", "completed")


def test_what_was_never_sent_there_is_not_suspect(
    node: Node, example: Example, alice: User
) -> None:
    enqueue(alice, example.dev_queue)
    run_pass()

    fall_silent()

    assert Attempt.objects.get().state == "allocated"


def test_what_is_to_stop_stays_so_on_a_silent_node(running: Attempt, alice: User) -> None:
    task_abort(actor=alice, task=Task.objects.get())
    fall_silent()
    assert states_of(running) == ("stopping", "stopping")


def test_a_suspect_task_can_be_aborted_and_ends_when_its_node_tells(
    running: Attempt, alice: User
) -> None:
    fall_silent()
    task_abort(actor=alice, task=Task.objects.get())
    assert states_of(running) == ("stopping", "stopping")
    answer()

    member_note_exit(member_id=Member.objects.get().pk, ended=MemberResult(143))

    assert states_of(running) == ("finished", "aborted")
