"""Launches that take long, as those that fetch an image from a slow registry, and all others."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.node_server import server as server_module
from apps.execution.node_server.loop import NodeLoop
from apps.execution.node_server.server import NodeServer, _LaunchSlots
from apps.execution.services.member_launch import MemberStart
from apps.nodes.models import Node
from apps.tasks.models import Member
from tests.allocation.state import enqueue, make_node
from tests.people import Example
from tests.services.ports import wait_until
from tests.services.timeouts import scale_timeout

pytestmark = pytest.mark.django_db


class SlowLaunches:
    """What is launched, each until its time comes; stops are done at once."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.stopped: list[int] = []
        self.fetching: dict[int, MemberStart] = {}
        self.polled: list[int] = []
        self.may_end = threading.Event()

    def launch(self, *, member_id: int, **_facts: Any) -> MemberStart | None:
        self.begun.append(member_id)
        if member_id not in self.fetching:
            self.may_end.wait()
        return self.fetching.get(member_id)

    def go_on(self, start: MemberStart, **_facts: Any) -> MemberStart | None:
        self.polled.append(start.member.pk)
        return self.fetching.get(start.member.pk)

    def stop(self, *, member: Member, **_facts: Any) -> None:
        self.stopped.append(member.pk)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowLaunches:
    slow = SlowLaunches()
    monkeypatch.setattr(server_module, "member_launch", slow.launch)
    monkeypatch.setattr(server_module, "member_launch_continue", slow.go_on)
    monkeypatch.setattr(server_module, "member_stop", slow.stop)
    return slow


@pytest.fixture
def server(slow: SlowLaunches) -> Iterator[NodeServer]:
    """Not started: its looks are made by the test."""
    server = NodeServer()
    yield server
    slow.may_end.set()
    for executor in server._executors.values():
        executor.shutdown()


def served(*nodes: Node) -> dict[int, NodeLoop]:
    """Loops that have reached their nodes."""
    loop = cast("NodeLoop", SimpleNamespace(client=object(), clock=object()))
    return {node.pk: loop for node in nodes}


def owners(held: list[int]) -> set[str]:
    found = Member.objects.filter(pk__in=held)
    return set(found.values_list("attempt__task__owner__username", flat=True))


def test_slow_launches_on_a_node_leave_slots_for_its_stops_and_are_followed_by_the_others(
    example: Example,
    alice: User,
    server: NodeServer,
    slow: SlowLaunches,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "LAUNCHES_PER_NODE", 1)
    node = make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 2)
    run_pass()
    first, second = Member.objects.filter(node=node).order_by("attempt_id")

    for _ in range(2):
        server._launch_due(served(node))
    wait_until(lambda: slow.begun == [first.pk], what="one is begun")
    server._stop_member(first, served(node))
    wait_until(lambda: slow.stopped == [first.pk], what="the stop is sent")
    server._wake.clear()
    slow.may_end.set()

    assert server._wake.wait(scale_timeout(20)), "nobody looks for who was held back"
    Member.objects.filter(pk=first.pk).update(state="running")
    server._launch_due(served(node))
    wait_until(lambda: slow.begun == [first.pk, second.pk], what="the other is begun")


def test_slow_launches_of_a_person_leave_slots_for_those_of_others(
    example: Example,
    alice: User,
    charlie: User,
    server: NodeServer,
    slow: SlowLaunches,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "LAUNCHES_PER_NODE_AND_OWNER", 1)
    # Both of alice's are on one node.
    nodes = make_node(example.bare_metal, name="b1"), make_node(example.h100, name="h1")
    enqueue(alice, example.dev_queue, 2)
    enqueue(charlie, example.research_queue, 1)
    run_pass()
    assert Member.objects.count() == 3

    server._launch_due(served(*nodes))

    wait_until(lambda: len(slow.begun) == 2, what="two are begun")
    assert owners(slow.begun) == {"alice", "charlie"}
    assert len(server._launching()) == 2


def test_a_member_of_a_gang_that_is_waited_for_needs_no_slot(
    example: Example,
    alice: User,
    server: NodeServer,
    slow: SlowLaunches,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "LAUNCHES_PER_NODE", 1)
    node = make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 2)
    run_pass()
    first, second = Member.objects.filter(node=node).order_by("attempt_id")
    Member.objects.filter(pk=second.pk).update(ready_at=timezone.now())

    server._launch_due(served(node))

    wait_until(lambda: sorted(slow.begun) == sorted([first.pk, second.pk]), what="both are begun")


def test_an_image_that_is_fetched_takes_no_slot_and_is_asked_after_until_it_is_there(
    example: Example,
    alice: User,
    server: NodeServer,
    slow: SlowLaunches,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "LAUNCHES_PER_NODE", 1)
    # Due at once.
    monkeypatch.setattr(server_module, "POLL_FETCH_MOST_S", 0)
    node = make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 2)
    run_pass()
    first, second = (
        Member.objects.filter(node=node).select_related("attempt__task").order_by("attempt_id")
    )
    slow.fetching = {first.pk: cast("MemberStart", SimpleNamespace(member=first))}
    server._loops = served(node)

    server._launch_due(served(node))
    wait_until(lambda: not server._launch_exchanges(), what="the first is being fetched")
    assert server._launching() == {first.pk}
    # Launches come first; what has ended is listed as under way until the next poll of all.
    assert ("launch", first.pk) in server._busy
    server._launch_due(served(node))
    wait_until(lambda: slow.begun == [first.pk, second.pk], what="the second is begun")
    assert slow.polled == []
    slow.may_end.set()
    wait_until(lambda: not server._launch_exchanges(), what="the second is launched")
    Member.objects.filter(pk=second.pk).update(state="running")

    server._launch_due(served(node))
    wait_until(lambda: slow.polled == [first.pk], what="the image of the first is asked after")
    wait_until(lambda: not server._launch_exchanges(), what="the answer is there")
    assert server._launching() == {first.pk}
    slow.fetching = {}
    Member.objects.filter(pk=first.pk).update(state="running")
    server._launch_due(served(node))

    wait_until(lambda: server._launching() == frozenset(), what="the first is launched")
    assert slow.polled == [first.pk, first.pk]
    assert slow.begun == [first.pk, second.pk]


def test_there_is_a_slot_for_whoever_has_little_under_way() -> None:
    slots = _LaunchSlots([])
    for node_id in range(100):
        for owner_id in (1, 2):
            if slots.has_free(node_id, owner_id):
                slots.take(node_id, owner_id)

    assert slots.has_free(200, 3)
    assert not slots.has_free(200, 1)
