"""What administrators do to nodes on the administration site."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.events.models import Event
from apps.execution import admin as execution_admin
from apps.execution.services.node_changes import node_edit
from apps.execution.services.node_registration import node_add
from apps.nodes.models import Node, NodeState, Transport
from rpm.env import InstallationFolder
from tests.allocation.state import enqueue, make_node
from tests.configuration.site import form_of
from tests.execution.services.test_node_changes import reached_by
from tests.people import Example
from tests.services.sshd import SshdNode

pytestmark = pytest.mark.django_db

LIST = "/admin/nodes/node/"
As = Callable[[User], Client]


@pytest.fixture
def site() -> As:
    def sign_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return sign_in


def act(client: Client, action: str, *nodes: Node, **values: str) -> Any:
    """Choose nodes in the list, an action, and go."""
    chosen = [str(node.pk) for node in nodes]
    return client.post(LIST, {"action": action, "_selected_action": chosen, **values})


def shown_messages(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def test_nodes_are_paused_drained_and_resumed_together(
    example: Example, root: User, site: As
) -> None:
    one, two = (make_node(example.h100, name=name) for name in ("h1", "h2"))
    client = site(root)

    for action in ("pause", "drain"):
        assert act(client, action, one, two).status_code == 302
    for node in (one, two):
        node.refresh_from_db()
        assert (node.is_paused, node.is_draining) == (True, True)

    act(client, "resume", one)
    for node in (one, two):
        node.refresh_from_db()
    assert [(node.is_paused, node.is_draining) for node in (one, two)] == [
        (False, False),
        (True, True),
    ]
    kinds = Event.objects.filter(kind__startswith="node.", actor=root).values_list(
        "kind", flat=True
    )
    assert sorted(kinds) == [
        *("node.draining", "node.draining", "node.paused", "node.paused", "node.resumed"),
    ]


def test_only_silent_nodes_are_declared_off_and_only_with_a_reason(
    example: Example, root: User, site: As
) -> None:
    gone = make_node(example.h100, name="gone", state=NodeState.SUSPECT)
    there = make_node(example.h100, name="there")
    client = site(root)

    nameless = act(client, "declare_off", gone)
    assert not Node.objects.filter(off_at__isnull=False).exists()
    done = act(client, "declare_off", gone, there, reason="the rack lost power")

    gone.refresh_from_db()
    there.refresh_from_db()
    assert gone.off_at is not None
    assert there.off_at is None
    assert any(one.startswith("gone: reason must say") for one in shown_messages(nameless))
    assert any(
        one == "there: Node there answers: it is not switched off." for one in shown_messages(done)
    )
    event = Event.objects.get(kind="node.declared_off")
    assert (event.actor, event.data["reason"]) == (root, "the rack lost power")


def test_the_form_changes_what_may_be_changed_and_nothing_that_the_node_reports(
    example: Example, root: User, site: As
) -> None:
    node = make_node(example.h100, name="h1")

    client = site(root)
    address = f"{LIST}{node.pk}/change/"
    form = form_of(client, address) | {
        "name": "h1-renamed",
        "pool": str(example.bare_metal.pk),
        "labels": '{"rack": "4"}',
        "state": "refused",
        "capacity": '{"gpu": "99"}',
    }
    answer = client.post(address, form)

    assert answer.status_code == 302, answer.content.decode()[:2000]
    node.refresh_from_db()
    assert (node.name, node.pool, node.labels) == (
        "h1-renamed",
        example.bare_metal,
        {"rack": "4"},
    )
    assert (node.state, node.capacity["gpu"]) == (NodeState.HEALTHY, "8")
    assert Event.objects.get(kind="node.changed").data["fields"] == ["labels", "name", "pool"]


@pytest.mark.parametrize("labels", ["5", '["rack"]', '{"rack": 4}'])
def test_labels_are_texts(example: Example, root: User, site: As, labels: str) -> None:
    node = make_node(example.h100, name="h1")
    client, address = site(root), f"{LIST}{node.pk}/change/"

    answer = client.post(address, form_of(client, address) | {"labels": labels})

    assert "must be an object of texts" in answer.content.decode()
    node.refresh_from_db()
    assert node.labels == {}


@pytest.fixture
def far(ssh_node: SshdNode, example: Example, settings: Settings) -> Node:
    """A node over SSH; its key lies in the server's folder."""
    settings.HOME = InstallationFolder(ssh_node.folder)
    return node_add(
        actor=None,
        name="far",
        host_key=ssh_node.host_key,
        pool=example.bare_metal,
        **reached_by(ssh_node),
    )


def test_a_connection_is_edited_and_tried_outside_of_a_transaction(
    far: Node, ssh_node: SshdNode, root: User, site: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, address = site(root), f"{LIST}{far.pk}/change/"
    depths: list[int] = []

    def edit(**given: Any) -> Node:
        depths.append(len(connection.savepoint_ids))
        return node_edit(**given)

    monkeypatch.setattr(execution_admin, "node_edit", edit)
    at_start = len(connection.savepoint_ids)

    form = form_of(client, address) | {
        "address": "localhost",
        "key": ssh_node.key_path.name,
        "state_dir": f"{ssh_node.home}-2",
        "capacity_cap": '{"memory_mb": "500"}',
    }
    silent = client.post(address, form | {"port": "1"})
    answer = client.post(address, form)

    (problem,) = silent.context["adminform"].form.non_field_errors()
    assert "127.0.0.1" in problem or "localhost" in problem
    assert answer.status_code == 302, answer.content.decode()[:2000]
    far.refresh_from_db()
    assert (far.address, far.state_dir) == ("localhost", f"{ssh_node.home}-2")
    assert far.capacity_cap == {"memory_mb": "500"}
    event = Event.objects.get(kind="node.changed")
    assert event.actor == root
    assert event.data["fields"] == ["address", "capacity_cap", "state_dir"]
    assert depths == [at_start, at_start], "nothing waits for the machine"


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        pytest.param({"key": "nothing"}, "key", "Must be the name", id="no such key"),
        pytest.param({"state_dir": "relative"}, "state_dir", "Must be an absolute", id="folder"),
        pytest.param(
            {"capacity_cap": '{"gpu": "x"}'}, "capacity_cap", "must be a number", id="amount"
        ),
        pytest.param({"port": "0"}, "port", "greater than or equal to 1", id="port"),
    ],
)
def test_a_refused_edit_keeps_the_form_with_the_error_at_its_field(
    example: Example, root: User, site: As, changes: dict[str, str], field: str, words: str
) -> None:
    node = make_node(example.bare_metal, name="far", transport=Transport.SSH, address="far")
    client, address = site(root), f"{LIST}{node.pk}/change/"
    before = Node.objects.values().get()

    answer = client.post(address, form_of(client, address) | {"labels": '{"a": "b"}'} | changes)

    errors = answer.context["adminform"].form.errors
    assert list(errors) == [field]
    assert words in errors[field][0]
    assert answer.context["adminform"].form["labels"].value() == '{"a": "b"}'
    assert Node.objects.values().get() == before


def test_a_node_on_this_machine_has_no_connection(example: Example, root: User, site: As) -> None:
    node = make_node(example.h100, name="h1")
    client, address = site(root), f"{LIST}{node.pk}/change/"

    answer = client.post(address, form_of(client, address) | {"address": "x", "port": "1"})

    assert answer.status_code == 302
    assert Node.objects.values_list("address", "port").get() == (node.address, node.port)


def test_what_somebody_else_changed_meanwhile_is_not_written_over(
    example: Example, root: User, site: As
) -> None:
    node = make_node(example.h100, name="h1")
    client, address = site(root), f"{LIST}{node.pk}/change/"
    form = form_of(client, address)
    Node.objects.filter(pk=node.pk).update(labels={"rack": "4"})

    answer = client.post(address, form | {"labels": '{"rack": "5"}'})

    assert any("This has changed since" in one for one in shown_messages(answer))
    assert Node.objects.get().labels == {"rack": "4"}


def test_a_node_is_added_on_the_page_that_takes_the_steps(
    example: Example, root: User, site: As
) -> None:
    assert "1. Prepare the machine" in site(root).get(f"{LIST}add/", follow=True).content.decode()


def test_the_host_key_is_replaced_on_the_page_that_shows_both_fingerprints(
    far: Node, ssh_node: SshdNode, example: Example, root: User, site: As
) -> None:
    client = site(root)
    chosen = act(client, "replace_host_key", far)
    other = make_node(example.h100, name="h1")
    pinned = ssh_node.host_key.fingerprint
    ssh_node.stop()
    ssh_node.change_host_key()
    ssh_node.start()

    page = client.get(chosen["Location"]).content.decode()

    assert pinned in page
    assert ssh_node.host_key.fingerprint in page
    assert shown_messages(act(client, "replace_host_key", far, other))[-1].startswith(
        "Choose one node"
    )


@pytest.mark.parametrize("is_action", [True, False], ids=["from the list", "from its form"])
def test_a_forced_removal_names_what_it_stops(
    example: Example, alice: User, root: User, site: As, *, is_action: bool
) -> None:
    node = make_node(example.bare_metal, name="b1")
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    client = site(root)
    leading = (
        act(client, "delete_selected", node)
        if is_action
        else client.post(f"{LIST}{node.pk}/delete/", {"post": "yes"})
    )
    page = leading["Location"]

    asked = client.get(page).content.decode()
    assert task.name in asked
    assert f'name="shown" value="{task.pk} "' in asked
    client.post(page, {"force": "on", "shown": str(task.pk)})

    node.refresh_from_db()
    assert node.removal_asked_at is not None
    event = Event.objects.get(kind="node.removal_asked")
    assert (event.actor, event.data["stops"]) == (root, [str(task.pk)])


def test_several_nodes_are_removed_once_confirmed_where_none_has_a_task(
    example: Example, alice: User, root: User, site: As
) -> None:
    empty, other = (make_node(example.h100, name=name) for name in ("h1", "h2"))
    busy = make_node(example.bare_metal, name="b1")
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    client = site(root)

    refused = act(client, "delete_selected", empty, busy, post="yes")
    asked = act(client, "delete_selected", empty, other).content.decode()
    assert not Node.objects.filter(removed_at__isnull=False).exists()
    act(client, "delete_selected", empty, other, post="yes")

    assert any(f"b1 ({task.name})" in one for one in shown_messages(refused))
    assert "h1" in asked
    assert "h2" in asked
    left = Node.objects.filter(removed_at__isnull=True)
    assert list(left) == [busy]
    assert [event.actor for event in Event.objects.filter(kind="node.removed")] == [root, root]


def test_what_is_not_there_is_not_removed(example: Example, root: User, site: As) -> None:
    node = make_node(example.h100, name="h1", removed_at=timezone.now())

    assert site(root).post(f"{LIST}{node.pk}/delete/").status_code == 404


@pytest.mark.parametrize("person", ["charlie", "quinn"])
def test_nobody_else_reaches_them(
    example: Example, site: As, person: str, request: pytest.FixtureRequest
) -> None:
    node = make_node(example.h100, name="h1")
    client = site(request.getfixturevalue(person))

    for page in (LIST, f"{LIST}add/", f"{LIST}{node.pk}/change/", f"{LIST}{node.pk}/delete/"):
        answer = client.get(page)
        assert answer.status_code in {302, 403}
        assert not answer.get("Location", "").startswith("/nodes/")
    act(client, "pause", node)
    act(client, "delete_selected", node, post="yes")

    node.refresh_from_db()
    assert not node.is_paused
    assert not node.is_removed
