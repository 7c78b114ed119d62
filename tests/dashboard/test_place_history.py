"""The charts of a pool, a queue and a node: what was held there, used, and who may see it."""

import re
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from guardian.shortcuts import assign_perm

from apps.accounts.models import User
from apps.nodes.models import Node
from apps.tasks.models import Attempt, DeviceUse, HeldDevice, Member
from apps.tasks.models.gpu_use import SLOT, slot_of
from apps.usage.models import PolicyHour, QueueDay
from apps.usage.services.sums import usage_book
from tests.allocation.state import make_node
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import text
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db
SLOT_MS = 300_000


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.h100, name="h1")


@pytest.fixture
def held(
    example: Example, alice: User, charlie: User, submit: Submit, run_in: RunIn, node: Node
) -> tuple[Attempt, Attempt]:
    """Dev holds 4 GPUs of a node since 30 hours, Research 4 since 23."""
    since = timezone.now() - timedelta(hours=30)
    found = (
        run_in(submit(alice, "ours"), example.h100, since=since),
        run_in(
            submit(charlie, "theirs", queue=example.research_queue.name),
            example.h100,
            since=since + timedelta(hours=7),
        ),
    )
    Member.objects.filter(attempt__in=found).update(node=node)
    return found


def sampled(
    attempt: Attempt, node: Node, *, percent: int, since: datetime, until: datetime
) -> None:
    """One GPU of the attempt, with this utilisation from one moment to the other."""
    device = node.devices.all()[0]
    member = attempt.members.get()
    one = HeldDevice.objects.create(member=member, device=device)
    at = slot_of(since)
    while at < until:
        DeviceUse.objects.create(
            held=one,
            at=at,
            sampled_ms=SLOT_MS,
            known_ms=SLOT_MS,
            busy=percent * SLOT_MS,
            process_ms=SLOT_MS,
            energy_mj=0,
            memory_mb=0,
        )
        at += SLOT


def columns(client: Client, path: str) -> tuple[list[str], list[list[str]]]:
    """The heads of the table behind the chart, and its rows."""
    page = client.get(path).content.decode()
    heads = re.findall(r'<th class="r">(.*?)</th>', page)
    cells = re.findall(r'<td class="r">(.*?)</td>', page)
    return heads, [cells[at : at + len(heads)] for at in range(0, len(cells), len(heads))]


@pytest.mark.parametrize("hours", [3, 24, 7 * 24])
def test_a_pool_shows_what_each_policy_holds_there(
    hours: int, example: Example, root: User, held: object, client_for: ClientFor
) -> None:
    while usage_book():
        pass
    client, path = client_for(root), reverse("pool_history", args=[example.h100.pk])

    heads, rows = columns(client, f"{path}?hours={hours}")

    assert sorted(heads) == ["Dev", "Research"]
    assert rows[-2] == ["4", "4"]
    assert "Capacity now, 8 GPU" in text(client.get(path))
    other = client.get(reverse("pool_history", args=[example.bare_metal.pk]))
    assert "No task that you see held GPUs here" in text(other)


def test_a_member_who_sees_a_pool_learns_nothing_of_other_policies(
    example: Example, alice: User, held: object, client_for: ClientFor
) -> None:
    client, paths = (
        client_for(alice),
        [reverse(name, args=[example.h100.pk]) for name in ("pool_usage", "pool_history")],
    )
    assert [client.get(path).status_code for path in paths] == [404, 404]
    assign_perm("view_pool", alice, example.h100)

    page = client.get(paths[1]).content.decode()

    assert client.get(paths[0]).status_code == 200
    assert words_on(page, "Dev", "Research", "Not visible to you") == ["Dev"]
    assert "mean 4, highest 4" in " ".join(page.split())
    assert words_on(client.get(f"{paths[1]}?by=tier").content.decode(), "highest 8") == []


def test_a_queue_shows_what_its_tasks_hold_and_wait_for(
    example: Example, alice: User, held: object, client_for: ClientFor, submit: Submit
) -> None:
    submit(alice, "waits")
    while usage_book():
        pass
    client, path = client_for(alice), reverse("queue_history", args=[example.dev_queue.pk])

    heads, rows = columns(client, path)

    assert heads == [example.dev_queue.name, "Waiting for"]
    assert rows[10] == ["4", "0"]
    by_day = columns(client, f"{path}?hours=168")
    assert by_day[0] == heads
    # Its days are summed up, so the rows of hours are not needed.
    PolicyHour.objects.all().delete()
    assert columns(client, f"{path}?hours=168")[1][-2][0] == by_day[1][-2][0] == "4"
    theirs = reverse("queue_history", args=[example.research_queue.pk])
    assert client.get(theirs).status_code == 404


def test_a_day_that_is_summed_up_is_one_mean(
    example: Example, root: User, client_for: ClientFor
) -> None:
    midnight = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    for days in (2, 40):
        QueueDay.objects.create(
            at=midnight - timedelta(days=days),
            policy=example.dev,
            queue=example.dev_queue,
            held=24 * 2 * 3_600_000_000,
        )

    path = reverse("queue_history", args=[example.dev_queue.pk])
    _, rows = columns(client_for(root), f"{path}?hours=168")

    assert {row[0] for row in rows} >= {"0", "2"}
    total = sum(float(row[0]) for row in rows) * 7 * 24 / len(rows)
    assert total == pytest.approx(48, rel=0.05)


def test_a_node_shows_the_members_that_it_has(
    example: Example,
    root: User,
    alice: User,
    held: tuple[Attempt, ...],
    node: Node,
    client_for: ClientFor,
) -> None:
    other = make_node(example.h100, name="h2")
    gang = held[0]
    Attempt.objects.filter(pk=gang.pk).update(replicas=3, request={"gpu": 1000})
    for rank in (1, 2):
        Member.objects.create(
            attempt=gang, rank=rank, pool=gang.pool, node=other if rank == 2 else node
        )
    path = reverse("node_history", args=[node.pk])

    heads, rows = columns(client_for(root), path)

    assert dict(zip(heads, rows[-1], strict=True)) == {"Dev": "2", "Research": "4"}
    page = client_for(root).get(path).content.decode()
    assert "7 d" not in page
    assert columns(client_for(root), f"{path}?hours=720&by=tier")[1][-1] == ["6"]
    assert client_for(alice).get(path).status_code == 404


@pytest.mark.parametrize(
    ("hours", "name"), [(3, "pool"), (24, "pool"), (168, "pool"), (24, "node")]
)
def test_what_was_used_is_drawn_where_it_is_known(
    hours: int,
    name: str,
    example: Example,
    root: User,
    held: tuple[Attempt, ...],
    node: Node,
    client_for: ClientFor,
) -> None:
    now = timezone.now()
    sampled(held[0], node, percent=60, since=now - timedelta(hours=2), until=now)
    while usage_book():
        pass
    pk = {"pool": example.h100.pk, "node": node.pk}[name]
    client, path = client_for(root), reverse(f"{name}_history", args=[pk])

    heads, rows = columns(client, f"{path}?hours={hours}")

    assert sorted(heads) == ["Dev", "Research", "Used"]
    used = [row[2] for row in rows]
    assert used[0] == "–"
    assert "0.6" in used or hours == 168
    assert "GPU use 60 %" in " ".join(text(client.get(f"{path}?hours={hours}")).split())


def test_the_number_of_queries_does_not_grow(
    example: Example,
    root: User,
    alice: User,
    held: object,
    node: Node,
    client_for: ClientFor,
    submit: Submit,
    run_in: RunIn,
) -> None:
    client = client_for(root)
    paths = [
        reverse(name, args=[pk]) + query
        for name, pk in (
            ("pool_history", example.h100.pk),
            ("queue_history", example.dev_queue.pk),
            ("node_history", node.pk),
            ("policy_history", example.dev.pk),
        )
        for query in ("?hours=3", "?hours=24&by=tier", "?hours=720")
    ]

    def counted() -> list[int]:
        found = []
        for path in paths:
            with CaptureQueriesContext(connection) as queries:
                assert client.get(path).status_code == 200
            found.append(len(queries))
        return found

    counted()
    few = counted()
    for number in range(5):
        attempt = run_in(submit(alice, f"t{number}"), example.h100)
        Member.objects.filter(attempt=attempt).update(node=node)

    assert counted() == few
    assert max(few) <= 25
