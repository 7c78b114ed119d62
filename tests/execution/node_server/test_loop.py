"""What a node's loop writes into the log."""

import pytest
from structlog.testing import capture_logs

from apps.execution.node_server.loop import NodeLoop
from apps.nodes.models import Node
from tests.allocation.state import make_node
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
