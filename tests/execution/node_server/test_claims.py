"""Which nodes a process claims, and what a transaction of others on one of them costs it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connections, transaction
from django.utils import timezone

from apps.execution.node_server import server as server_module
from apps.execution.node_server.claims import UNCLAIMED_FOR, Claims
from apps.execution.node_server.server import NodeServer
from apps.nodes.models import Node
from tests.allocation.state import make_node
from tests.people import Example
from tests.services.timeouts import scale_timeout

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]


@contextmanager
def locked(node: Node) -> Iterator[None]:
    """Another transaction holds the row meanwhile."""
    has_begun, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Node.objects.select_for_update().get(pk=node.pk)
            has_begun.set()
            may_end.wait()
        connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    assert has_begun.wait(scale_timeout(20))
    try:
        yield
    finally:
        may_end.set()
        thread.join()


def test_a_locked_row_costs_a_process_none_of_its_other_nodes(example: Example) -> None:
    first = make_node(example.bare_metal, name="b1")
    second = make_node(example.bare_metal, name="b2")
    claims = Claims("t", lambda: None)
    claims.claim()
    soon = timezone.now() + timedelta(seconds=1)
    Node.objects.update(served_until=soon)

    with locked(first):
        claims.claim()

    assert Node.objects.get(pk=first.pk).served_until == soon
    assert Node.objects.filter(pk=second.pk, served_until__gt=soon).exists()
    assert claims.mine == {first.pk, second.pk}


def test_processes_share_the_nodes_whichever_was_first(example: Example) -> None:
    for number in range(5):
        make_node(example.bare_metal, name=f"b{number}")
    first, second = Claims("first", lambda: None), Claims("second", lambda: None)
    first.claim()
    assert len(first.mine) == 5

    steps = []
    for _ in range(3):
        second.claim()
        first.claim()
        steps.append((len(first.mine), len(second.mine)))
        assert not first.mine & second.mine

    assert steps == [(4, 0), (3, 1), (3, 2)]
    second.release()
    first.claim()
    assert len(first.mine) == 5


def test_nodes_that_were_removed_count_for_nobody(example: Example) -> None:
    nodes = [make_node(example.bare_metal, name=f"b{number}") for number in range(6)]
    claims = Claims("t", lambda: None)
    claims.claim()
    Node.objects.exclude(pk=nodes[-1].pk).update(removed_at=timezone.now())

    claims.claim()

    assert claims.mine == {nodes[-1].pk}


def test_a_node_that_its_own_process_does_not_take_is_taken_by_another(example: Example) -> None:
    nodes = [make_node(example.bare_metal, name=f"b{number}") for number in range(2)]
    broken = Claims("broken", lambda: None)
    broken._share()
    claims = Claims("t", lambda: None)
    returned = timezone.now() - UNCLAIMED_FOR / 2
    Node.objects.update(served_by="", served_until=returned)

    claims.claim()

    assert claims.mine == {nodes[0].pk}
    Node.objects.filter(pk=nodes[1].pk).update(served_until=returned - UNCLAIMED_FOR)
    claims.claim()
    assert claims.mine == {one.pk for one in nodes}


def test_many_nodes_are_connected_one_group_after_the_other(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        make_node(example.bare_metal, name=f"b{number}")
    monkeypatch.setattr(server_module, "CONNECTS_AT_ONCE", 2)
    stopped = threading.Event()
    monkeypatch.setattr("apps.execution.node_server.loop.NodeLoop._run", lambda _: stopped.wait())
    server = NodeServer()
    server._claims.mine = frozenset(Node.objects.values_list("pk", flat=True))

    counts = []
    for _ in range(3):
        server._update_loops()
        counts.append(len(server._loops))

    assert counts == [2, 4, 5]
    stopped.set()
