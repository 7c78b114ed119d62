"""Nodes and volumes through REST."""

from collections.abc import Callable

import pytest
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.nodes.models import Device, Node, Volume
from apps.policies.models import LiveState
from tests.allocation.state import make_node
from tests.people import Example

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], APIClient]
V1 = "/api/v1"


@pytest.fixture
def admin(root: User, api_as: SignIn) -> APIClient:
    return api_as(root)


@pytest.fixture
def node(example: Example) -> Node:
    made = Node.objects.create(name="n1", pool=example.h100, key_path="/secret/key")
    Device.objects.create(node=made, index=0, uuid="GPU-1", model="H100")
    return made


def test_a_node_is_paused_drained_and_resumed(admin: APIClient, node: Node) -> None:
    version = LiveState.objects.get().version

    paused = admin.post(f"{V1}/nodes/{node.pk}/pause/", {"reason": "New fan."}).json()
    draining = admin.post(f"{V1}/nodes/{node.pk}/drain/").json()
    resumed = admin.post(f"{V1}/nodes/{node.pk}/resume/").json()

    assert (paused["is_paused"], paused["pause_reason"]) == (True, "New fan.")
    assert draining["is_draining"]
    assert (resumed["is_paused"], resumed["is_draining"]) == (False, False)
    assert LiveState.objects.get().version == version + 3


def test_a_node_shows_its_devices_and_not_where_its_key_lies(admin: APIClient, node: Node) -> None:
    shown = admin.get(f"{V1}/nodes/{node.pk}/")

    assert [device["uuid"] for device in shown.json()["devices"]] == ["GPU-1"]
    assert "/secret/key" not in shown.content.decode()


@pytest.mark.parametrize(
    "query", ["pool=x", "pool=1e400", "pool=-1", f"pool={2**70}", "state=nonsense"]
)
def test_a_bad_filter_is_refused(admin: APIClient, node: Node, query: str) -> None:
    assert admin.get(f"{V1}/nodes/?{query}").status_code == 400


def test_nodes_are_filtered_by_pool(admin: APIClient, node: Node, example: Example) -> None:
    here = admin.get(f"{V1}/nodes/?pool={example.h100.pk}").json()["results"]
    there = admin.get(f"{V1}/nodes/?pool={example.bare_metal.pk}").json()["results"]

    assert [row["name"] for row in here] == ["n1"]
    assert there == []


def test_nodes_and_volumes_are_for_administrators(
    api_as: SignIn, alice: User, charlie: User, quinn: User, node: Node
) -> None:
    for person in (alice, charlie, quinn):
        client = api_as(person)
        for path in ("nodes/", f"nodes/{node.pk}/", "volumes/"):
            assert client.get(f"{V1}/{path}").status_code == 403
        assert client.post(f"{V1}/nodes/{node.pk}/pause/", {}).status_code == 403
        assert client.post(f"{V1}/volumes/", {}).status_code == 403


def test_a_volume_comes_changes_and_goes(admin: APIClient, example: Example) -> None:
    body = {"name": "data", "path": "/data", "scope": "pool", "pool": example.h100.pk}

    made = admin.post(f"{V1}/volumes/", body, format="json").json()
    changed = admin.patch(f"{V1}/volumes/{made['id']}/", {"is_read_only": True}).json()
    removed = admin.delete(f"{V1}/volumes/{made['id']}/")
    again = admin.post(f"{V1}/volumes/", body, format="json")

    assert made["pool"] == {"id": example.h100.pk, "name": "H100 Half a Superpod"}
    assert changed["is_read_only"]
    assert removed.status_code == 204
    assert admin.get(f"{V1}/volumes/{made['id']}/").status_code == 404
    assert again.status_code == 201
    assert Volume.objects.count() == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        pytest.param({"path": "/data"}, "name", id="no name"),
        pytest.param({"name": "data", "path": "data"}, "detail", id="not absolute"),
        pytest.param({"name": "data", "path": "/d", "scop": "pool"}, "scop", id="unknown field"),
        pytest.param({"name": "data", "path": "/d", "scope": "all"}, "scope", id="unknown scope"),
        pytest.param({"name": "data", "path": "/d", "pool": 2**40}, "pool", id="unknown pool"),
    ],
)
def test_a_bad_volume_is_refused_by_field(
    admin: APIClient, example: Example, body: dict[str, object], field: str
) -> None:
    answer = admin.post(f"{V1}/volumes/", body, format="json")

    assert answer.status_code == 400
    assert field in answer.json()["fields"]
    assert not Volume.objects.exists()


def test_a_name_that_is_taken_is_a_conflict(admin: APIClient, example: Example) -> None:
    Volume.objects.create(name="taken", path="/taken")
    make_node(example.h100, name="one")
    node = make_node(example.h100, name="two")
    policy = {"name": example.dev_queue.policy.name.upper(), "group": "dev"}

    answers = [
        admin.post(f"{V1}/volumes/", {"name": "TAKEN", "path": "/d"}, format="json"),
        admin.patch(f"{V1}/nodes/{node.pk}/", {"name": "ONE"}, format="json"),
        admin.post(f"{V1}/policies/", policy, format="json"),
    ]

    assert [answer.status_code for answer in answers] == [409, 409, 409], answers[2].content
    assert all("name" in answer.json()["fields"] for answer in answers)


@pytest.mark.parametrize("name", ["n 0/;", "-n", "n" * 64, "n\u00e4", ".."])
def test_a_name_that_a_terminal_or_a_path_could_misread_is_refused(
    admin: APIClient, example: Example, name: str
) -> None:
    node = make_node(example.h100, name="n 1")

    answer = admin.patch(f"{V1}/nodes/{node.pk}/", {"name": name}, format="json")

    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["name"])
    # One that was given before this rule is no reason to refuse other changes.
    assert admin.patch(f"{V1}/nodes/{node.pk}/", {"labels": {}}, format="json").status_code == 200
