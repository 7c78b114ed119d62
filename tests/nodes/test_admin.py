"""What administrators do to nodes on the administration site."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client

from apps.accounts.models import User
from apps.events.models import Event
from apps.nodes.models import Node, NodeState
from tests.allocation.state import make_node
from tests.cast import Example
from tests.configuration.site import form_of

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


def said(response: Any) -> list[str]:
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
    assert any(one.startswith("gone: reason must say") for one in said(nameless))
    assert any(one == "there: Node there answers: it is not switched off." for one in said(done))
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


def test_nodes_are_neither_added_nor_deleted_there(example: Example, root: User, site: As) -> None:
    node = make_node(example.h100, name="h1")
    client = site(root)

    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(f"{LIST}{node.pk}/delete/", {"post": "yes"}).status_code == 403
    act(client, "delete_selected", node, post="yes")
    assert Node.objects.filter(pk=node.pk).exists()


@pytest.mark.parametrize("person", ["charlie", "quinn"])
def test_nobody_else_reaches_them(
    example: Example, site: As, person: str, request: pytest.FixtureRequest
) -> None:
    node = make_node(example.h100, name="h1")
    client = site(request.getfixturevalue(person))

    assert client.get(LIST).status_code in {302, 403}
    act(client, "pause", node)

    node.refresh_from_db()
    assert not node.is_paused
