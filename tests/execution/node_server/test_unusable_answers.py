"""A node whose answers cannot be used is shown so: real helpers, threads and PostgreSQL."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from apps.execution.node_server import loop as server_loop
from apps.execution.node_server.server import NodeServer
from apps.execution.services.node_registration import SimulatedGpus, node_add
from apps.nodes.models import Node, NodeState, Runtime, Transport
from tests.people import Example
from tests.services.ports import wait_until
from tests.services.sshd import kill_helpers

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]

Start = Callable[[], None]


@pytest.fixture
def node(example: Example, tmp_path: Path) -> Iterator[Node]:
    home = str(tmp_path / "node")
    yield node_add(
        name="here",
        pool=example.bare_metal,
        actor=None,
        simulated=SimulatedGpus(count=1),
        transport=Transport.LOCAL,
        runtime=Runtime.PROCESS,
        allows_process=True,
        state_dir=home,
    )
    kill_helpers(home)


@pytest.fixture
def start_server(settings: Settings) -> Iterator[Start]:
    settings.SYNC_TICK_S = 1
    server = NodeServer()
    yield server.start
    server.stop()
    server.join(timeout_s=20)


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param("'[' * 100_000", "the node's answer makes no sense", id="deep"),
        pytest.param("'\\0'", "the node's answer makes no sense", id="NUL"),
        pytest.param("sys.exit('\\0')", "the helper ended with code 1", id="NUL as it fails"),
    ],
)
def test_a_node_that_answers_nonsense_is_shown_so_with_the_reason(
    node: Node, start_server: Start, answer: str, want: str
) -> None:
    """Its loop failed again and again while the node stayed healthy and had nothing to say."""
    (helper,) = Path(node.state_dir).glob("helper-*")
    (helper / "__main__.py").write_text(f"import sys\nprint({answer})\n")
    start_server()

    def detail() -> str:
        return str(Node.objects.values_list("state_detail", flat=True).get(pk=node.pk))

    wait_until(lambda: want in detail(), what="the reason is shown")


def test_what_cannot_be_used_of_an_answer_makes_its_node_fail_visibly(
    node: Node, start_server: Start, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.NODE_SILENT_S = 1

    def broken(*_: object) -> None:
        raise ValueError("nobody has thought of that")

    monkeypatch.setattr(server_loop, "report_apply", broken)
    start_server()

    def shown() -> tuple[str, str]:
        return Node.objects.values_list("state", "state_detail").get(pk=node.pk)

    want = (NodeState.SUSPECT, "Its answer could not be used: ValueError.")
    wait_until(lambda: shown() == want, what="the node is suspect")
