"""Which helper a node goes on with when it is connected, over a real sshd."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from apps.execution.bundle import helper_version
from apps.execution.client import NodeClient
from apps.execution.connections import client_for, ensure_helper, installation_key
from apps.execution.protocol.answers import HelloAnswer
from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import SyncRequest
from apps.execution.services.node_registration import node_add
from apps.execution.transport.base import ProgramFailed
from apps.execution.transport.ssh import SshTransport
from apps.nodes.models import Node, Runtime, Transport
from tests.people import Example
from tests.services.sshd import SshdNode

pytestmark = pytest.mark.django_db

Connect = Callable[[Node], NodeClient]
OLD = "0123456789abcdef"
GATE = """#!/bin/sh
case "$SSH_ORIGINAL_COMMAND" in "python3 -") echo closed >&2; exit 1 ;; esac
exec $SSH_ORIGINAL_COMMAND
"""


@pytest.fixture
def node(example: Example, ssh_node: SshdNode) -> Node:
    return node_add(
        name="far",
        pool=example.bare_metal,
        actor=None,
        host_key=ssh_node.host_key,
        transport=Transport.SSH,
        address=ssh_node.address,
        port=ssh_node.port,
        user=ssh_node.user,
        key_path=str(ssh_node.key_path),
        runtime=Runtime.PROCESS,
        allows_process=True,
        state_dir=ssh_node.home,
    )


@pytest.fixture
def connect() -> Iterator[Connect]:
    clients = []

    def connected(node: Node) -> NodeClient:
        clients.append(client_for(node, installation=installation_key()))
        ensure_helper(clients[-1], node)
        return clients[-1]

    yield connected
    for client in clients:
        client.transport.close()


def helper_of(client: NodeClient) -> tuple[str, bool]:
    """The version that answers, and whether it does so through a channel."""
    outcome = client.sync(SyncRequest(installation=client.installation))
    assert isinstance(outcome, Answered), outcome
    assert isinstance(client.transport, SshTransport)
    return outcome.clocks.helper, client.transport.has_channel


def make_old(home: str, *, has_channel: bool) -> None:
    """The helper there is of another release."""
    link = Path(home, "helper")
    link.resolve().rename(Path(home, f"helper-{OLD}"))
    link.unlink()
    link.symlink_to(f"helper-{OLD}")
    if not has_channel:
        service = link / "apps" / "execution" / "node" / "service.py"
        source = service.read_text()
        assert '"hello": hello,' in source
        service.write_text(source.replace('"hello": hello,', "").replace("channel.OPENING:", "0:"))


def close_to_new(ssh_node: SshdNode) -> None:
    """The node runs its helper, and nothing that is to be installed."""
    gate = ssh_node.folder / "gate"
    gate.write_text(GATE)
    gate.chmod(0o755)
    keys = ssh_node.folder / "authorized_keys"
    keys.write_text(f'restrict,command="{gate}" {keys.read_text()}')


def test_a_helper_of_this_version_is_not_installed_again(
    ssh_node: SshdNode, node: Node, connect: Connect
) -> None:
    close_to_new(ssh_node)

    assert helper_of(connect(node)) == (helper_version(), True)


@pytest.mark.parametrize("has_channel", [True, False])
def test_another_version_is_replaced(
    ssh_node: SshdNode, node: Node, connect: Connect, has_channel: bool
) -> None:
    make_old(ssh_node.home, has_channel=has_channel)

    assert helper_of(connect(node)) == (helper_version(), True)


def test_a_node_learns_whether_the_installation_has_streams(
    node: Node, connect: Connect, settings: Settings
) -> None:
    found = []
    for settings.STREAMS in (True, False):
        _, answer = connect(node).hello()
        assert isinstance(answer, HelloAnswer)
        found.append(answer.has_streams)

    assert found == [True, False]


@pytest.mark.parametrize("has_channel", [True, False])
def test_a_node_that_takes_no_new_helper_goes_on_with_the_one_that_it_has(
    ssh_node: SshdNode, node: Node, connect: Connect, has_channel: bool
) -> None:
    make_old(ssh_node.home, has_channel=has_channel)
    close_to_new(ssh_node)

    assert helper_of(connect(node)) == (OLD, has_channel)


def test_a_node_without_a_helper_that_takes_none_is_not_reached(
    ssh_node: SshdNode, node: Node, connect: Connect
) -> None:
    Path(ssh_node.home, "helper").unlink()
    close_to_new(ssh_node)

    with pytest.raises(ProgramFailed, match="closed"):
        connect(node)


def test_what_changed_for_the_node_is_installed(
    ssh_node: SshdNode, node: Node, connect: Connect
) -> None:
    node.environment = {"CONTAINERS_CONF": "/etc/other.conf"}

    connect(node)

    assert "/etc/other.conf" in Path(ssh_node.home, "config.json").read_text()


def test_a_running_helper_gives_way_to_one_that_is_installed_meanwhile(
    ssh_node: SshdNode, node: Node, connect: Connect
) -> None:
    make_old(ssh_node.home, has_channel=True)
    close_to_new(ssh_node)
    client = connect(node)
    assert helper_of(client) == (OLD, True)
    keys = ssh_node.folder / "authorized_keys"
    keys.write_text(keys.read_text().partition('" ')[2])

    again = client_for(node, installation=client.installation)
    ensure_helper(again, node)
    again.transport.close()

    # The program that runs goes on, and says which one it is.
    assert helper_of(client) == (OLD, True)
    ensure_helper(client, node)
    assert helper_of(client) == (helper_version(), True)
