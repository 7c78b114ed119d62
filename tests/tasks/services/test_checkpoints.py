"""Tasks that say that their state is saved, and what a second run finds of it."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.core.errors import Conflict, NotAllowed
from apps.nodes.models import Node, Volume
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.selectors.attempts import Resumption, resumption_of
from apps.tasks.services.attempts.checkpoints import (
    attempt_note_checkpoint,
    task_checkpoint,
)
from apps.tasks.services.attempts.next_state import MemberResult
from apps.tasks.services.members.exits import member_note_exit
from tests.allocation.state import begin, change_content, enqueue, latest, make_node
from tests.people import Example


@pytest.fixture
def running(example: Example, alice: User) -> Attempt:
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue)
    run_pass()
    begin(Attempt.objects.get())
    ago = timezone.now() - timedelta(hours=1)
    Attempt.objects.update(allocated_at=ago, started_at=ago)
    return Attempt.objects.get()


def test_the_owner_says_that_the_state_is_saved(running: Attempt, alice: User, bob: User) -> None:
    with pytest.raises(NotAllowed):
        task_checkpoint(actor=bob, task=running.task)

    assert task_checkpoint(actor=alice, task=running.task).checkpointed_at is not None


def test_what_does_not_run_saves_nothing(example: Example, alice: User) -> None:
    (task,) = enqueue(alice, example.dev_queue)

    with pytest.raises(Conflict):
        task_checkpoint(actor=alice, task=task)


def test_it_never_goes_back_and_never_lies_ahead(running: Attempt) -> None:
    now = timezone.now()
    assert attempt_note_checkpoint(attempt_id=running.pk, at=now - timedelta(minutes=5))
    assert not attempt_note_checkpoint(attempt_id=running.pk, at=now - timedelta(minutes=6))
    # Of before this attempt: a file that an earlier one left there.
    assert not attempt_note_checkpoint(attempt_id=running.pk, at=now - timedelta(hours=3))

    assert attempt_note_checkpoint(attempt_id=running.pk, at=now + timedelta(hours=2))

    running.refresh_from_db()
    assert running.checkpointed_at is not None
    assert running.checkpointed_at <= timezone.now()


def test_what_is_saved_before_we_heard_of_the_start_counts(running: Attempt) -> None:
    started = timezone.now()
    Attempt.objects.update(started_at=started)

    assert attempt_note_checkpoint(attempt_id=running.pk, at=started - timedelta(milliseconds=30))


@pytest.mark.parametrize(
    ("scope", "is_moved", "want"),
    [
        pytest.param("node", False, True, id="on its node"),
        pytest.param("node", True, False, id="elsewhere"),
        pytest.param("everywhere", True, True, id="where the volume is everywhere"),
    ],
)
def test_a_second_run_resumes_where_what_it_saved_is(
    running: Attempt, example: Example, scope: str, *, is_moved: bool, want: bool
) -> None:
    Volume.objects.create(name="ckpt", path="/srv/ckpt", scope=scope)
    change_content(checkpoint_volume="ckpt")
    Task.objects.update(retries=1)
    assert not resumption_of(Attempt.objects.get()).is_possible
    member_note_exit(member_id=Member.objects.get().pk, ended=MemberResult(1))
    if is_moved:
        Node.objects.update(state="suspect")
        make_node(example.bare_metal, name="b2")
    run_pass()
    again = latest(running.task)

    begin(again)

    assert again.generation == 2
    assert resumption_of(again).is_possible == want
    assert ("what it saved is on another node" in Task.objects.get().state_detail) == (not want)


@pytest.mark.parametrize("is_said", [False, True])
def test_without_a_volume_only_what_it_said_can_be_resumed(
    running: Attempt, *, is_said: bool
) -> None:
    Task.objects.update(retries=1)
    if is_said:
        attempt_note_checkpoint(attempt_id=running.pk, at=timezone.now())
    member_note_exit(member_id=Member.objects.get().pk, ended=MemberResult(1))
    run_pass()
    again = latest(running.task)

    begin(again)

    assert again.generation == 2
    assert resumption_of(again) == Resumption(is_possible=is_said, is_said=is_said)
