"""What pages warn of: pools whose nodes differ from what is configured, a restored database."""

from collections.abc import Callable

import pytest
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.nodes.models import Installation
from apps.nodes.services import restore_confirm
from tests.allocation.state import enqueue, make_node
from tests.dashboard.conftest import ClientFor
from tests.dashboard.test_pages import text
from tests.people import Example

As = Callable[[User], APIClient]
pytestmark = pytest.mark.django_db


def test_pools_show_what_their_nodes_have_and_whether_shares_are_enforced(
    example: Example, root: User, client_for: ClientFor
) -> None:
    detail = "nvidia-cuda-mps-control is not installed"
    enforcement = {"memory": "accounted", "compute": "accounted", "detail": detail}
    make_node(example.h100, name="h1", gpus=6, report={"enforcement": enforcement})
    enforcement = {"memory": "mps", "compute": "mps", "detail": ""}
    make_node(example.bare_metal, name="b1", report={"enforcement": enforcement})
    client = client_for(root)

    pages = [text(client.get(reverse(name))) for name in ("overview", "resources")]
    html = client.get(reverse("overview")).content.decode()

    for page in pages:
        assert "Configured 8 GPU, nodes have 6 GPU" in page
        assert page.count("GPU, nodes have") == 1
        assert "Shares of a GPU enforced by MPS" in page
        assert "Shares of a GPU accounted, not enforced" in page
    assert f'title="1 of 1 nodes: {detail}"' in html


def test_a_restored_database_is_shown_with_what_to_do(
    example: Example, root: User, alice: User, client_for: ClientFor
) -> None:
    make_node(example.h100, name="h1", unknown_work=2)
    Installation.objects.filter(id=1).update(restored_at=timezone.now())
    client = client_for(root)
    places = ("overview", "node_list", "admin:index")

    pages = [text(client.get(reverse(name))) for name in places]
    hidden = text(client_for(alice).get(reverse("overview")))
    restore_confirm(actor=root)
    confirmed = text(client.get(reverse("overview")))

    for page in pages:
        assert "The database was restored from a backup" in page
        assert "1 node runs what this database does not know: h1." in page
        assert "rpmctl confirm-restored" in page
    assert "restored" not in hidden
    assert "It was confirmed. Passes go on once h1 has answered." in confirmed
    assert "rpmctl confirm-restored" not in confirmed


def test_what_waits_after_a_restore_is_suspended_until_confirmed(
    api_as: As, alice: User, example: Example, client_for: ClientFor
) -> None:
    make_node(example.bare_metal, name="b1")
    (task,) = enqueue(alice, example.dev_queue)
    client = client_for(alice)
    pages = [
        reverse("task_detail", args=[task.pk]),
        reverse("queue_detail", args=[example.dev_queue.pk]),
        reverse("policy_detail", args=[example.dev.pk]),
        reverse("policy_can_start", args=[example.dev.pk]),
    ]
    body = {"name": "maybe", "queue": example.dev_queue.name, "command": ["true"]}
    explain = f"/api/v1/tasks/{task.pk}/explain/"
    Installation.objects.filter(id=1).update(restored_at=timezone.now())

    answer = api_as(alice).get(explain).json()
    checked = api_as(alice).post("/api/v1/tasks/check/", body, format="json").json()

    for found in (answer, checked):
        assert found["code"] == "suspended"
        assert found["sentence"].startswith("Suspended until confirmed: ")
        assert "rpmctl confirm-restored" in found["help"]
    assert checked["would_run"] is False
    assert answer["no_estimate"] == "No start is in sight: see why it waits."
    for page in pages:
        assert "Suspended until confirmed: " in text(client.get(page)), page
    Installation.objects.filter(id=1).update(restored_at=None)
    assert api_as(alice).get(explain).json()["reasons"] == []
