"""Clients for the rows of nodes."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import structlog
from django.conf import settings

from apps.execution.bundle import helper_version
from apps.execution.client import NodeClient
from apps.execution.protocol.answers import Clocks, HelloAnswer, MalformedAnswer, Refusal
from apps.execution.transport.base import (
    MachineRefused,
    NodeTransport,
    ProgramFailed,
    Unreachable,
)
from apps.execution.transport.channel import ChannelTransport
from apps.execution.transport.host_keys import HostKey
from apps.execution.transport.local import LocalTransport
from apps.execution.transport.ssh import SshNode, SshTransport
from apps.nodes.models import Installation, Node
from apps.nodes.models import Transport as TransportKind

log = structlog.get_logger(__name__)

CONNECTION_FIELDS = (
    *("transport", "address", "port", "user", "key_path", "host_key"),
    # And what the node is probed for.
    *("state_dir", "environment", "runtime", "capacity_cap"),
)

# Whose answer it is; without the second part, of a release that knows no channel.
_Helper = tuple[Clocks, HelloAnswer | None]


def client_for(node: Node, *, installation: str) -> NodeClient:
    """A client for the node; connects when it is first asked something.

    Raises:
        Unreachable: the node's private key cannot be read.
    """
    return NodeClient(_transport(node), installation)


def installation_key() -> str:
    """The id that names and labels on the nodes carry."""
    return Installation.objects.values_list("key", flat=True).get(id=1)


def connection_facts(node: Node) -> tuple[object, ...]:
    """What a connection was made with; when it differs, a new connection is opened."""
    return tuple(str(getattr(node, name)) for name in CONNECTION_FIELDS)


def install_helper(client: NodeClient, node: Node, *, is_kept: bool = True) -> None:
    """Put this version of the helper on the node, and remember where it lives.

    Args:
        is_kept: write it to the node's row too.

    Raises:
        TransportError: the node was not reached, or it is another machine.
        MalformedAnswer: it was, and said why it cannot.
    """
    others = Node.objects.filter(removed_at__isnull=True).exclude(identity="").exclude(pk=node.pk)
    installed = client.install(
        home=node.state_dir,
        environment=dict(node.environment),
        known=dict(others.values_list("identity", "name")),
        has_streams=settings.STREAMS,
    )
    if installed.known:
        raise MachineRefused(
            f"This machine is node {installed.known} already: {installed.home} there is its folder."
        )
    if node.identity and installed.identity != node.identity:
        raise MachineRefused(
            f"This is not the machine that node {node.name} was: it was set up again, or lost "
            f"{node.helper_home}. Replace the node's key to say that it is to be this one."
        )
    found = {"helper_home": installed.home, "identity": installed.identity}
    if any(getattr(node, name) != value for name, value in found.items()):
        node.helper_home, node.identity = installed.home, installed.identity
        if is_kept:
            Node.objects.filter(pk=node.pk).update(**found)
    _set_home(client.transport, installed.home)


def ensure_helper(client: NodeClient, node: Node) -> None:
    """Install the helper unless exactly this one is there already.

    A node that takes no new helper, or cannot hold one now, goes on with the one that it has.

    Raises:
        TransportError: the node was not reached, or it is another machine.
        MalformedAnswer: it was, has no helper, and said why it cannot have one.
    """
    there = _there(client, node)
    if not _is_current(node, there):
        try:
            install_helper(client, node)
            there = _there(client, node)
        except ProgramFailed as error:
            if there is None:
                raise
            log.warning("node.helper_kept", node=node.pk, helper=there[0].helper, detail=str(error))
    if isinstance(client.transport, ChannelTransport):
        client.transport.retire_helper()
        client.transport.has_channel = there is not None and there[1] is not None


def _there(client: NodeClient, node: Node) -> _Helper | None:
    """The helper that is there; None where there is none, or another node's.

    Raises:
        TransportError: the node was not reached.
    """
    if not node.helper_home:
        return None
    if isinstance(client.transport, ChannelTransport):
        # One that runs need not be the one that is installed.
        client.transport.has_channel = False
    try:
        clocks, answer = client.hello()
    except (ProgramFailed, MalformedAnswer):
        return None
    if isinstance(answer, Refusal):
        return clocks, None
    return (clocks, answer) if answer.identity == node.identity else None


def _is_current(node: Node, there: _Helper | None) -> bool:
    if there is None or there[1] is None:
        return False
    environment = json.dumps(dict(node.environment), sort_keys=True).encode()
    return (
        there[0].helper == helper_version()
        and there[1].has_streams == settings.STREAMS
        and there[1].environment == hashlib.sha256(environment).hexdigest()
        and node.state_dir in ("", node.helper_home)
    )


def pinned_key(node: Node) -> HostKey | None:
    """The key that the node has to show: `type base64`, as in known_hosts."""
    if not node.host_key:
        return None
    kind, content = node.host_key.split()[:2]
    return HostKey(kind, content)


def _transport(node: Node) -> NodeTransport:
    if node.transport == TransportKind.LOCAL:
        return LocalTransport(node.helper_home)
    return SshTransport(
        SshNode(
            address=node.address,
            port=node.port,
            user=node.user,
            private_key=_private_key(node),
            host_key=pinned_key(node),
            home=node.helper_home,
        )
    )


def _private_key(node: Node) -> str:
    try:
        return Path(node.key_path).read_text(encoding="utf-8")
    except OSError as error:
        raise Unreachable(
            f"the private key {node.key_path!r} cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise Unreachable(f"{node.key_path!r} is not a private key in text form") from error


def _set_home(transport: NodeTransport, home: str) -> None:
    if isinstance(transport, LocalTransport):
        transport.home = home
    elif isinstance(transport, SshTransport):
        transport.node = replace(transport.node, home=home)
