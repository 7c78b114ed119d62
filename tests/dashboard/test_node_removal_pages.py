"""Nodes are removed on a page that names what a removal stops."""

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.nodes.models import Node, NodeState
from apps.tasks.models import Attempt, Task
from tests.allocation.state import begin, end, enqueue, make_node
from tests.dashboard.conftest import ClientFor
from tests.dashboard.test_node_pages import errors_at, page_of
from tests.dashboard.test_pages import text
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(root: User, client_for: ClientFor) -> Client:
    return client_for(root)


@pytest.fixture
def here(example: Example) -> Node:
    """A node that is this machine."""
    return make_node(example.bare_metal, name="b1")


def test_an_empty_node_is_removed(admin: Client, here: Node) -> None:
    assert "Stop these tasks" not in text(admin.get(page_of(here, "remove")))

    response = admin.post(page_of(here, "remove"))

    assert response["Location"] == reverse("node_list")
    assert "b1 is removed." in text(admin.get(response["Location"]))
    assert admin.get(page_of(here, "detail")).status_code == 404


def test_a_forced_removal_names_the_tasks_that_it_stops(
    admin: Client, here: Node, example: Example, alice: User
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    page = page_of(here, "remove")

    asked = text(admin.get(page))
    assert f"{task.name} {alice}" in asked
    assert "Stop these tasks, then remove the node" in asked
    assert 'type="checkbox" name="force" required' in admin.get(page).content.decode()
    refused = admin.post(page, {})
    assert task.name in refused.context["form"].errors["force"][0]

    forced = admin.post(page, {"force": "on", "shown": str(task.pk)})
    assert forced["Location"] == page_of(here, "detail")
    detail = text(admin.get(forced["Location"]))
    assert "b1 is being removed: its tasks are being stopped." in detail
    assert "its tasks are being stopped. Resume ends the removal." in detail
    assert "Being removed" in text(admin.get(reverse("node_list")))


def test_a_removal_stops_no_task_that_its_page_did_not_name(
    admin: Client, here: Node, example: Example, alice: User
) -> None:
    (first,) = enqueue(alice, example.dev_queue)
    run_pass()
    begin(Attempt.objects.get())
    page = page_of(here, "remove")
    shown = {"force": "on", "shown": str(first.pk)}
    end(Attempt.objects.get(), code=0)
    (late,) = enqueue(alice, example.dev_queue)
    run_pass()

    refused = admin.post(page, shown)

    assert refused.status_code == 409
    assert late.name in refused.context["form"].errors["force"][0]
    # The box was ticked for another list.
    assert 'name="force" checked' not in text(refused)
    assert f'name="shown" value="{late.pk} "' in refused.content.decode()
    here.refresh_from_db()
    assert (here.removal_asked_at, Task.objects.get(pk=late.pk).state) == (None, "allocated")
    assert admin.post(page, {"force": "on", "shown": f"{late.pk} "}).status_code == 302
    # What was shown and has ended meanwhile is no obstacle; what is no id is refused.
    assert admin.post(page, {"force": "on", "shown": "x"}).status_code == 400


def test_the_list_of_nodes_names_the_one_whose_page_is_gone(admin: Client, here: Node) -> None:
    address = reverse("node_list")
    assert "b1 is removed." not in text(admin.get(address, {"removed": here.pk}, follow=True))
    Node.objects.update(removed_at="2026-01-01T00:00Z")

    assert "b1 is removed." in text(admin.get(address, {"removed": here.pk}, follow=True))
    assert admin.get(address, {"removed": "nonsense"})["Location"] == address


def test_a_silent_node_with_tasks_is_removed_with_a_reason(
    admin: Client, here: Node, example: Example, alice: User
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    Node.objects.update(state=NodeState.SUSPECT)
    page = page_of(here, "remove")
    force = {"force": "on", "shown": str(task.pk)}

    assert "The node does not answer." in text(admin.get(page))
    assert list(errors_at(admin.post(page, force))) == ["reason"]
    assert admin.post(page, force | {"reason": "the plug is out"}).status_code == 302

    here.refresh_from_db()
    assert here.off_at is not None
    assert Task.objects.get().state == "allocated"
