"""Deleting drafts, over REST and on their pages."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.core.errors import NotFound
from apps.events.models import AuditEntry, Event
from apps.tasks.models import Task
from apps.tasks.models.dependencies import DependencyKind
from apps.tasks.services.dependencies import Dependency, task_set_dependencies
from apps.tasks.services.draft_removal import draft_delete
from apps.tasks.services.enqueue.submission import task_enqueue, task_run_again
from apps.tasks.services.stop import task_abort, task_dequeue, tasks_return_to_draft
from tests.allocation.state import enqueue, make_node
from tests.people import Example
from tests.tasks.services.array_steps import array_of

pytestmark = pytest.mark.django_db

As = Callable[[User], APIClient]
TASKS = "/api/v1/tasks/"
DRAFT = {"name": "later", "command": ["true"]}


def draft(client: APIClient, **headers: str) -> UUID:
    made: Any = client.post(TASKS, DRAFT, format="json", headers=headers)
    assert made.status_code == 201, made.data
    return UUID(str(made.data["id"]))


def test_a_draft_is_deleted_with_its_timeline_and_its_keys(alice: User, api_as: As) -> None:
    client = api_as(alice)
    key = {"Idempotency-Key": "once"}
    pk = draft(client, **key)

    assert client.delete(f"{TASKS}{pk}/").status_code == 204

    assert client.get(f"{TASKS}{pk}/").status_code == 404
    assert client.delete(f"{TASKS}{pk}/").status_code == 404
    assert not Event.objects.filter(object_id=str(pk)).exclude(pk=_last()).exists()
    entry = AuditEntry.objects.get(verb="task.deleted")
    assert (entry.object_id, entry.object_name) == (str(pk), "later")
    # The key is free: the same request makes another draft.
    assert draft(client, **key) != pk


def test_a_draft_that_is_removed_at_this_moment_is_not_found(
    alice: User, example: Example, api_as: As
) -> None:
    task = Task.objects.get(pk=draft(api_as(alice)))
    draft_delete(actor=alice, task=task)

    with pytest.raises(NotFound):
        task_enqueue(actor=alice, task=task, queue=example.dev_queue.name)


def _last() -> int:
    """The latest event stays: nodes remember its number."""
    return Event.objects.latest("pk").pk


def test_a_draft_is_its_owners_and_of_administrators(
    alice: User, bob: User, root: User, api_as: As
) -> None:
    pk = draft(api_as(alice))

    assert api_as(bob).delete(f"{TASKS}{pk}/").status_code == 404
    assert api_as(root).delete(f"{TASKS}{pk}/").status_code == 204


def test_another_version_is_not_deleted(alice: User, api_as: As) -> None:
    client = api_as(alice)
    pk = draft(client)
    seen = client.get(f"{TASKS}{pk}/").headers["ETag"]
    changed = client.patch(f"{TASKS}{pk}/", {"name": "other"}, format="json")

    assert client.delete(f"{TASKS}{pk}/", headers={"If-Match": seen}).status_code == 412

    now = changed.headers["ETag"]
    assert client.delete(f"{TASKS}{pk}/", headers={"If-Match": now}).status_code == 204


def test_what_waits_ran_or_is_waited_for_is_not_deleted(
    example: Example, alice: User, api_as: As
) -> None:
    make_node(example.bare_metal, name="b1", gpus=4)
    (ran,) = enqueue(alice, example.dev_queue)
    run_pass()
    other, waiting = enqueue(alice, example.dev_queue, 2)
    task_set_dependencies(actor=alice, task=waiting, after=[Dependency(other.pk)])
    task_dequeue(actor=alice, task=other)
    Task.objects.filter(pk=ran.pk).update(state="stopping")
    Task.objects.filter(pk=ran.pk).update(state="queued")
    tasks_return_to_draft(queue_ids=[example.dev_queue.pk], reason="x", except_owners=[])
    client = api_as(alice)

    assert client.delete(f"{TASKS}{waiting.pk}/").status_code == 204
    refused = client.delete(f"{TASKS}{ran.pk}/")

    assert refused.status_code == 409
    assert "has run" in refused.data["detail"]
    assert client.delete(f"{TASKS}{other.pk}/").status_code == 204


def test_a_draft_that_others_wait_for_is_not_deleted(
    example: Example, alice: User, api_as: As
) -> None:
    other, waiting = enqueue(alice, example.dev_queue, 2)
    task_set_dependencies(actor=alice, task=waiting, after=[Dependency(other.pk)])
    task_dequeue(actor=alice, task=other)

    refused = api_as(alice).delete(f"{TASKS}{other.pk}/")

    assert refused.status_code == 409
    assert "Other tasks wait for this one" in refused.data["detail"]
    assert api_as(alice).delete(f"{TASKS}{waiting.pk}/").data["detail"].startswith("Only drafts")


@pytest.mark.parametrize(("when", "state"), [("ok", "rejected"), ("any", "queued")])
def test_a_draft_is_not_deleted_before_a_pass_has_acted_on_its_end(
    example: Example, alice: User, api_as: As, when: str, state: str
) -> None:
    other, waiting = enqueue(alice, example.dev_queue, 2)
    after = [Dependency(other.pk, DependencyKind(when))]
    task_set_dependencies(actor=alice, task=waiting, after=after)
    again = task_run_again(actor=alice, task=task_abort(actor=alice, task=other))
    task_dequeue(actor=alice, task=again)
    client = api_as(alice)

    assert client.delete(f"{TASKS}{other.pk}/").status_code == 409
    run_pass()
    assert client.delete(f"{TASKS}{other.pk}/").status_code == 204

    waiting.refresh_from_db()
    assert (waiting.state, waiting.ineligible_code) == (state, "")


def test_an_array_whose_elements_are_stored_is_not_deleted(
    example: Example, alice: User, api_as: As
) -> None:
    array = array_of(alice, example, 3)
    run_pass()
    tasks_return_to_draft(queue_ids=[example.dev_queue.pk], reason="Closed.")

    for task in (array, array.elements.all()[0]):
        assert api_as(alice).delete(f"{TASKS}{task.pk}/").status_code == 409


def test_its_page_deletes_a_draft(alice: User, api_as: As, client: Client) -> None:
    pk = draft(api_as(alice))
    client.force_login(alice)
    assert "Delete draft" in client.get(f"/tasks/{pk}/").content.decode()

    done = client.post(f"/tasks/{pk}/delete/")

    assert done.headers["Location"] == "/tasks/?view=drafts"
    assert not Task.objects.filter(pk=pk).exists()


def test_the_page_of_a_waiting_task_says_why_it_is_not_deleted(
    example: Example, alice: User, client: Client
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    client.force_login(alice)

    page = client.post(f"/tasks/{task.pk}/delete/", follow=True).content.decode()

    assert "Only drafts can be deleted" in page
    assert "Delete draft" not in page
