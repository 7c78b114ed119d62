"""What was done is said once, with the way back where there is one."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.configuration.services.queues import profile_connect
from apps.policies.models import LiveState, Profile
from tests.dashboard.conftest import ClientFor, Submit
from tests.people import Example

pytestmark = pytest.mark.django_db


def press(client: Client, html: str, label: str) -> None:
    """Press the button of the way back, with what its form holds."""
    found = re.search(
        rf'<form method="post" action="([^"]+)">((?:(?!</form>).)*)<button[^>]*>{label}</button>',
        html,
        re.DOTALL,
    )
    assert found is not None, f"no button {label}"
    fields = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', found[2]))
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
    assert ">Undo</button>" not in on
