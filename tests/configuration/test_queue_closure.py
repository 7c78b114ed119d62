"""What happens to tasks when queues close and policies move."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from guardian.shortcuts import assign_perm
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.policies import policy_move, policy_remove
from apps.configuration.services.provision import document_provision
from apps.configuration.services.queues import profile_disconnect
from apps.events.models import Event
from apps.policies.document import parse
from apps.policies.models import Queue, QueueUserPermission
from apps.tasks.models import Task
from tests.people import Example

pytestmark = pytest.mark.django_db

Enqueue = Callable[[User, str], Any]


@pytest.fixture
def enqueue(api_as: Callable[[User], APIClient]) -> Enqueue:
    def post(user: User, queue: str) -> Any:
        body = {"name": "train", "queue": queue, "image": "train", "command": ["train"]}
        return api_as(user).post("/api/v1/tasks/", body, format="json")

    return post


def close_by_disconnecting(root: User, example: Example) -> None:
    profile_disconnect(actor=root, queue=example.dev_queue)


def close_by_removing_the_policy(root: User, example: Example) -> None:
    policy_remove(actor=root, policy=example.dev)


def close_by_provisioning(root: User, example: Example) -> None:
    draft_write(document=parse({"pools": [{"name": "H100 Half a Superpod"}]}), actor=root)
    document_provision(actor=root)


@pytest.mark.parametrize(
    "close", [close_by_disconnecting, close_by_removing_the_policy, close_by_provisioning]
)
def test_waiting_tasks_become_drafts_when_their_queue_closes(
    root: User,
    alice: User,
    example: Example,
    enqueue: Enqueue,
    close: Callable[[User, Example], None],
) -> None:
    made = enqueue(alice, "dev-4xgpu").json()
    Task.objects.filter(pk=enqueue(alice, "dev-4xgpu").json()["id"]).update(state="allocated")

    close(root, example)

    task = Task.objects.get(pk=made["id"])
    assert (task.state, task.queue, task.task_group, task.submitted_at) == (
        "draft",
        None,
        None,
        None,
    )
    assert "removed" in task.state_detail
    assert Task.objects.filter(state="allocated", queue=example.dev_queue).count() == 1
    event = Event.objects.get(kind="queue.closed", object_id=str(example.dev_queue.pk))
    assert event.data["tasks_returned"] == 1
    assert enqueue(alice, "dev-4xgpu").status_code == 404


def test_a_policy_that_moves_drops_the_tasks_of_those_who_lost_their_permission(
    root: User,
    alice: User,
    bob: User,
    example: Example,
    research_group: Group,
    enqueue: Enqueue,
) -> None:
    assign_perm("enqueue_queue", bob, example.dev_queue)
    dropped, kept = (enqueue(user, "dev-4xgpu").json()["id"] for user in (alice, bob))

    policy_move(actor=root, policy=example.dev, parent=None, group=research_group)

    assert Task.objects.get(pk=dropped).state == "draft"
    assert Task.objects.get(pk=kept).state == "queued"
    assert QueueUserPermission.objects.get().user == bob


def test_the_name_of_a_closed_queue_is_free(root: User, example: Example) -> None:
    profile_disconnect(actor=root, queue=example.dev_queue)

    assert Queue.objects.filter(name="dev-4xgpu").count() == 1
    assert not Queue.objects.filter(name="dev-4xgpu", removed_at=None).exists()
