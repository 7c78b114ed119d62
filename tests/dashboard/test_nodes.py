"""The page of one node, through HTTP."""

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.dashboard.render import card_render
from apps.nodes.models import Device, DeviceState, Node
from apps.tasks.models import HeldDevice, Member
from tests.allocation.state import make_node
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.test_pages import text
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db

# Any public key; its fingerprint is computed from it.
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS"


@pytest.fixture
def node(example: Example, alice: User, submit: Submit, run_in: RunIn) -> Node:
    """Four GPUs: one held, one free, one in use by others, one missing."""
    node = make_node(example.h100, name="h100-1")
    node.devices.all().delete()
    states = [DeviceState.HEALTHY, DeviceState.HEALTHY, DeviceState.OCCUPIED, DeviceState.MISSING]
    devices = [
        Device.objects.create(node=node, index=index, uuid=f"GPU-{index}", state=state)
        for index, state in enumerate(states)
    ]
    Node.objects.filter(pk=node.pk).update(
        host_key=KEY,
        transport="ssh",
        address="h100-1.lan",
        user="rpm",
        report={"foreign_processes": [{"uuid": "GPU-2", "pid": 4711, "memory_mb": 900}]},
    )
    run_in(submit(alice, "tokenizer-sweep"), example.h100)
    member = Member.objects.get()
    Member.objects.update(node=node)
    HeldDevice.objects.create(member=member, device=devices[0], milli=1000)
    node.refresh_from_db()
    return node


def test_a_node_tells_who_has_its_devices_and_what_is_not_ours(
    node: Node, root: User, client_for: ClientFor
) -> None:
    page = text(client_for(root).get(reverse("node_detail", args=[node.pk])))

    assert "Reserved tokenizer-sweep 1 GPU, alice" in page
    assert "process 4711 with 900 MB" in page
    assert "No pool yet" not in page
    assert "1 GPU missing" in page
    assert "1 GPU in use by others" in page
    assert "rpm@h100-1.lan:22" in page
    assert "SHA256:" in page
    assert "Running tasks 1" in page


def test_a_node_is_the_administrators(
    node: Node, alice: User, quinn: User, client_for: ClientFor
) -> None:
    for person in (alice, quinn):
        client = client_for(person)
        for name in ("node_detail", "node_pause"):
            assert client.get(reverse(name, args=[node.pk])).status_code == 404
        for name in ("node_pause", "node_resume", "node_drain"):
            assert client.post(reverse(name, args=[node.pk])).status_code == 404
        assert card_render("node_detail", str(node.pk), person) is None
    node.refresh_from_db()
    assert not node.is_draining


def test_a_node_is_drained_paused_and_resumed(
    node: Node, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    page = reverse("node_detail", args=[node.pk])

    client.post(reverse("node_drain", args=[node.pk]))
    draining = text(client.get(page))
    asked = text(client.get(reverse("node_pause", args=[node.pk])))
    client.post(reverse("node_pause", args=[node.pk]), {"reason": "new fans"})
    paused = text(client.get(page))
    client.post(reverse("node_resume", args=[node.pk]))
    resumed = text(client.get(page))

    assert "Draining" in draining
    assert "1 running task there goes on" in asked
    assert "Paused: new fans" in paused
    assert words_on(resumed, "Draining") == []
    assert "new fans" not in resumed


def test_memory_is_in_one_unit_and_a_node_without_a_pool_says_what_that_means(
    node: Node, root: User, client_for: ClientFor
) -> None:
    Device.objects.update(memory_mb=81_920)
    Node.objects.filter(pk=node.pk).update(pool=None)

    page = text(client_for(root).get(reverse("node_detail", args=[node.pk])))
    form = text(client_for(root).get(reverse("node_edit", args=[node.pk])))

    assert "80 GB" in page
    assert words_on(page, "81920") == []
    assert "No pool yet: the node takes no tasks until it has one." in page
    assert "No pool yet" in form
    assert "---------" not in form


def test_the_list_leads_to_each_node(node: Node, root: User, client_for: ClientFor) -> None:
    html = client_for(root).get(reverse("node_list")).content.decode()

    assert f'href="{reverse("node_detail", args=[node.pk])}"' in html


def test_a_removed_or_unknown_node_is_not_there(
    node: Node, root: User, client_for: ClientFor
) -> None:
    Node.objects.filter(pk=node.pk).update(removed_at="2026-01-01T00:00Z")

    for number in (node.pk, 10**25):
        path = reverse("node_detail", args=[number])
        assert client_for(root).get(path).status_code == 404
    assert card_render("node_detail", "9" * 5000, root) is None


def test_the_list_says_drained_once_nothing_runs_there_any_more(node: Node, root: User) -> None:
    Node.objects.filter(pk=node.pk).update(is_draining=True)
    HeldDevice.objects.all().delete()

    # A task without devices is work, too.
    draining = card_render("node_rows", "", root)
    Member.objects.update(released_at=timezone.now())
    drained = card_render("node_rows", "", root)

    assert draining is not None
    assert drained is not None
    assert ("Draining" in draining.html, "Drained" in draining.html) == (True, False)
    assert ("Draining" in drained.html, "Drained" in drained.html) == (False, True)
