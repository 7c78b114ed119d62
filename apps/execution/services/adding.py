"""Adding a node, and checking one."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.doorbell import after_commit
from apps.core.errors import BadInput, Conflict, RpmError
from apps.core.model_errors import from_model_error
from apps.events.services import event_record
from apps.execution.connections import client_for, install_helper, installation_key
from apps.execution.protocol.answers import AnswerMalformed, Clocks, Probed
from apps.execution.protocol.outcomes import Answered
from apps.execution.services.inventory import node_answered, node_probed, probe_request
from apps.execution.transport.base import HostKeyRefused, TransportError
from apps.execution.transport.host_keys import HostKey, ssh_host_key
from apps.nodes.models import Device, Node, Transport
from apps.policies.models import Pool

# A machine that is tried and does not answer gives its name free after so long at the latest.
TRIED_FOR = timedelta(minutes=5)


class NodeFailed(RpmError):
    """The node was not reached, or is not fit; the detail is its own words."""

    code = "node_failed"
    status = 502


@dataclass(frozen=True, slots=True)
class SimulatedGpus:
    """Devices that exist in the books only. `cdi` is a name pattern with `{index}`, or empty."""

    count: int
    model: str = "Simulated GPU"
    memory_mb: int = 80 * 1024
    cdi: str = ""


def node_host_key(*, address: str, port: int) -> HostKey:
    """The key that a machine shows, for an administrator to confirm; nothing is sent to it.

    Raises:
        NodeFailed: no SSH server answers there.
    """
    try:
        return ssh_host_key(address, port)
    except TransportError as error:
        raise NodeFailed(str(error), fields={"address": str(error)}) from error


def node_add(
    *,
    name: str,
    pool: Pool | None,
    actor: User | None,
    host_key: HostKey | None = None,
    simulated: SimulatedGpus | None = None,
    **facts: Any,
) -> Node:
    """Reach the machine, install the helper, read its inventory, and keep it; else nothing.

    Args:
        host_key: the confirmed key; needed for SSH.
        facts: further columns of `Node`.

    Raises:
        BadInput: a column will not do.
        NodeFailed: the machine was not reached or is not fit.
    """
    node = Node(name=name, pool=pool, is_simulated=simulated is not None, **facts)
    if host_key is not None:
        node.host_key = f"{host_key.kind} {host_key.base64}"
    try:
        node.full_clean()
    except ValidationError as error:
        raise from_model_error(error) from error
    if node.transport == Transport.SSH and host_key is None:
        raise Conflict("Confirm the host key of the machine first.", fields={"host_key": "missing"})
    _check_pattern(simulated)
    # Claimed from the start, so that no worker begins to serve a machine that is being tried.
    node.served_by, node.served_until = "node add", timezone.now() + TRIED_FOR
    node.save()
    try:
        _make_devices(node, simulated)
        probed, clocks = node_check(node)
    except BaseException:
        # Nothing refers to it yet, so it can go without a trace, whatever went wrong.
        node.delete()
        raise
    with transaction.atomic():
        node_probed(node, probed, clocks)
        node_answered(node)
        Node.objects.filter(pk=node.pk).update(served_by="", served_until=None)
        event_record(
            "node.added",
            actor=actor,
            object_type="node",
            object_id=node.pk,
            data={
                "name": name,
                "after": {
                    "pool": pool.name if pool is not None else None,
                    "address": node.address,
                    "host_key": host_key.fingerprint if host_key is not None else None,
                    "allows_process": node.allows_process,
                    "is_simulated": node.is_simulated,
                },
            },
        )
        after_commit(tasks=["allocation.run_pass", "execution.look"], topics=["nodes"])
    return node


def node_check(node: Node) -> tuple[Probed, Clocks]:
    """Install the helper and read the inventory; changes nothing in the database but its place.

    Raises:
        NodeFailed: with the node's own words.
    """
    installation = installation_key()
    try:
        client = client_for(node, installation=installation)
        try:
            install_helper(client, node)
            outcome = client.probe(probe_request(node, installation=installation))
        finally:
            client.transport.close()
    except HostKeyRefused as error:
        raise NodeFailed(str(error), fields={"host_key": f"shows {error.shown}"}) from error
    except (TransportError, AnswerMalformed) as error:
        raise NodeFailed(str(error)) from error
    if isinstance(outcome, Answered):
        return outcome.answer, outcome.clocks
    raise NodeFailed(outcome.detail)


def _check_pattern(simulated: SimulatedGpus | None) -> None:
    """Raises BadInput where the CDI pattern has other fields than the number."""
    if simulated is None:
        return
    try:
        simulated.cdi.format(index=0)
    except (KeyError, IndexError, ValueError) as error:
        problem = "may hold {index}, the number of the device, and no other field"
        raise BadInput(f"simulated_cdi {problem}.", fields={"simulated_cdi": problem}) from error


def _make_devices(node: Node, simulated: SimulatedGpus | None) -> None:
    if simulated is None:
        return
    Device.objects.bulk_create(
        Device(
            node=node,
            index=index,
            uuid=f"SIM-{node.pk}-{index}",
            model=simulated.model,
            memory_mb=simulated.memory_mb,
            is_simulated=True,
            cdi=simulated.cdi.format(index=index),
        )
        for index in range(simulated.count)
    )
