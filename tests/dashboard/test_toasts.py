"""What was done is said once, with the way back where there is one."""

import re

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.configuration.services.queues import profile_connect
from apps.nodes.models import Node
from apps.policies.models import LiveState, Pool, Profile
from tests.allocation.state import make_node
from tests.dashboard.conftest import ClientFor, Submit
from tests.dashboard.test_pages import text
from tests.people import Example

pytestmark = pytest.mark.django_db


def press(client: Client, html: str, label: str) -> None:
    """Press the button of the way back, with what its form holds."""
    found = re.search(
        r'<form method="post" action="([^"]+)"[^>]*>((?:(?!</form>).)*)<button[^>]*>'
        rf"\s*{label}\s*</button>",
        html,
        re.DOTALL,
    )
    assert found is not None, f"no button {label}"
    fields = dict(re.findall(r'name="([^"]+)"\s+value="([^"]*)"', found[2]))
    assert client.post(found[1], fields).status_code == 302


def test_a_pause_is_undone_from_its_message(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    queue, pool = example.dev_queue, example.h100

    for name, row in (("queue_pause", queue), ("pool_pause", pool), ("policy_pause", example.dev)):
        page = client.post(reverse(name, args=[row.pk]), {"reason": "wrong one"}, follow=True)
        row.refresh_from_db()
        assert row.is_paused
        press(client, page.content.decode(), "Undo")
        row.refresh_from_db()
        assert not row.is_paused


def test_a_moved_task_is_moved_back(
    example: Example, root: User, alice: User, client_for: ClientFor, submit: Submit
) -> None:
    other = profile_connect(
        actor=root, policy=example.dev, profile=Profile.objects.get(name="2xGPU")
    )
    client, task = client_for(alice), submit(alice, "moves")
    address = reverse("task_change_queue", args=[task.pk])

    page = client.post(address, {"queue": other.pk}, follow=True)
    task.refresh_from_db()
    assert task.queue_id == other.pk
    press(client, page.content.decode(), "Move back")

    task.refresh_from_db()
    assert task.queue_id == example.dev_queue.pk


def test_the_switch_is_undone_when_off_and_not_when_on(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client, address = client_for(root), reverse("resource_switch")

    off = client.post(address, {"is_enabled": "0"}, follow=True).content.decode()
    assert not LiveState.objects.get().is_enabled
    press(client, off, "Undo")
    on = client.get(reverse("resources")).content.decode()

    assert LiveState.objects.get().is_enabled
    assert "Resource management is on." in on
    assert re.search(r">\s*Undo\s*</button>", on) is None


def test_the_undo_of_a_node_ends_what_its_message_names_and_nothing_else(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client, node = client_for(root), make_node(example.h100, name="h1")
    pause = reverse("node_pause", args=[node.pk])
    drain = reverse("node_drain", args=[node.pk])

    paused = client.post(pause, {"reason": "new fans"}, follow=True).content.decode()
    drained = client.post(drain, follow=True).content.decode()
    press(client, paused, "Undo")
    node.refresh_from_db()
    assert (node.is_paused, node.is_draining) == (False, True)
    assert "h1: the pause ended. It takes nothing new because of the drain." in text(
        client.get(reverse("node_detail", args=[node.pk]))
    )
    press(client, drained, "Undo")
    node.refresh_from_db()
    assert not node.is_draining

    Node.objects.update(is_draining=True, paused_at=timezone.now(), removal_asked_at=timezone.now())
    press(client, paused, "Undo")
    press(client, drained, "Undo")
    node.refresh_from_db()
    assert (node.is_paused, node.is_draining) == (False, True)
    assert node.removal_asked_at is not None


def test_what_was_so_before_cannot_be_undone(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client, node = client_for(root), make_node(example.h100, name="h1")
    Node.objects.update(is_draining=True)
    Pool.objects.filter(pk=example.h100.pk).update(paused_at=timezone.now())
    page = client.get(reverse("pool_pause", args=[example.h100.pk]))
    version = page.context["pause_version"]

    drained = client.post(reverse("node_drain", args=[node.pk]), follow=True)
    paused_node = client.post(reverse("node_pause", args=[node.pk]), {"reason": "x"}, follow=True)
    paused = client.post(
        reverse("pool_pause", args=[example.h100.pk]),
        {"reason": "another reason", "pause_version": version},
        follow=True,
    )

    for answer in (drained, paused_node, paused):
        assert answer.status_code == 200
        assert ">Undo</button>" not in answer.content.decode()


def test_resume_names_all_that_it_ends(example: Example, root: User, client_for: ClientFor) -> None:
    client, node = client_for(root), make_node(example.h100, name="h1")
    page = reverse("node_detail", args=[node.pk])
    Node.objects.update(is_draining=True, paused_at=timezone.now())

    assert "Resume ends the pause and the drain." in text(client.get(page))
    resumed = client.post(reverse("node_resume", args=[node.pk]), follow=True)

    assert "h1: the pause and the drain ended. It accepts tasks." in text(resumed)
    node.refresh_from_db()
    assert (node.is_paused, node.is_draining) == (False, False)
