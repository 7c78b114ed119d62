"""Nodes are added, edited, re-keyed and removed on pages, with a real SSH server."""

import html
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.dashboard.views import node_add
from apps.events.models import Event
from apps.execution.preflight_findings import PreflightFinding
from apps.nodes.models import Node, NodeState
from apps.nodes.services import node_drain
from rpm.env import InstallationFolder
from tests.allocation.state import enqueue, make_node
from tests.dashboard.conftest import ClientFor
from tests.dashboard.page_reader import folded, text
from tests.people import Example
from tests.services.sshd import SshdNode

pytestmark = pytest.mark.django_db

Form = dict[str, Any]
ADD = "/nodes/add/"
FINGERPRINT = f"SHA256:{'a' * 43}"


@pytest.fixture
def admin(root: User, client_for: ClientFor) -> Client:
    return client_for(root)


@pytest.fixture
def described(ssh_node: SshdNode, example: Example, settings: Settings) -> Form:
    """The filled-in form; its key lies in the server's folder."""
    settings.HOME = InstallationFolder(ssh_node.folder)
    return {
        "name": "far",
        "pool": example.h100.pk,
        "address": ssh_node.address,
        "port": ssh_node.port,
        "user": ssh_node.user,
        "key": ssh_node.key_path.name,
        "runtime": "process",
        "allows_process": "on",
        "state_dir": ssh_node.home,
        "labels": "rack=4",
        "capacity_cap": "memory_mb=500",
    }


@pytest.fixture
def added(admin: Client, ssh_node: SshdNode, described: Form) -> Node:
    """A node that was added by its page."""
    sent = described | {"fingerprint": ssh_node.host_key.fingerprint, "step": "add"}
    assert admin.post(ADD, sent).status_code == 302
    return Node.objects.get()


@pytest.fixture
def here(example: Example) -> Node:
    """A node that is this machine."""
    return make_node(example.bare_metal, name="b1")


def page_of(node: Node, name: str) -> str:
    return reverse(f"node_{name}", args=[node.pk])


def form_of(node: Node, described: Form, **changes: Any) -> Form:
    """What the edit page of the node sends; its key stays."""
    return described | {"name": node.name, "key": ""} | changes


def errors_at(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 400
    return dict(response.context["form"].errors)


def show_another_key(server: SshdNode) -> None:
    server.stop()
    server.change_host_key()
    server.start()


def test_a_node_is_added_step_by_step(
    admin: Client, ssh_node: SshdNode, described: Form, example: Example
) -> None:
    empty = admin.get(ADD, {"pool": example.h100.pk})
    assert f'<option value="{example.h100.pk}" selected>' in empty.content.decode()
    assert "node prepare --public-key" in text(empty)

    shown = admin.post(ADD, described | {"user": "rpm-node"})
    assert ssh_node.host_key.fingerprint in text(shown)
    assert "3. Confirm the host key" in text(shown)
    prepared = f"ssh -p {ssh_node.port} root@{ssh_node.address} sh < prepare-far.sh"
    assert prepared in html.unescape(text(shown))
    assert not Path(ssh_node.home).exists(), "nothing was sent to the machine"
    confirmed = described | {"fingerprint": ssh_node.host_key.fingerprint}

    checked = text(admin.post(ADD, confirmed))
    assert "4. Preflight checks" in checked
    assert "the script of manage.py node prepare" in html.unescape(checked)
    assert not Node.objects.exists()

    response = admin.post(ADD, confirmed | {"step": "add"})
    node = Node.objects.get()
    assert response["Location"] == page_of(node, "detail")
    assert (node.state, node.pool, node.allows_process) == (NodeState.HEALTHY, example.h100, True)
    assert (node.labels, node.capacity_cap) == ({"rack": "4"}, {"memory_mb": "500"})
    assert "far is added." in text(admin.get(response["Location"]))


def test_a_taken_name_is_said_before_the_machine_is_asked(
    admin: Client, described: Form, here: Node
) -> None:
    response = admin.post(ADD, described | {"name": here.name})

    assert list(errors_at(response)) == ["name"]
    assert "Confirm and check" not in text(response)


def test_what_does_not_concern_the_key_keeps_the_confirmation_and_the_checks(
    admin: Client, ssh_node: SshdNode, described: Form, here: Node
) -> None:
    confirmed = described | {"fingerprint": ssh_node.host_key.fingerprint}
    page = admin.post(ADD, confirmed)
    sent = confirmed | {"checks": page.context["checks"], "step": "add"}

    taken = admin.post(ADD, sent | {"name": here.name})
    wrong = admin.post(ADD, sent | {"labels": "nothing"})
    forged = admin.post(ADD, sent | {"labels": "nothing", "checks": "x"})
    elsewhere = admin.post(ADD, sent | {"port": 1})

    assert list(errors_at(taken)) == ["name"]
    assert list(errors_at(wrong)) == ["labels"]
    for kept in (taken, wrong):
        assert kept.context["confirmed"] == ssh_node.host_key.fingerprint
        assert "4. Preflight checks" in text(kept)
        assert 'name="step" value="add"' in folded(kept.content.decode())
    for lost in (forged, elsewhere):
        assert lost.status_code == 400
        assert "4. Preflight checks" not in text(lost)


def test_what_blocks_is_listed_apart_and_the_node_is_not_offered(
    admin: Client, ssh_node: SshdNode, described: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_container = PreflightFinding(
        "container", is_fine=False, words="no container starts: x", fix="fix"
    )
    key = PreflightFinding("key", is_fine=False, words="it may run anything", fix="prepare it")
    inventory = SimpleNamespace(devices=())

    def examined(**_: object) -> tuple[object, list[PreflightFinding]]:
        return inventory, [
            no_container,
            key,
            PreflightFinding("disk", is_fine=True, words="10 MB are free"),
        ]

    monkeypatch.setattr(node_add, "machine_examine", examined)

    page = admin.post(ADD, described | {"fingerprint": ssh_node.host_key.fingerprint})

    words = text(page)
    assert "1 must be fixed" in words
    assert "1 warning" in words
    assert "1 check passed" in words
    add = folded(page.content.decode()).partition('name="step" value="add"')[2].partition(">")[0]
    assert "disabled" in add


def test_root_is_shown_no_command_that_refuses_it(admin: Client, described: Form) -> None:
    page = text(admin.post(ADD, described | {"user": "root", "port": 1}))

    assert "node prepare --public-key" not in page
    assert "ssh-copy-id" in page
    assert "refuses connections. Check the port" in page


@pytest.mark.parametrize("step", ["check", "add"])
def test_a_wrong_fingerprint_is_refused_before_anything_is_sent(
    admin: Client, ssh_node: SshdNode, described: Form, step: str
) -> None:
    response = admin.post(ADD, described | {"fingerprint": FINGERPRINT, "step": step})

    (problem,) = errors_at(response)["__all__"]
    assert ssh_node.host_key.fingerprint in problem
    assert "nothing was sent" in problem
    assert not Path(ssh_node.home).exists()
    assert not Node.objects.exists()


def test_a_node_is_not_added_before_its_host_key_is_confirmed(
    admin: Client, described: Form, ssh_node: SshdNode
) -> None:
    assert admin.post(ADD, described | {"step": "add"}).status_code == 400

    assert not Path(ssh_node.home).exists()
    assert not Node.objects.exists()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"name": ""}, "name", id="no name"),
        pytest.param({"address": "-oProxy=x"}, "address", id="no address"),
        pytest.param({"port": "0"}, "port", id="no port"),
        pytest.param({"key": "../key"}, "key", id="a key elsewhere"),
        pytest.param({"key": "none"}, "key", id="no such key"),
        pytest.param({"pool": "0"}, "pool", id="unknown pool"),
        pytest.param({"runtime": "vm"}, "runtime", id="unknown runtime"),
        pytest.param({"state_dir": "/a b"}, "state_dir", id="a folder for shells"),
        pytest.param({"labels": "rack"}, "labels", id="a label without value"),
        pytest.param({"labels": "=4"}, "labels", id="a label without name"),
        pytest.param({"capacity_cap": "memory_mb=lots"}, "capacity_cap", id="no amount"),
    ],
)
def test_unknown_input_is_refused_at_its_field(
    admin: Client, ssh_node: SshdNode, described: Form, change: Form, field: str
) -> None:
    sent = described | {"fingerprint": ssh_node.host_key.fingerprint, "step": "add"} | change

    response = admin.post(ADD, sent)

    assert list(errors_at(response)) == [field]
    assert f'id="id_{field}_error"' in response.content.decode()
    assert not Node.objects.exists()


def test_an_address_without_a_server_is_an_error_at_the_address(
    admin: Client, ssh_node: SshdNode, described: Form
) -> None:
    ssh_node.stop()

    assert list(errors_at(admin.post(ADD, described))) == ["address"]


def test_a_node_is_edited_and_another_connection_is_tried_first(
    admin: Client, added: Node, described: Form
) -> None:
    page = page_of(added, "edit")
    assert "rack=4" in admin.get(page).content.decode()

    response = admin.post(page, form_of(added, described, name="near", labels="rack=5"))
    assert response["Location"] == page_of(added, "detail")
    errors_at(admin.post(page, form_of(added, described, port="1")))
    errors_at(admin.post(page, form_of(added, described, key="none")))

    key, port = added.key_path, added.port
    added.refresh_from_db()
    assert (added.name, added.labels) == ("near", {"rack": "5"})
    assert (added.key_path, added.port) == (key, port)


def test_an_edit_shows_what_someone_else_changed_meanwhile(admin: Client, here: Node) -> None:
    shown = {"name": "b1", "initial-name": "b1", "labels": "", "initial-labels": ""}
    Node.objects.update(labels={"rack": "9"})

    response = admin.post(page_of(here, "edit"), shown | {"labels": "rack=4"})

    assert errors_at(response)["labels"] == ["It was changed to this meanwhile: rack=9"]


def test_the_edit_page_of_this_machine_has_no_connection(admin: Client, here: Node) -> None:
    page = page_of(here, "edit")

    assert "address" not in admin.get(page).context["form"].fields
    assert admin.post(page, {"name": "renamed", "address": "elsewhere"}).status_code == 302

    here.refresh_from_db()
    assert (here.name, here.address) == ("renamed", "")


def test_a_host_key_is_replaced_after_both_fingerprints_were_shown(
    admin: Client, added: Node, ssh_node: SshdNode
) -> None:
    page, old = page_of(added, "rekey"), ssh_node.host_key.fingerprint
    assert "Both are the same." in text(admin.get(page))
    show_another_key(ssh_node)
    new = ssh_node.host_key.fingerprint

    both = text(admin.get(page))
    assert f"Pinned {old} The machine shows now {new}" in both

    refused = admin.post(page, {"fingerprint": old})
    assert list(errors_at(refused)) == ["fingerprint"]
    assert "nothing was sent to it." in text(refused), "the error stands on the page"
    for malformed in ("", "SHA256:x"):
        assert list(errors_at(admin.post(page, {"fingerprint": malformed}))) == ["fingerprint"]
    added.refresh_from_db()
    assert ssh_node.host_key.base64 not in added.host_key

    assert admin.post(page, {"fingerprint": new})["Location"] == page_of(added, "detail")
    added.refresh_from_db()
    assert ssh_node.host_key.base64 in added.host_key
    event = Event.objects.get(kind="node.rekeyed")
    assert (event.data["old_fingerprint"], event.data["new_fingerprint"]) == (old, new)


def test_a_replaced_machine_with_tasks_needs_a_reason(
    admin: Client, here: Node, ssh_node: SshdNode, example: Example, alice: User
) -> None:
    Node.objects.update(transport="ssh", address=ssh_node.address, port=ssh_node.port)
    enqueue(alice, example.dev_queue)
    run_pass()
    sent = {"fingerprint": ssh_node.host_key.fingerprint, "is_replaced": "on"}

    response = admin.post(page_of(here, "rekey"), sent)

    assert list(errors_at(response)) == ["reason"]


def test_a_host_key_page_says_why_there_is_no_key(
    admin: Client, added: Node, here: Node, ssh_node: SshdNode
) -> None:
    ssh_node.stop()

    for node in (added, here):
        page = admin.get(page_of(node, "rekey"))
        assert page.context["problem"] in html.unescape(text(page))
        assert "Pin the new key" not in text(page)


def test_the_pages_are_for_administrators(
    here: Node, alice: User, quinn: User, client: Client, client_for: ClientFor
) -> None:
    pages = [ADD, *(page_of(here, name) for name in ("edit", "rekey", "remove"))]
    for page in pages:
        assert client.get(page)["Location"].startswith("/sign-in/")
        for person in (alice, quinn):
            assert client_for(person).get(page).status_code == 404
            assert client_for(person).post(page, {"name": "mine"}).status_code == 404

    here.refresh_from_db()
    assert (here.name, here.is_removed) == ("b1", False)


def test_the_pages_demand_a_csrf_token(here: Node, root: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(root)

    for page in [ADD, *(page_of(here, name) for name in ("edit", "rekey", "remove"))]:
        assert client.post(page, {"name": "forged"}).status_code == 403

    here.refresh_from_db()
    assert (here.name, here.is_removed) == ("b1", False)


def test_a_removed_or_unknown_node_has_no_pages(admin: Client, here: Node) -> None:
    Node.objects.update(removed_at="2026-01-01T00:00Z")

    for name in ("edit", "rekey", "remove"):
        for number in (here.pk, 10**25):
            assert admin.get(reverse(f"node_{name}", args=[number])).status_code == 404


def test_a_draining_node_shows_why(admin: Client, here: Node) -> None:
    node_drain(actor=None, node=here, reason="no container starts")

    assert "Draining: no container starts" in text(admin.get(page_of(here, "detail")))
    assert 'title="no container starts"' in admin.get(reverse("node_list")).content.decode()


def test_a_pool_without_a_node_leads_to_the_page_that_adds_one(
    admin: Client, here: Node, example: Example, alice: User, client_for: ClientFor
) -> None:
    board = admin.get(reverse("resources")).content.decode()

    assert f'href="{ADD}?pool={example.h100.pk}"' in board
    assert f'href="{ADD}?pool={here.pool_id}"' not in board
    assert ADD not in client_for(alice).get(reverse("resources")).content.decode()
    assert f'href="{ADD}"' in admin.get(reverse("node_list")).content.decode()


def test_a_node_shows_its_labels_that_it_is_drained_and_where_a_refusal_leads(
    admin: Client, here: Node, example: Example, alice: User
) -> None:
    Node.objects.update(
        labels={"rack": "4"},
        transport="ssh",
        address="192.0.2.1",
        host_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA==",
        state=NodeState.REFUSED,
        state_detail="It shows another key.",
    )
    node_drain(actor=None, node=Node.objects.get(), reason="new fans")

    page = text(admin.get(page_of(here, "detail")))

    assert "rack=4" in page
    assert "Drained" in page
    assert "It shows another key. Compare the host keys…" in page
