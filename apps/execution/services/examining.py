"""Looking at a node as an administrator would, to say what is wrong with it."""

import time
from dataclasses import replace

from msgspec import MsgspecError, json

from apps.execution.connections import client_for, installation_key
from apps.execution.fitness import SESSIONS, Conversation, Finding, examine
from apps.execution.protocol.answers import Probed
from apps.execution.services.adding import node_check
from apps.execution.transport.base import TransportError
from apps.execution.transport.ssh import SshTransport
from apps.nodes.models import Node

LOOK_S = 30.0
# Constant, as everything that is sent to be run.
SHELL = b"import json, os, pwd; print(json.dumps(pwd.getpwuid(os.getuid()).pw_shell))"


def node_examine(node: Node) -> tuple[Probed, list[Finding]]:
    """Install the helper, read the inventory, and try what the control plane relies on.

    Raises:
        NodeFailed: with the node's own words.
    """
    probed, clocks = node_check(node)
    seen = Conversation(skew_s=clocks.wall_s - time.time())
    client = client_for(node, installation=installation_key())
    try:
        if isinstance(client.transport, SshTransport):
            seen = _tried(client.transport, seen)
    finally:
        client.transport.close()
    return probed, examine(probed, seen, runtime=node.runtime)


def _tried(transport: SshTransport, seen: Conversation) -> Conversation:
    """What only trying tells; the node answered a moment ago, so a failure is left unsaid."""
    try:
        seen = replace(seen, is_restricted=transport.is_restricted(timeout_s=LOOK_S))
        told = transport.install(SHELL, timeout_s=LOOK_S)
        seen = replace(seen, shell=json.decode(told, type=str))
        # At the end: the node's sshd may need a moment to take the sessions back.
        sessions = transport.sessions_at_once(most=SESSIONS, timeout_s=LOOK_S)
        return replace(seen, sessions=sessions)
    except (TransportError, MsgspecError):
        return seen
