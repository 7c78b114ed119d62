"""Stopping tasks, and starting them again."""

import threading
from datetime import timedelta

import pytest
from django.db import connections, transaction
from django.utils import timezone
from guardian.shortcuts import assign_perm

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.core.errors import BadInput, Conflict, NotAllowed, NotFound
from apps.events.models import Event
from apps.policies.models import Queue
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Attempt, Task, TaskGroup
from apps.tasks.services.attempts.ends import attempt_stop
from apps.tasks.services.enqueue.submission import (
    task_create,
    task_resume,
    task_run_again,
    task_submit,
)
from apps.tasks.services.queue_order import task_change_queue, task_set_priority
from apps.tasks.services.stop import task_abort, task_dequeue
from apps.tasks.task_spec import spec_of
from tests.allocation.state import make_node
from tests.people import Example
from tests.services.locks import waiting_for_locks
from tests.services.ports import wait_until

pytestmark = pytest.mark.django_db


def submitted(actor: User, example: Example) -> Task:
    values = {"name": "t", "queue": example.dev_queue.name, "command": ["true"]}
    return task_submit(actor=actor, spec=spec_of(values))


@pytest.fixture
def admitted(alice: User, example: Example) -> Task:
    """A task of alice that was placed on a node."""
    make_node(example.bare_metal, name="b1")
    task = submitted(alice, example)
    run_pass()
    task.refresh_from_db()
    assert task.state == TaskState.ALLOCATED
    return task


def test_who_aborts_work_that_stops_already_is_written_down_once(
    admitted: Task, alice: User
) -> None:
    attempt = Attempt.objects.get(task=admitted)
    attempt_stop(attempt_id=attempt.pk, target=TaskState.QUEUED, detail="preempted")

    for _ in range(2):
        task = task_abort(actor=alice, task=admitted)

    attempt.refresh_from_db()
    assert (task.state, task.state_detail) == ("stopping", "aborted by alice")
    assert attempt.stop_target == "aborted"
    asked = Event.objects.get(kind="task.stopping", actor=alice)
    assert (asked.data["from"], asked.data["then"]) == ("stopping", "aborted")


def test_aborting_admitted_work_asks_for_its_stop(admitted: Task, alice: User) -> None:
    task = task_abort(actor=alice, task=admitted)

    attempt = Attempt.objects.get(task=task)
    assert (task.state, attempt.state, attempt.stop_target) == ("stopping", "stopping", "aborted")
    assert attempt.stop_asked_at is not None
    event = Event.objects.get(kind="task.stopping")
    assert (event.actor_id, event.data["from"], event.data["then"]) == (
        alice.pk,
        "allocated",
        "aborted",
    )


def test_what_stops_to_wait_again_ends_once_it_is_aborted(admitted: Task, alice: User) -> None:
    Task.objects.filter(pk=admitted.pk).update(state=TaskState.STOPPING)
    Attempt.objects.update(
        state="stopping", stop_asked_at=timezone.now(), stop_target=TaskState.QUEUED
    )

    task_abort(actor=alice, task=admitted)

    assert Attempt.objects.get().stop_target == TaskState.ABORTED


def test_a_task_that_has_ended_stays_as_it_is(alice: User, example: Example) -> None:
    task = submitted(alice, example)
    Task.objects.filter(pk=task.pk).update(state=TaskState.ALLOCATED)
    Task.objects.filter(pk=task.pk).update(state=TaskState.COMPLETED)

    assert task_abort(actor=alice, task=task).state == TaskState.COMPLETED


def test_a_task_that_runs_can_neither_be_dequeued_nor_run_again(
    admitted: Task, alice: User
) -> None:
    with pytest.raises(Conflict):
        task_dequeue(actor=alice, task=admitted)
    with pytest.raises(Conflict):
        task_run_again(actor=alice, task=admitted)
    with pytest.raises(Conflict):
        task_set_priority(actor=alice, task=admitted, priority=0)


def test_a_paused_task_keeps_its_place(alice: User, bob: User, example: Example) -> None:
    task = submitted(alice, example)
    early = timezone.now() - timedelta(hours=1)
    Task.objects.filter(pk=task.pk).update(state=TaskState.ALLOCATED, submitted_at=early)
    Task.objects.filter(pk=task.pk).update(state=TaskState.STOPPING)
    Task.objects.filter(pk=task.pk).update(state=TaskState.PAUSED)
    task.refresh_from_db()

    with pytest.raises(NotAllowed):
        task_resume(actor=bob, task=task)
    resumed = task_resume(actor=alice, task=task)

    assert (resumed.state, resumed.submitted_at) == (TaskState.QUEUED, early)


def test_a_task_runs_again_only_where_its_queue_still_is(alice: User, example: Example) -> None:
    task = task_abort(actor=alice, task=submitted(alice, example))
    Queue.objects.filter(pk=example.dev_queue.pk).update(removed_at=timezone.now())

    with pytest.raises(NotFound):
        task_run_again(actor=alice, task=task)
    with pytest.raises(NotFound):
        task_run_again(actor=alice, task=task, queue=example.research_queue.name)
    task.refresh_from_db()
    assert task.state == TaskState.ABORTED


def test_who_manages_a_queue_runs_nothing_again_where_its_owner_may_not(
    root: User, alice: User, charlie: User, example: Example
) -> None:
    for queue in (example.dev_queue, example.research_queue):
        assign_perm("manage_queue", charlie, queue)
        assign_perm("enqueue_queue", charlie, queue)
        assign_perm("view_queue", charlie, queue)
    task = task_abort(actor=alice, task=submitted(alice, example))

    with pytest.raises(NotAllowed, match="is not open to alice"):
        task_run_again(actor=charlie, task=task, queue=example.research_queue.name)
    assert task_run_again(actor=charlie, task=task).state == TaskState.QUEUED
    task = task_abort(actor=alice, task=task)
    alice.groups.clear()
    with pytest.raises(NotAllowed, match="is not open to alice"):
        task_run_again(actor=root, task=Task.objects.get(pk=task.pk))


def test_another_priority_puts_it_into_another_task_group(alice: User, example: Example) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(max_priority=5)
    task = submitted(alice, example)

    raised = task_set_priority(actor=alice, task=task, priority=5)

    assert raised.task_group is not None
    assert (raised.priority, raised.task_group.priority) == (5, 5)
    assert TaskGroup.objects.filter(queue=example.dev_queue).count() == 2
    with pytest.raises(BadInput):
        task_set_priority(actor=alice, task=task, priority=6)


def test_somebody_elses_task_is_not_mine_to_move(
    alice: User, bob: User, root: User, example: Example
) -> None:
    task = submitted(alice, example)

    for verb in (task_abort, task_dequeue):
        with pytest.raises(NotAllowed):
            verb(actor=bob, task=task)
    with pytest.raises(NotAllowed):
        task_set_priority(actor=bob, task=task, priority=0)
    assert task_dequeue(actor=root, task=task).state == TaskState.DRAFT


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_who_manages_the_queue_that_a_task_just_left_does_not_dequeue_it(
    root: User, charlie: User, example: Example
) -> None:
    assign_perm("manage_queue", charlie, example.dev_queue)
    task = submitted(root, example)
    refused: list[NotAllowed] = []

    def dequeue() -> None:
        try:
            task_dequeue(actor=charlie, task=Task.objects.get(pk=task.pk))
        except NotAllowed as error:
            refused.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=dequeue)
    with transaction.atomic():
        task_change_queue(actor=root, task=task, queue=example.research_queue.pk)
        thread.start()
        wait_until(lambda: waiting_for_locks() > 0, what="it waits for the lock of the task")
    thread.join(30)

    task.refresh_from_db()
    assert (task.state, len(refused)) == (TaskState.QUEUED, 1)


def test_a_draft_is_nobodys_but_its_owners(alice: User, bob: User, example: Example) -> None:
    draft = task_create(actor=alice, spec=spec_of({"name": "draft"}))

    with pytest.raises(NotAllowed):
        task_abort(actor=bob, task=draft)
    assert task_abort(actor=alice, task=draft).state == TaskState.ABORTED
