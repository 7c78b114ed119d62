"""Putting drafts into queues, while others change them."""

import pytest

from apps.accounts.models import User
from apps.core.errors import BadInput, NotAllowed
from apps.tasks.descriptions import description_of
from apps.tasks.models import Task
from apps.tasks.services import task_change, task_create, task_enqueue
from tests.cast import Example

pytestmark = pytest.mark.django_db


def draft_as_read(alice: User, **values: object) -> Task:
    """A draft as somebody read it before its owner changed it."""
    draft = task_create(actor=alice, description=description_of({"name": "t", **values}))
    return Task.objects.get(pk=draft.pk)


def test_a_draft_waits_as_it_was_changed_last(alice: User, example: Example) -> None:
    read = draft_as_read(alice, command=["true"])
    task_change(actor=alice, task=Task.objects.get(pk=read.pk), changes={"replicas": 2})

    task = task_enqueue(actor=alice, task=read, queue=example.dev_queue.name)

    assert task.run is not None
    assert (task.replicas, task.run.replicas) == (2, 2)


def test_a_draft_that_became_unfit_meanwhile_stays_a_draft(alice: User, example: Example) -> None:
    read = draft_as_read(alice, command=["true"])
    task_change(actor=alice, task=Task.objects.get(pk=read.pk), changes={"command": []})

    with pytest.raises(BadInput):
        task_enqueue(actor=alice, task=read, queue=example.dev_queue.name)

    assert Task.objects.get(pk=read.pk).state == "draft"


def test_a_draft_of_somebody_else_is_enqueued_by_its_owner_or_an_administrator_only(
    alice: User, bob: User, root: User, example: Example
) -> None:
    task = task_create(actor=alice, description=description_of({"name": "t", "command": ["true"]}))

    with pytest.raises(NotAllowed):
        task_enqueue(actor=bob, task=task, queue=example.dev_queue.name)
    task.refresh_from_db()
    assert task.state == "draft"

    assert task_enqueue(actor=root, task=task, queue=example.dev_queue.name).state == "queued"
