"""Adding a node, and checking one."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import BadInput, Conflict, RpmError
from apps.core.model_errors import from_model_error
from apps.core.notifications import NOTIFY_ALLOCATION, NOTIFY_EXECUTION, after_commit
from apps.events.services import event_record
from apps.execution.bundle import HOME
from apps.execution.client import NodeClient
from apps.execution.connections import client_for, install_helper, installation_key
from apps.execution.own_account import own_account_problem
from apps.execution.protocol.answers import Clocks, MalformedAnswer, NodeInventory
from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import AllocatedDevice
from apps.execution.services.inventory import (
    devices_elsewhere,
    node_mark_healthy,
    node_store_inventory,
    probe_request,
)
from apps.execution.services.preflight import node_preflight
from apps.execution.transport.base import HostKeyRefused, MachineRefused, TransportError
from apps.execution.transport.host_keys import HostKey, ssh_host_key
from apps.nodes.models import Device, Node, Runtime, Transport
from apps.nodes.services import node_name_check
from apps.policies.models import Pool
from apps.policies.services import live_version_raise

# A machine that is tried and does not answer gives its name free after so long at the latest.
CLAIM_FOR_CHECK = timedelta(minutes=5)


class NodeFailed(RpmError):
    """The node was not reached, or is not fit; the detail is its own words."""

    code = "node_failed"
    status = 422


@dataclass(frozen=True, slots=True)
class SimulatedGpus:
    """Devices that exist in the ledger only. `cdi` is a name pattern with `{index}`, or empty."""

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


def host_key_confirmed(address: str, port: int, wanted: str) -> HostKey:
    """The key that a machine shows, if it is the one of this fingerprint.

    Raises:
        Conflict: it is another one.
        NodeFailed: no SSH server answers there.
    """
    key = node_host_key(address=address, port=port)
    if wanted != key.fingerprint:
        words = (
            f"{address}:{port} shows {key.fingerprint}, which is not the fingerprint that was "
            "confirmed: nothing was sent to it. Connect again and compare it on the machine."
        )
        raise Conflict(words, fields={"fingerprint": words})
    return key


def host_key_of(node: Node, *, wanted: str = "") -> HostKey:
    """The key that a node shows now; with `wanted`, only if it has that fingerprint.

    Raises:
        BadInput: it is not reached over SSH.
        Conflict: it is another one.
        NodeFailed: no SSH server answers there.
    """
    if node.transport != Transport.SSH:
        raise BadInput("This machine itself has no host key.", fields={"host_key": "is for SSH"})
    if wanted:
        return host_key_confirmed(node.address, node.port, wanted)
    return node_host_key(address=node.address, port=node.port)


def node_add(
    *,
    name: str,
    pool: Pool | None,
    actor: User | None,
    host_key: HostKey | None = None,
    simulated: SimulatedGpus | None = None,
    is_shared_machine: bool = False,
    **facts: Any,
) -> Node:
    """Reach the machine, install the helper, read its inventory, and keep it; else nothing.

    Args:
        is_shared_machine: it may be a node already: what it has is given out by each of them. So
            may one whose devices are made up.
        host_key: the confirmed key; needed for SSH.
        facts: further columns of `Node`.

    Raises:
        BadInput: a column will not do.
        Conflict: the machine is a node already.
        NodeFailed: the machine was not reached or is not fit.
    """
    node = Node(name=name, pool=pool, is_simulated=simulated is not None, **facts)
    if host_key is not None:
        node.host_key = f"{host_key.kind} {host_key.base64}"
    node_clean(node)
    if node.transport == Transport.SSH and host_key is None:
        raise Conflict("Confirm the host key of the machine first.", fields={"host_key": "missing"})
    _check_pattern(simulated)
    # Claimed from the start, so that no worker begins to serve a machine that is being tried.
    node.served_by, node.served_until = "node add", timezone.now() + CLAIM_FOR_CHECK
    _save(node)
    try:
        inventory, clocks = _checked(node, simulated, is_shared_machine=is_shared_machine)
    except BaseException:
        # Nothing refers to it yet, so it can go without a trace, whatever went wrong.
        with transaction.atomic():
            node.delete()
            live_version_raise()
        raise
    with transaction.atomic():
        node_store_inventory(node, inventory, clocks)
        node_mark_healthy(node)
        Node.objects.filter(pk=node.pk).update(served_by="", served_until=None)
        _record_added(actor, node, host_key)
        after_commit(notify=[NOTIFY_ALLOCATION, NOTIFY_EXECUTION], topics=["nodes"])
    return node


def _checked(
    node: Node, simulated: SimulatedGpus | None, *, is_shared_machine: bool
) -> tuple[NodeInventory, Clocks]:
    """What the machine has, once it may be a node."""
    _make_devices(node, simulated)
    inventory, clocks = node_check(node, starts_container=True)
    refuse_known_devices(node, inventory)
    _refuse_own_account(node, inventory, clocks)
    if not is_shared_machine and simulated is None:
        refuse_known_machine(node, inventory, clocks)
    return inventory, clocks


def _record_added(actor: User | None, node: Node, host_key: HostKey | None) -> None:
    event_record(
        "node.added",
        actor=actor,
        object_type="node",
        object_id=node.pk,
        data={
            "name": node.name,
            "after": {
                "pool": node.pool.name if node.pool is not None else None,
                "address": node.address,
                "host_key": host_key.fingerprint if host_key is not None else None,
                "allows_process": node.allows_process,
                "is_simulated": node.is_simulated,
            },
        },
    )


@transaction.atomic
def _save(node: Node) -> None:
    node.save()
    live_version_raise()


def node_check(
    node: Node, *, starts_container: bool = False, is_kept: bool = True
) -> tuple[NodeInventory, Clocks]:
    """Install the helper and read the inventory; changes nothing in the database but its place.

    Args:
        starts_container: also have its runtime start one, with a device where it has some.
        is_kept: write the helper's place to the node's row; False leaves the row as it is.

    Raises:
        Conflict: it is another machine than it was, or a node already.
        NodeFailed: with the node's own words.
    """
    installation = installation_key()
    try:
        client = client_for(node, installation=installation)
        try:
            install_helper(client, node, is_kept=is_kept)
            outcome = client.probe(probe_request(node, installation=installation))
            if starts_container and isinstance(outcome, Answered):
                _start_container(node, client, outcome.answer)
        finally:
            client.transport.close()
    except HostKeyRefused as error:
        raise NodeFailed(str(error), fields={"host_key": f"shows {error.shown}"}) from error
    except MachineRefused as error:
        raise Conflict(str(error), fields={"address": str(error)}) from error
    except (TransportError, MalformedAnswer) as error:
        raise NodeFailed(str(error)) from error
    if isinstance(outcome, Answered):
        return outcome.answer, outcome.clocks
    raise NodeFailed(outcome.detail)


def _start_container(node: Node, client: NodeClient, inventory: NodeInventory) -> None:
    """Raises NodeFailed where the runtime starts no task as tasks are started."""
    devices = [AllocatedDevice(one.uuid, one.cdi) for one in inventory.devices if one.cdi][:1]
    problem = node_preflight(client, node, devices=devices)
    if problem:
        starts = "No process starts" if node.runtime == Runtime.PROCESS else "No container starts"
        words = f"{starts} there ({node.runtime}): {problem}"
        raise NodeFailed(words, fields={"runtime": words})


def node_clean(node: Node) -> None:
    """Raises BadInput, naming the column that will not do; Conflict where the name is taken."""
    if node._state.adding:
        node_name_check(node.name)
    try:
        node.full_clean()
    except ValidationError as error:
        raise from_model_error(error) from error
    if node.state_dir and not HOME.fullmatch(node.state_dir):
        problem = "must be an absolute path of letters, digits, dots, dashes and underscores"
        raise BadInput(f"state_dir {problem}.", fields={"state_dir": problem})
    if node.runtime == Runtime.PROCESS and not node.allows_process:
        problem = "must be true where the runtime is process: its tasks run without a container"
        words = f"allows_process {problem} (--allow-process)."
        raise BadInput(words, fields={"allows_process": problem})


def refuse_known_devices(node: Node, inventory: NodeInventory) -> None:
    """A GPU that another node gives out must not be given out twice.

    Raises:
        Conflict: one of its GPUs is another node's.
    """
    elsewhere = devices_elsewhere(node, inventory.devices)
    known = elsewhere.select_related("node").first()
    if known is not None:
        words = f"This machine is node {known.node.name} already: {known.uuid} is a GPU of both."
        raise Conflict(words, fields={"address": words})


def _refuse_own_account(node: Node, inventory: NodeInventory, clocks: Clocks) -> None:
    """Raises NodeFailed where tasks would run as the control plane does."""
    node.boot_id = clocks.boot_id
    problem = own_account_problem(node, inventory.account)
    if problem:
        raise NodeFailed(problem, fields={"runtime": problem})


def refuse_known_machine(node: Node, inventory: NodeInventory, clocks: Clocks) -> None:
    """CPU and memory of one machine must not be given out by two nodes.

    Copies of a machine keep its number and its host key, but each has booted by itself; containers
    of one machine share its boot, and differ in the others. Simulated nodes, such as those of the
    demonstration, take nothing from a machine that is really given out.

    Raises:
        Conflict: it is another node's machine.
    """
    same_boot = Node.objects.filter(
        removed_at__isnull=True, boot_id=clocks.boot_id, is_simulated=False
    )
    for other in same_boot.exclude(pk=node.pk):
        is_same_way = other.transport == node.transport and other.host_key == node.host_key
        is_same_number = (
            inventory.machine_id and other.report.get("machine_id") == inventory.machine_id
        )
        if is_same_way or is_same_number:
            words = (
                f"This machine is node {other.name} already, with another folder. Let both give "
                "out its CPU and memory with --same-machine (REST: is_shared_machine)."
            )
            needed = "is needed where both nodes are to give out its CPU and memory"
            raise Conflict(words, fields={"address": words, "is_shared_machine": needed})


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
