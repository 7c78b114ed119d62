"""What a node used over time, on its page and in REST."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.urls import reverse
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.core import clock
from apps.nodes.models import Node
from apps.tasks.models import NodeUse
from apps.tasks.models.gpu_use import SLOT, slot_of
from tests.allocation.state import make_node
from tests.dashboard.conftest import ClientFor
from tests.dashboard.page_reader import folded, text
from tests.people import Example

pytestmark = pytest.mark.django_db
MS = 300_000
GIB = 1024


@pytest.fixture
def node(example: Example) -> Node:
    """40 % of its CPUs for the last two hours, 80 % two days ago."""
    report = {"memory_mb": 64 * GIB, "disk_mb": 500 * GIB}
    node = make_node(example.h100, name="h1", report=report)
    for hours, count, percent in ((2, 24, 40), (48, 12, 80)):
        for step in range(count):
            NodeUse.objects.create(
                node=node,
                at=slot_of(clock.now() - timedelta(hours=hours)) + step * SLOT,
                sampled_ms=MS,
                memory=16 * GIB * MS,
                counted_ms=0 if percent == 40 and step == 3 else MS,
                cpu=percent * MS,
                received=300 * 2**20,
                sent=0,
                disk_mb=100 * GIB,
            )
    return node


def test_the_page_of_a_node_shows_what_it_used(
    node: Node, root: User, client_for: ClientFor
) -> None:
    client, path = client_for(root), reverse("node_use", args=[node.pk])

    page = client.get(f"{path}?use=3")

    words = folded(text(page))
    assert "CPU 100 % Mean 40 %, highest 40 %" in words
    assert "Memory 64.0 GB Mean 16.0 GB" in words
    assert "Network, received 1.0 MB/s Mean 1.0 MB/s" in words
    assert page.content.decode().count('<path d="M') == 5
    assert "highest 80 %" in text(client.get(f"{path}?use=168"))
    assert 'aria-current="true">24 h' in client.get(f"{path}?use=x").content.decode()
    assert "node_use" not in text(client.get(reverse("node_detail", args=[node.pk])))


def test_a_node_without_samples_says_so(
    example: Example, root: User, client_for: ClientFor
) -> None:
    node = make_node(example.h100, name="h2")

    page = client_for(root).get(reverse("node_use", args=[node.pk]))

    assert "The node has reported nothing in this time." in text(page)


def test_rest_has_the_same_steps_for_administrators(
    node: Node, root: User, alice: User, api_as: Callable[[User], APIClient]
) -> None:
    path = f"/api/v1/nodes/{node.pk}/use/"

    steps = api_as(root).get(path).json()["steps"]

    assert len(steps) == 24
    assert steps[0]["cpu_percent"] == 40
    assert (steps[3]["cpu_percent"], steps[3]["memory_mb"]) == (None, 16 * GIB)
    assert len(api_as(root).get(path, {"hours": 336}).json()["steps"]) == 36
    for hours in ("0", "337", "x", "-1"):
        assert api_as(root).get(path, {"hours": hours}).status_code == 400
    assert api_as(alice).get(path).status_code in {403, 404}
