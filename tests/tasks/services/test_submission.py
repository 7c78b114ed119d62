"""Enqueueing of drafts while other requests change them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.access.selectors import queues_open_to
from apps.accounts.memberships import with_groups_of_now
from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.configuration.services.policies import policy_set_amounts
from apps.core.errors import BadInput, Conflict, NeverFits, NotAllowed, NotFound
from apps.policies.models import PolicyGroupPermission, Queue
from apps.tasks.acceptance import QueueFacts
from apps.tasks.models import Attempt, Task, TaskGroup
from apps.tasks.selectors import facts
from apps.tasks.selectors.facts import cached_queue_facts
from apps.tasks.services.attempts.ends import attempt_withdraw
from apps.tasks.services.enqueue import queue_bounds, queue_entry
from apps.tasks.services.enqueue.bulk import tasks_enqueue_many
from apps.tasks.services.enqueue.submission import (
    task_change,
    task_create,
    task_enqueue,
    task_submit,
)
from apps.tasks.services.queue_order import task_set_priority
from apps.tasks.services.stop import task_abort, task_dequeue
from apps.tasks.services.task_groups import empty_groups_remove
from apps.tasks.task_spec import spec_of
from tests.people import Example

pytestmark = pytest.mark.django_db


def draft_as_read(alice: User, **values: object) -> Task:
    """A draft as it was read before its owner changed it."""
    draft = task_create(actor=alice, spec=spec_of({"name": "t", **values}))
    return Task.objects.get(pk=draft.pk)


def test_a_draft_waits_as_it_was_changed_last(alice: User, example: Example) -> None:
    read = draft_as_read(alice, command=["true"])
    task_change(actor=alice, task=Task.objects.get(pk=read.pk), changes={"replicas": 2})

    task = task_enqueue(actor=alice, task=read, queue=example.dev_queue.name)

    assert task.task_group is not None
    assert (task.replicas, task.task_group.replicas) == (2, 2)


def test_a_draft_that_became_unfit_meanwhile_stays_a_draft(alice: User, example: Example) -> None:
    read = draft_as_read(alice, command=["true"])
    task_change(actor=alice, task=Task.objects.get(pk=read.pk), changes={"command": []})

    with pytest.raises(BadInput):
        task_enqueue(actor=alice, task=read, queue=example.dev_queue.name)

    assert Task.objects.get(pk=read.pk).state == "draft"


def test_a_draft_of_somebody_else_is_enqueued_by_its_owner_or_an_administrator_only(
    alice: User, bob: User, root: User, example: Example
) -> None:
    task = task_create(actor=alice, spec=spec_of({"name": "t", "command": ["true"]}))

    with pytest.raises(NotAllowed):
        task_enqueue(actor=bob, task=task, queue=example.dev_queue.name)
    task.refresh_from_db()
    assert task.state == "draft"

    assert task_enqueue(actor=root, task=task, queue=example.dev_queue.name).state == "queued"


def test_drafts_of_one_person_are_bounded(
    alice: User, bob: User, example: Example, settings: Any
) -> None:
    settings.RPM_DRAFTS_PER_PERSON = 3
    draft = spec_of({"name": "t", "command": ["true"]})
    first = task_create(actor=alice, spec=draft)

    many = tasks_enqueue_many(actor=alice, items=[draft] * 4)
    with pytest.raises(Conflict, match="may be 3 at most"):
        task_create(actor=alice, spec=draft)

    assert [type(one) for one in many] == [Task, Task, Conflict, Conflict]
    assert task_create(actor=bob, spec=draft).state == "draft"
    task_enqueue(actor=alice, task=first, queue=example.dev_queue.name)
    assert task_create(actor=alice, spec=draft).state == "draft"


def test_no_vault_is_read_under_the_lock_of_a_queue(
    alice: User, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = connection.savepoint_ids[:]
    asked: list[list[str]] = []

    def brought(*_: Any, **__: Any) -> bool:
        asked.append(connection.savepoint_ids[:])
        return True

    plain = cached_queue_facts
    monkeypatch.setattr(queue_bounds, "vaults_have_image", brought)
    monkeypatch.setattr(queue_entry, "vaults_have_image", brought)
    monkeypatch.setattr(
        queue_bounds, "cached_queue_facts", lambda at: replace(plain(at), needs_image=True)
    )
    described = {"name": "t", "command": ["true"]}
    waits = spec_of(described | {"queue": example.dev_queue.name})

    task_submit(actor=alice, spec=waits)
    tasks_enqueue_many(actor=alice, items=[waits])
    draft = task_create(actor=alice, spec=spec_of(described))
    task_enqueue(actor=alice, task=draft, queue=example.dev_queue.name)

    assert asked == [outside] * 3


def test_the_facts_of_a_queue_are_read_once_per_version(
    alice: User, root: User, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def noted(
        queue: Queue, *, plain: Callable[[Queue], QueueFacts] = facts.queue_facts
    ) -> QueueFacts:
        read.append(queue.pk)
        return plain(queue)

    monkeypatch.setattr(facts, "queue_facts", noted)
    waits = spec_of({"name": "t", "command": ["true"], "queue": example.dev_queue.name})
    for _ in range(2):
        task_submit(actor=alice, spec=waits)
    assert read == [example.dev_queue.pk]

    policy_set_amounts(actor=root, policy=example.dev, reserved={}, limit={"gpu": 0})

    with pytest.raises(NeverFits):
        task_submit(actor=alice, spec=waits)
    assert len(read) > 1


def test_permissions_count_from_the_next_task_on(
    alice: User, charlie: User, example: Example
) -> None:
    dev = Group.objects.get(name="dev")
    waits = spec_of({"name": "t", "command": ["true"], "queue": example.dev_queue.name})
    task_submit(actor=alice, spec=waits)
    with pytest.raises(NotFound):
        task_submit(actor=charlie, spec=waits)

    alice.groups.remove(dev)
    charlie.groups.add(dev)

    with pytest.raises(NotFound):
        task_submit(actor=alice, spec=waits)
    assert task_submit(actor=charlie, spec=waits).state == "queued"

    PolicyGroupPermission.objects.filter(permission__codename="enqueue_policy").delete()

    with pytest.raises(NotAllowed):
        task_submit(actor=charlie, spec=waits)
    assert Task.objects.count() == 2


def test_the_permission_to_enqueue_is_asked_of_nothing_but_the_groups_of_now(
    alice: User, root: User, example: Example, django_assert_num_queries: Any
) -> None:
    readers = [with_groups_of_now(one) for one in (alice, root)]

    # Its SQL is kept for such a user: nothing else may decide about it.
    with django_assert_num_queries(0):
        assert [str(queues_open_to(one).query) for one in readers]


@pytest.mark.postgres_only
def test_only_the_first_task_of_a_group_keeps_other_requests_waiting(
    alice: User, example: Example
) -> None:
    waits = spec_of({"name": "t", "command": ["true"], "queue": example.dev_queue.name})
    locks = []

    for _ in range(2):
        with CaptureQueriesContext(connection) as asked:
            task_submit(actor=alice, spec=waits)
        locks.append(
            [
                one
                for one in ("FOR SHARE", "FOR NO KEY UPDATE")
                if one in str(asked.captured_queries)
            ]
        )

    assert locks == [["FOR SHARE", "FOR NO KEY UPDATE"], ["FOR SHARE"]]


@pytest.mark.parametrize("bound", ["RPM_WAITING_PER_PERSON", "RPM_WAITING_PER_QUEUE"])
def test_waiting_tasks_are_bounded(
    alice: User, example: Example, settings: Any, bound: str
) -> None:
    setattr(settings, bound, 3)
    one = {"name": "t", "command": ["true"], "queue": example.dev_queue.name}
    draft = task_create(actor=alice, spec=spec_of({"name": "t", "command": ["true"]}))
    task_submit(actor=alice, spec=spec_of(one))

    many = tasks_enqueue_many(actor=alice, items=[spec_of(one)] * 4)
    with pytest.raises(Conflict, match="lets at most"):
        task_submit(actor=alice, spec=spec_of(one))
    with pytest.raises(Conflict, match="lets at most"):
        task_enqueue(actor=alice, task=draft, queue=example.dev_queue.name)

    assert [type(answer) for answer in many] == [Task, Task, Conflict, Conflict]
    Task.objects.filter(state="queued").first().delete()  # type: ignore[union-attr]
    assert task_submit(actor=alice, spec=spec_of(one)).state == "queued"


def test_different_sizes_and_priorities_are_bounded(
    alice: User, example: Example, settings: Any
) -> None:
    settings.RPM_TASK_GROUPS_PER_QUEUE = 2
    one = {"name": "t", "command": ["true"], "queue": example.dev_queue.name}
    first, second = (
        task_submit(actor=alice, spec=spec_of({**one, "priority": priority}))
        for priority in (0, -1)
    )

    many = [spec_of({**one, "priority": priority}) for priority in (-1, -2)]
    answers = tasks_enqueue_many(actor=alice, items=many)
    with pytest.raises(Conflict, match="2 different sizes and priorities"):
        task_submit(actor=alice, spec=spec_of({**one, "priority": -3}))
    with pytest.raises(Conflict, match="2 different sizes and priorities"):
        task_set_priority(actor=alice, task=first, priority=-4)

    assert [type(answer) for answer in answers] == [Task, Conflict]
    # A group that nothing waits in any more counts as another one.
    last = answers[0]
    task_dequeue(actor=alice, task=first)
    third = task_submit(actor=alice, spec=spec_of({**one, "priority": -6}))
    with pytest.raises(Conflict, match="2 different sizes and priorities"):
        task_enqueue(actor=alice, task=first, queue=example.dev_queue.name)
    for task in (second, last, third):
        task_abort(actor=alice, task=task)
    submitted = spec_of({**one, "priority": -5})
    assert task_submit(actor=alice, spec=submitted).state == "queued"


def test_a_running_task_returns_to_its_queue_whatever_waits_there(
    alice: User, served: Example, settings: Any
) -> None:
    one = {"name": "t", "command": ["true"], "queue": served.dev_queue.name}
    task = task_submit(actor=alice, spec=spec_of(one))
    run_pass()
    TaskGroup.objects.update(shape="of other rules")
    settings.RPM_TASK_GROUPS_PER_QUEUE = 1

    attempt_withdraw(attempt_id=Attempt.objects.get(task=task).pk, detail="The node is drained.")

    task.refresh_from_db()
    assert task.state == "queued"


def test_groups_that_no_task_refers_to_are_removed(alice: User, example: Example) -> None:
    one = {"name": "t", "command": ["true"], "queue": example.dev_queue.name}
    gone, dequeued, stays = (
        task_submit(actor=alice, spec=spec_of({**one, "priority": priority}))
        for priority in (0, -1, -2)
    )
    task_abort(actor=alice, task=gone)
    task_dequeue(actor=alice, task=dequeued)

    assert empty_groups_remove(most=10) == 2

    assert list(TaskGroup.objects.values_list("pk", flat=True)) == [stays.task_group_id]
    assert empty_groups_remove(most=10) == 0


@pytest.mark.postgres_only
def test_whether_a_task_refers_to_a_group_is_found_without_reading_all_tasks(
    alice: User, example: Example
) -> None:
    """The foreign key asks so for each group that is removed, while its queue is locked."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN SELECT 1 FROM tasks_task WHERE task_group_id = 1 FOR KEY SHARE")
        plan = "\n".join(row[0] for row in cursor.fetchall())

    assert "task_of_group" in plan


def test_what_is_refused_at_the_bound_lets_nothing_in_uncounted(
    alice: User, example: Example, settings: Any
) -> None:
    settings.RPM_WAITING_PER_PERSON = 300
    queue_bounds._since_count.clear()
    one = spec_of({"name": "t", "command": ["true"], "queue": example.dev_queue.name})
    tasks_enqueue_many(actor=alice, items=[one] * 300)

    for _ in range(5):
        with pytest.raises(Conflict, match="lets at most"):
            task_submit(actor=alice, spec=one)
        tasks_enqueue_many(actor=alice, items=[one])

    assert Task.objects.filter(state="queued").count() == 300


def test_a_process_counts_once_for_many_tasks(settings: Any) -> None:
    settings.RPM_WAITING_PER_PERSON = 500
    queue_bounds._since_count.clear()

    due = [queue_bounds.count_is_due(-1, -1) for _ in range(7)]

    assert due == [False] * 5 + [True] * 2
