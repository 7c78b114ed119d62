"""What was done is said once, with the way back where there is one."""

import re

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import ADMINS, User
from apps.accounts.services.people import user_create
from apps.configuration.services.queues import profile_connect
from apps.nodes.models import Node
from apps.policies.models import LiveState, Policy, Pool, Profile, Queue
from tests.allocation.state import make_node
from tests.dashboard.conftest import ClientFor, Submit
from tests.dashboard.test_pages import text
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.fixture
def ruth(db: None) -> User:
    return user_create(username="ruth", password=None, groups=[ADMINS])


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


@pytest.fixture
def queues(example: Example, root: User) -> list[Queue]:
    """Three of Dev's, all open to Alice."""
    profiles = [Profile.objects.get(name=name) for name in ("2xGPU", "8xGPU")]
    others = [profile_connect(actor=root, policy=example.dev, profile=one) for one in profiles]
    return [example.dev_queue, *others]


def test_moving_back_does_not_undo_the_later_move_of_another_user(
    queues: list[Queue], root: User, alice: User, client_for: ClientFor, submit: Submit
) -> None:
    first, second, third = queues
    mine, theirs, task = client_for(alice), client_for(root), submit(alice, "moves")
    address = reverse("task_change_queue", args=[task.pk])

    # To a third queue; to the first, where moving back would put it; away and back again.
    for later in ([third], [first], [third, second]):
        moved = mine.post(address, {"queue": second.pk}, follow=True).content.decode()
        for queue in later:
            theirs.post(address, {"queue": queue.pk})
        press(mine, moved, "Move back")

        task.refresh_from_db()
        assert task.queue_id == later[-1].pk
        said = text(mine.get(reverse("overview")))
        if later[-1] == second:
            assert "moves was moved again meanwhile by root. Nothing was undone." in said
        else:
            assert f"moves was moved to {later[-1].name} meanwhile and stays there." in said
        mine.post(address, {"queue": first.pk}, follow=True)


def test_a_dialog_that_was_opened_before_another_users_move_moves_nothing(
    queues: list[Queue], root: User, alice: User, client_for: ClientFor, submit: Submit
) -> None:
    first, second, third = queues
    client, task = client_for(alice), submit(alice, "moves")
    address = reverse("task_change_queue", args=[task.pk])
    page = client.get(address).content.decode()
    opened = dict(re.findall(r'<input type="hidden" name="(from)" value="([^"]*)"', page))

    client_for(root).post(address, {"queue": second.pk})
    for wanted in (third, second):
        said = text(client.post(address, {**opened, "queue": wanted.pk}, follow=True))
        task.refresh_from_db()
        assert task.queue_id == second.pk
        assert f"moves was moved to {second.name} meanwhile and stays there." in said
    assert opened == {"from": str(first.pk)}


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


def test_a_late_undo_does_not_switch_on_what_another_administrator_switched_off(
    root: User, ruth: User, client_for: ClientFor
) -> None:
    mine, theirs, address = client_for(root), client_for(ruth), reverse("resource_switch")

    off = mine.post(address, {"is_enabled": "0"}, follow=True).content.decode()
    theirs.post(address, {"is_enabled": "1"})
    theirs.post(address, {"is_enabled": "0"})
    press(mine, off, "Undo")

    assert not LiveState.objects.get().is_enabled
    said = text(mine.get(reverse("overview")))
    assert "Resource management was switched again meanwhile by ruth. Nothing was undone." in said


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


def test_a_late_undo_does_not_end_the_pause_of_another_administrator(
    example: Example, root: User, ruth: User, client_for: ClientFor
) -> None:
    mine, theirs = client_for(root), client_for(ruth)
    node = make_node(example.h100, name="h1")
    rows: list[tuple[str, Queue | Pool | Policy | Node]] = [
        ("queue", example.dev_queue),
        ("pool", example.h100),
        ("policy", example.dev),
        ("node", node),
    ]

    for noun, row in rows:
        pause, args = reverse(f"{noun}_pause", args=[row.pk]), [row.pk]
        paused = mine.post(pause, {"reason": "first"}, follow=True).content.decode()
        theirs.post(reverse(f"{noun}_resume", args=args))
        theirs.post(pause, {"reason": "second"})
        press(mine, paused, "Undo")

        row.refresh_from_db()
        assert (row.is_paused, row.pause_reason) == (True, "second"), noun
        page = text(mine.get(reverse("overview")))
        assert f"{row.name} was paused again meanwhile by ruth. Nothing was undone." in page


def test_a_late_undo_does_not_end_the_drain_of_another_administrator(
    example: Example, root: User, ruth: User, client_for: ClientFor
) -> None:
    mine, theirs = client_for(root), client_for(ruth)
    node = make_node(example.h100, name="h1")
    drain = reverse("node_drain", args=[node.pk])

    drained = mine.post(drain, follow=True).content.decode()
    theirs.post(reverse("node_resume", args=[node.pk]))
    theirs.post(drain)
    press(mine, drained, "Undo")

    node.refresh_from_db()
    assert node.is_draining
    page = text(mine.get(reverse("overview")))
    assert "h1 was drained again meanwhile by ruth. Nothing was undone." in page


def test_an_undo_of_another_object_is_refused(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    client.post(reverse("pool_pause", args=[example.h100.pk]), {"reason": "x"})

    for undoes in ("", "0", "abc"):
        client.post(reverse("pool_resume", args=[example.h100.pk]), {"undoes": undoes})

    example.h100.refresh_from_db()
    assert example.h100.is_paused


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
