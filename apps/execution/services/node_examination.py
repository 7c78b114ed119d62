"""Examines a node for an administrator: what it has, and what is wrong with it."""

import time
from dataclasses import replace
from typing import Any

from msgspec import MsgspecError, json

from apps.execution.connections import client_for, installation_key
from apps.execution.preflight_findings import SESSIONS, ConnectionFacts, PreflightFinding, examine
from apps.execution.protocol.answers import Clocks, NodeInventory
from apps.execution.protocol.requests import AllocatedDevice
from apps.execution.services.node_registration import (
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

EXAMINE_TIMEOUT_S = 30.0
# Constant, as everything that is sent to be run.
SHELL = b"import json, os, pwd; print(json.dumps(pwd.getpwuid(os.getuid()).pw_shell))"


def node_examine(node: Node) -> tuple[NodeInventory, list[PreflightFinding]]:
    """Install the helper, read the inventory, and try what the control plane relies on.

    Raises:
        NodeFailed: with the node's own words.
    """
    return _examined(node, *node_check(node))


def machine_examine(
    *, host_key: HostKey, is_shared_machine: bool = False, **facts: Any
) -> tuple[NodeInventory, list[PreflightFinding]]:
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
    inventory, clocks = node_check(node, is_kept=False)
    refuse_known_devices(node, inventory)
    if not is_shared_machine:
        refuse_known_machine(node, inventory, clocks)
    return _examined(node, inventory, clocks, is_new=True)


def _examined(
    node: Node, inventory: NodeInventory, clocks: Clocks, *, is_new: bool = False
) -> tuple[NodeInventory, list[PreflightFinding]]:
    connection = ConnectionFacts(skew_s=clocks.wall_s - time.time(), account=node.user)
    client = client_for(node, installation=installation_key())
    devices = [AllocatedDevice(one.uuid, one.cdi) for one in inventory.devices if one.cdi][:1]
    try:
        problem = node_preflight(client, node, devices=devices)
        if isinstance(client.transport, SshTransport):
            connection = _probe_connection(client.transport, connection)
    finally:
        client.transport.close()
    return inventory, examine(
        inventory, connection, runtime=node.runtime, problem=problem, is_new=is_new
    )


def _probe_connection(transport: SshTransport, connection: ConnectionFacts) -> ConnectionFacts:
    """What only trying tells; the node answered a moment ago, so a failure is left unsaid."""
    try:
        connection = replace(
            connection, is_restricted=transport.is_restricted(timeout_s=EXAMINE_TIMEOUT_S)
        )
        shell = transport.install(SHELL, timeout_s=EXAMINE_TIMEOUT_S)
        connection = replace(connection, shell=json.decode(shell, type=str))
        # At the end: the node's sshd may need a moment to take the sessions back.
        sessions = transport.sessions_at_once(most=SESSIONS, timeout_s=EXAMINE_TIMEOUT_S)
        return replace(connection, sessions=sessions)
    except (TransportError, MsgspecError):
        return connection
