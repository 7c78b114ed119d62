"""What administrators say of machines and of the installation as a whole."""

from datetime import timedelta

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.events.models import Event
from apps.execution.selectors import maintenance_left_s
from apps.execution.services.restoring import (
    own_serial,
    restore_settle,
    serial_heard,
    trust_now,
)
from apps.nodes.models import Installation, Node
from apps.tasks.models import Task
from tests.allocation.state import enqueue, make_node
from tests.cast import Example


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.bare_metal, name="b1")


def api(user: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


def test_a_silent_node_is_declared_off_with_a_reason(node: Node, root: User) -> None:
    Node.objects.update(state="suspect")
    address = f"/api/v1/nodes/{node.pk}/declare-off/"

    assert api(root).post(address, {"reason": " "}).status_code == 400
    answer = api(root).post(address, {"reason": "its plug is in my hand"})

    assert answer.status_code == 200, answer.content
    assert Node.objects.get().off_at is not None
    event = Event.objects.get(kind="node.declared_off")
    assert (event.actor, event.data["reason"]) == (root, "its plug is in my hand")


def test_a_node_that_answers_cannot_be_declared_off(node: Node, root: User) -> None:
    answer = api(root).post(f"/api/v1/nodes/{node.pk}/declare-off/", {"reason": "sure"})

    assert answer.status_code == 409
    assert Node.objects.get().off_at is None


@pytest.mark.parametrize("path", ["maintenance/", "confirm-restored/", ""])
def test_only_administrators_speak_for_the_installation(node: Node, alice: User, path: str) -> None:
    method = api(alice).post if path else api(alice).get

    assert method(f"/api/v1/installation/{path}", {"hours": 1}).status_code == 403


def test_planned_work_makes_leases_longer_until_it_ends(node: Node, root: User) -> None:
    api(root).post("/api/v1/installation/maintenance/", {"hours": 2})
    assert 7190 < maintenance_left_s() <= 7200

    api(root).post("/api/v1/installation/maintenance/", {"hours": 0})
    assert maintenance_left_s() == 0


def test_a_node_that_has_heard_of_more_than_there_is_stops_all_passes(
    node: Node, example: Example, alice: User
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    serial_heard(own_serial())
    assert not trust_now().is_doubted

    serial_heard(own_serial() + 50)

    assert trust_now().is_doubted
    outcome = run_pass()
    assert (outcome.ran, "restored" in outcome.held) == (False, True)
    task.refresh_from_db()
    assert task.state == "queued"
    assert Event.objects.filter(kind="installation.restored").count() == 1


def test_passes_go_on_when_it_is_confirmed_and_no_node_shows_unknown_work(
    node: Node, example: Example, alice: User, root: User
) -> None:
    enqueue(alice, example.dev_queue)
    heard = own_serial() + 50
    serial_heard(heard)
    Node.objects.update(unknown_work=2, last_seen_at=timezone.now())
    assert not restore_settle()

    answer = api(root).post("/api/v1/installation/confirm-restored/")
    assert answer.json()["unsettled"] == ["b1"]
    assert trust_now().is_confirmed
    assert not restore_settle()
    Node.objects.update(unknown_work=0, last_seen_at=timezone.now() + timedelta(seconds=1))

    assert restore_settle()
    assert run_pass().placed == 1
    assert Task.objects.get().state == "allocated"
    # And what that node has heard is no news any more.
    serial_heard(heard)
    assert Installation.objects.get().restored_at is None
    assert own_serial() > heard


def test_nothing_is_confirmed_where_nothing_was_restored(node: Node, root: User) -> None:
    assert api(root).post("/api/v1/installation/confirm-restored/").status_code == 409
