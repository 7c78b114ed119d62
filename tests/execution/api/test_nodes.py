"""Nodes through REST, from the first look to the removal, with a real SSH server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.nodes.models import Node, NodeState
from apps.policies.models import Pool
from rpm.env import InstallationFolder
from tests.allocation.state import enqueue, make_node
from tests.people import Example
from tests.services.sshd import SshdNode

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], APIClient]
V1 = "/api/v1"


@pytest.fixture
def admin(root: User, api_as: SignIn) -> APIClient:
    return api_as(root)


@pytest.fixture
def description(ssh_node: SshdNode, example: Example, settings: Settings) -> dict[str, Any]:
    """What adds the node; its key lies in the server's folder."""
    settings.HOME = InstallationFolder(ssh_node.folder)
    return {
        "name": "far",
        "address": ssh_node.address,
        "port": ssh_node.port,
        "user": ssh_node.user,
        "key": ssh_node.key_path.name,
        "pool": example.h100.pk,
        "runtime": "process",
        "allows_process": True,
        "state_dir": ssh_node.home,
    }


def test_a_machine_is_tried_added_changed_given_another_key_and_removed(
    admin: APIClient, ssh_node: SshdNode, description: dict[str, Any], example: Example
) -> None:
    description["pool"] = example.h100.name
    shown = admin.post(f"{V1}/nodes/check/", description).json()
    assert shown["fingerprint"] == ssh_node.host_key.fingerprint
    assert not Path(ssh_node.home).exists()
    confirmed = description | {"fingerprint": shown["fingerprint"]}

    tried = admin.post(f"{V1}/nodes/check/", confirmed).json()
    assert "key" in [one["name"] for one in tried["findings"] if not one["is_fine"] and one["fix"]]
    assert not Node.objects.exists()
    added = admin.post(f"{V1}/nodes/", confirmed)
    assert (added.status_code, added.json()["state"]) == (201, "healthy"), added.content
    assert added.json()["pool"]["id"] == example.h100.pk
    place = f"{V1}/nodes/{added.json()['id']}/"
    again = admin.post(f"{V1}/nodes/", confirmed | {"name": "second"})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")

    kept = admin.patch(place, {"capacity_cap": {"memory_mb": 500}, "labels": {"rack": "4"}})
    assert kept.json()["capacity_cap"] == {"memory_mb": "500"}
    assert admin.patch(place, {"port": 1}).json()["code"] == "node_failed"
    ssh_node.stop()
    ssh_node.change_host_key()
    ssh_node.start()
    keys = admin.get(f"{place}host-key/").json()
    assert (keys["pinned"], keys["shown"]) == (
        shown["fingerprint"],
        ssh_node.host_key.fingerprint,
    )
    old = admin.post(f"{place}rekey/", {"fingerprint": keys["pinned"]})
    assert old.status_code == 409
    assert admin.post(f"{place}rekey/", {"fingerprint": keys["shown"]}).status_code == 200
    removed = admin.post(f"{place}remove/", {})
    assert removed.json()["removed_at"] is not None
    assert admin.get(place).status_code == 404
    assert admin.post(f"{V1}/nodes/", confirmed | {"fingerprint": keys["shown"]}).status_code == 201


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"key": "../key"}, "key", id="a key elsewhere"),
        pytest.param({"key": "host_key.pub"}, "key", id="no private key"),
        pytest.param({"key": "none"}, "key", id="no such key"),
        pytest.param({"address": "-oProxy=x"}, "address", id="no address"),
        pytest.param({"pool": 2**40}, "pool", id="unknown pool"),
        pytest.param({"pool": "H200"}, "pool", id="unknown name of a pool"),
        pytest.param({"state_dir": "/a b"}, "state_dir", id="a folder for shells"),
        pytest.param(
            {"allows_process": False}, "allows_process", id="processes that are not allowed"
        ),
        pytest.param({"transport": "local"}, "transport", id="the server itself"),
        pytest.param({"environment": {"PATH": "/tmp"}}, "environment", id="variables"),
        pytest.param({"fingerprint": "SHA256:x"}, "fingerprint", id="no fingerprint"),
    ],
)
def test_what_could_not_be_a_node_is_refused_by_field(
    admin: APIClient,
    ssh_node: SshdNode,
    description: dict[str, Any],
    change: dict[str, Any],
    field: str,
) -> None:
    body = description | {"fingerprint": ssh_node.host_key.fingerprint} | change

    answer = admin.post(f"{V1}/nodes/", body)

    assert (answer.status_code, list(answer.json()["fields"])) == (400, [field])
    assert not Node.objects.exists()
    assert not Path(ssh_node.home).exists()


def test_the_pool_of_a_node_is_given_by_name_or_id(admin: APIClient, example: Example) -> None:
    node = make_node(example.h100, name="here")
    # Text that is a name comes first; a number is an id.
    digits = Pool.objects.create(name=str(example.h100.pk), capacity={"gpu": "1"})
    wanted: list[tuple[object, int | None]] = [
        (example.bare_metal.name, example.bare_metal.pk),
        (digits.name, digits.pk),
        (example.h100.pk, example.h100.pk),
        (None, None),
    ]

    for given, want in wanted:
        answer = admin.patch(f"{V1}/nodes/{node.pk}/", {"pool": given})
        node.refresh_from_db()
        assert (answer.status_code, node.pool_id) == (200, want)
    wrongs: tuple[object, ...] = (True, {}, "", 10**30)
    for wrong in wrongs:
        answer = admin.patch(f"{V1}/nodes/{node.pk}/", {"pool": wrong})
        assert (answer.status_code, list(answer.json()["fields"])) == (400, ["pool"])


def test_a_node_of_the_server_itself_is_not_moved_from_afar(
    admin: APIClient, example: Example
) -> None:
    node = make_node(example.h100, name="here")

    answer = admin.patch(f"{V1}/nodes/{node.pk}/", {"state_dir": "/tmp/elsewhere"})

    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["state_dir"])


def test_a_removal_names_what_it_would_stop(
    admin: APIClient, example: Example, alice: User
) -> None:
    node = make_node(example.bare_metal, name="b1")
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    place = f"{V1}/nodes/{node.pk}/remove/"

    refused = admin.post(place, {})
    forced = admin.post(place, {"force": True})
    Node.objects.filter(pk=node.pk).update(state=NodeState.SUSPECT)
    unsaid = admin.post(place, {"force": True})

    assert refused.status_code == 409
    assert task.name in refused.json()["detail"]
    assert forced.json()["removal_asked_at"] is not None
    assert list(unsaid.json()["fields"]) == ["reason"]


def test_only_administrators_change_nodes(
    api_as: SignIn, alice: User, charlie: User, quinn: User, example: Example
) -> None:
    node = make_node(example.h100, name="h1")
    for person in (alice, charlie, quinn):
        client = api_as(person)
        for path in ("check/", "", f"{node.pk}/rekey/", f"{node.pk}/remove/"):
            assert client.post(f"{V1}/nodes/{path}", {}).status_code == 403
        assert client.get(f"{V1}/nodes/{node.pk}/host-key/").status_code == 403
        assert client.patch(f"{V1}/nodes/{node.pk}/", {}).status_code == 403
    node.refresh_from_db()
    assert not node.is_removed
