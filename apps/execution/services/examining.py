"""Looking at a node as an administrator would, to say what is wrong with it."""

import time
from dataclasses import replace
from typing import Any

from msgspec import MsgspecError, json

from apps.execution.connections import client_for, installation_key
from apps.execution.fitness import SESSIONS, Conversation, Finding, examine
from apps.execution.protocol.answers import Clocks, Probed
from apps.execution.protocol.requests import GivenDevice
from apps.execution.services.adding import (
    node_check,
    node_clean,
    refuse_known_devices,
    refuse_known_machine,
)
from apps.execution.services.preflight import node_preflight
from apps.execution.transport.base import TransportError
from apps.execution.transport.host_keys import HostKey
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
    return _examined(node, *node_check(node))


def machine_examine(
    *, host_key: HostKey, is_shared_machine: bool = False, **facts: Any
) -> tuple[Probed, list[Finding]]:
    """The same of a machine that is no node yet; nothing of it is kept.

    Args:
        is_shared_machine: it may be another node's, too, as for `node_add`.

    Raises:
        BadInput: naming the field.
        Conflict: it is a node already.
        NodeFailed: with the machine's own words.
    """
    node = Node(**facts, host_key=f"{host_key.kind} {host_key.base64}")
    node_clean(node)
    probed, clocks = node_check(node, is_kept=False)
    refuse_known_devices(node, probed)
    if not is_shared_machine:
        refuse_known_machine(node, probed, clocks)
    return _examined(node, probed, clocks)


def _examined(node: Node, probed: Probed, clocks: Clocks) -> tuple[Probed, list[Finding]]:
    seen = Conversation(skew_s=clocks.wall_s - time.time())
    client = client_for(node, installation=installation_key())
    devices = [GivenDevice(one.uuid, one.cdi) for one in probed.devices if one.cdi][:1]
    try:
        problem = node_preflight(client, node, devices=devices)
        if isinstance(client.transport, SshTransport):
            seen = _tried(client.transport, seen)
    finally:
        client.transport.close()
    return probed, examine(probed, seen, runtime=node.runtime, problem=problem)


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
