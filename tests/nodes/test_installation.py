"""What administrators say of machines and of the installation as a whole."""

from datetime import timedelta

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.events.models import Event
from apps.execution.selectors import maintenance_left_s
from apps.execution.services.restore_detection import (
    database_trust,
    own_serial,
    restore_settle,
    serial_record,
    serial_signature,
)
from apps.nodes.models import Installation, Node
from apps.tasks.models import Task
from rpm.health import check_nodes
from tests.allocation.state import enqueue, make_node, make_server
from tests.people import Example


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.bare_metal, name="b1")


def api(user: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


def report_serial(node: Node, serial: int) -> None:
    """The node shows what this installation has sent it."""
    serial_record(node, serial, serial_signature(serial))


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
    report_serial(node, own_serial())
    assert not database_trust().is_doubted

    report_serial(node, own_serial() + 50)

    assert database_trust().is_doubted
    outcome = run_pass()
    assert (outcome.ran, "restored" in outcome.suspended) == (False, True)
    task.refresh_from_db()
    assert task.state == "queued"
    (event,) = Event.objects.filter(kind="installation.restored")
    assert event.data["node"] == "b1"


@pytest.mark.parametrize(
    ("ahead", "signed"),
    [(50, ""), (50, "forged"), (50, "another"), (2**62, "itself"), (2**70, "")],
)
def test_a_serial_that_was_never_given_out_concerns_its_node_alone(
    node: Node, root: User, ahead: int, signed: str
) -> None:
    make_server()
    serial = own_serial() + ahead
    given_out = {"another": serial_signature(own_serial()), "itself": serial_signature(serial)}
    signature = given_out.get(signed, signed)

    refused = [serial_record(node, serial, signature) for _ in range(3)]

    assert refused == [min(serial, 2**63 - 1)] * 3
    assert not database_trust().is_doubted
    (event,) = Event.objects.filter(kind="node.serial_refused")
    assert event.data["name"] == "b1"
    assert "b1 reported a serial" in check_nodes().words
    address = f"/api/v1/nodes/{node.pk}/"
    assert api(root).get(address).json()["serial_refused_at"] is not None

    response = api(root).post(f"{address}dismiss-serial/")

    assert (response.status_code, response.json()["serial_refused_at"]) == (200, None)
    assert Event.objects.get(kind="node.serial_dismissed").actor == root
    assert "reported a serial" not in check_nodes().words


def test_events_are_never_numbered_towards_the_end_of_their_column(node: Node, root: User) -> None:
    """As an installation of before serials were signed may have it."""
    Node.objects.update(last_seen_at=timezone.now() + timedelta(hours=1))
    Installation.objects.update(restored_at=timezone.now(), highest_serial=2**63 - 20)
    api(root).post("/api/v1/installation/confirm-restored/")
    # Whatever a test before left the sequence at: nothing rolls it back.
    before = own_serial()

    assert restore_settle()

    assert own_serial() - before < 10
    row = Installation.objects.get()
    assert (row.restored_at, row.highest_serial) == (None, 0)


def test_passes_go_on_when_it_is_confirmed_and_no_node_shows_unknown_work(
    node: Node, example: Example, alice: User, root: User
) -> None:
    enqueue(alice, example.dev_queue)
    reported = own_serial() + 50
    report_serial(node, reported)
    Node.objects.update(unknown_work=2, last_seen_at=timezone.now())
    assert not restore_settle()

    answer = api(root).post("/api/v1/installation/confirm-restored/")
    assert answer.json()["unsettled"] == ["b1"]
    assert database_trust().is_confirmed
    assert not restore_settle()
    Node.objects.update(unknown_work=0, last_seen_at=timezone.now() + timedelta(seconds=1))

    assert restore_settle()
    assert run_pass().placed == 1
    assert Task.objects.get().state == "allocated"
    # And what that node has heard is no news any more.
    report_serial(node, reported)
    assert Installation.objects.get().restored_at is None
    assert own_serial() > reported


def test_nothing_is_confirmed_where_nothing_was_restored(node: Node, root: User) -> None:
    assert api(root).post("/api/v1/installation/confirm-restored/").status_code == 409
