"""What a node's loop writes into the log, and what it believes of an answer."""

from typing import cast

import msgspec
import pytest
from django.utils import timezone
from structlog.testing import capture_logs

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.bundle import helper_version
from apps.execution.client import NodeClient
from apps.execution.node_server.loop import NodeLoop
from apps.execution.services.restore_detection import database_trust, own_serial, serial_signature
from apps.execution.transport.base import ExchangeFailed, NodeTransport
from apps.nodes.models import Node
from apps.tasks.models import Attempt, Member
from apps.tasks.services.members.launch import member_claim_start, member_note_start
from tests.allocation.state import enqueue, make_node
from tests.people import Example

# The loop closes its connections in between.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def loop(example: Example) -> NodeLoop:
    node = make_node(example.bare_metal, name="b1")
    Node.objects.filter(pk=node.pk).update(served_by="t")
    return NodeLoop(node, token="t", installation="i", tick_s=1, launching=frozenset)


def test_a_node_that_is_refused_for_weeks_is_logged_once(
    loop: NodeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node.objects.get(pk=loop.node_id)
    words_in_turn = iter(
        ["another key", "another key", "", "another key", "a third key", "a third key"]
    )

    def exchange() -> bool:
        words = next(words_in_turn, None)
        if words is None:
            loop.stop()
            return True
        return not words or loop._record_miss(node, words, is_refused=True)

    monkeypatch.setattr(loop, "_exchange", exchange)
    monkeypatch.setattr("apps.execution.node_server.loop.RETRY_S", (0,))

    with capture_logs() as logs:
        loop._run()

    assert [(one["event"], one.get("detail")) for one in logs] == [
        ("node.missed", "another key"),
        ("node.answers", None),
        ("node.missed", "another key"),
        ("node.missed", "a third key"),
        ("node.answers", None),
    ]


class EmptyNode:
    """A node without members, which has heard of this serial."""

    def __init__(self, serial: int) -> None:
        self._serial = serial

    def exchange(self, request: bytes, *, timeout_s: float) -> bytes:
        if msgspec.json.decode(request)["verb"] != "sync":
            raise ExchangeFailed("it answers nothing else")
        clocks = {"protocol": 1, "boot_id": "boot", "uptime_s": 5.0, "wall_s": 5.0}
        heard = {"serial": self._serial, "serial_signature": serial_signature(self._serial)}
        report = {"version": "1", "members": [], "logs": []} | heard
        return msgspec.json.encode(clocks | {"helper": helper_version(), "answer": report})

    def close(self) -> None:
        """There is no connection."""


def test_an_answer_that_tells_of_a_restore_ends_no_work(
    loop: NodeLoop, example: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup says that it runs; since then it has ended, and the node has dropped its result."""
    Node.objects.update(boot_id="boot")
    enqueue(alice, example.dev_queue)
    run_pass()
    member_id = Member.objects.get().pk
    member_claim_start(member_id=member_id, token="t")
    member_note_start(member_id=member_id, at=timezone.now())
    Member.objects.update(boot_id="boot", launched_at=timezone.now())
    client = NodeClient(cast("NodeTransport", EmptyNode(own_serial() + 1000)), "ours")
    monkeypatch.setattr(loop, "_ready_client", lambda _node: client)

    assert loop._exchange()

    assert database_trust().is_doubted
    assert Attempt.objects.get().state == "running"
