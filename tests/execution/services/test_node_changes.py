"""Changing how a node is reached, and its key, with a real SSH server."""

import shutil
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.core.errors import BadInput, Conflict
from apps.events.models import Event
from apps.execution.protocol.answers import Clocks
from apps.execution.services.node_changes import node_edit, node_rekey
from apps.execution.services.node_examination import machine_examine
from apps.execution.services.node_registration import (
    NodeFailed,
    SimulatedGpus,
    host_key_of,
    node_add,
    node_check,
    refuse_known_devices,
    refuse_known_machine,
)
from apps.nodes.models import Device, DeviceState, Node, Runtime
from apps.policies.models import Queue
from apps.tasks.models import Member
from tests.allocation.state import begin, enqueue, latest, make_node, states
from tests.execution.test_preflight_findings import FIT
from tests.people import Example
from tests.services.sshd import SshdNode, StartSshNode

pytestmark = pytest.mark.django_db

Add = Callable[..., Node]


@pytest.fixture
def add(example: Example) -> Add:
    def add(server: SshdNode, name: str = "far", **changes: Any) -> Node:
        facts = reached_by(server) | {"pool": example.bare_metal} | changes
        simulated = SimulatedGpus(count=8)
        return node_add(
            name=name, actor=None, host_key=server.host_key, simulated=simulated, **facts
        )

    return add


def reached_by(server: SshdNode) -> dict[str, Any]:
    return {
        "address": server.address,
        "port": server.port,
        "user": server.user,
        "key_path": str(server.key_path),
        "runtime": Runtime.PROCESS,
        "allows_process": True,
        "state_dir": server.home,
    }


def show_another_key(server: SshdNode) -> None:
    server.stop()
    server.change_host_key()
    server.start()


def test_the_same_machine_is_no_node_under_a_second_name(add: Add, ssh_node: SshdNode) -> None:
    first = add(ssh_node)

    with pytest.raises(Conflict, match="is node far already"):
        add(ssh_node, "second")
    facts = reached_by(ssh_node)
    with pytest.raises(Conflict, match="is node far already"):
        machine_examine(host_key=ssh_node.host_key, name="third", pool=None, **facts)

    assert Node.objects.get() == first


def test_a_gpu_that_another_node_gives_out_is_known_whatever_the_folder(
    add: Add, ssh_node: SshdNode, example: Example
) -> None:
    """A second folder on the same machine would give its GPUs out twice."""
    node = add(ssh_node)
    inventory, _clocks = node_check(node)
    real = msgspec.structs.replace(inventory.devices[0], uuid="GPU-1", simulated=False)
    inventory = msgspec.structs.replace(inventory, devices=(real,))
    other = Node.objects.create(name="other", pool=example.bare_metal)
    device = Device.objects.create(node=other, index=0, uuid="GPU-1")

    with pytest.raises(Conflict, match="is node other already: GPU-1"):
        refuse_known_devices(node, inventory)
    # It was moved from there.
    Device.objects.filter(pk=device.pk).update(state=DeviceState.MISSING)
    refuse_known_devices(node, inventory)


def test_a_machine_gives_out_its_cpu_once_whatever_the_folder(
    ssh_node: SshdNode, example: Example
) -> None:
    facts = reached_by(ssh_node) | {"pool": example.bare_metal, "actor": None}
    facts["host_key"] = ssh_node.host_key
    node_add(name="far", **facts)
    facts["state_dir"] = f"{ssh_node.home}-2"

    with pytest.raises(Conflict, match="is node far already"):
        node_add(name="second", **facts)
    assert Node.objects.count() == 1
    second = node_add(name="second", is_shared_machine=True, **facts)

    assert second.state == "healthy"
    node_edit(actor=None, node=second, values={"state_dir": f"{ssh_node.home}-3"})


@pytest.mark.parametrize(
    ("boot", "number", "is_known"),
    [
        pytest.param("boot", "number", True, id="the same machine"),
        pytest.param("another", "number", False, id="a copy of it"),
        pytest.param("boot", "another", False, id="a container on it"),
        pytest.param("boot", "", False, id="one without a number"),
    ],
)
def test_boot_and_number_together_tell_machines_apart(
    example: Example, boot: str, number: str, *, is_known: bool
) -> None:
    make_node(
        example.bare_metal,
        name="one",
        transport="ssh",
        host_key="a b",
        boot_id="boot",
        report={"machine_id": "number"},
    )
    node = Node(name="two", transport="ssh", host_key="c d")
    inventory = msgspec.structs.replace(FIT, machine_id=number)
    clocks = Clocks(helper="1", boot_id=boot, uptime_s=1.0, wall_s=1.0)

    if not is_known:
        refuse_known_machine(node, inventory, clocks)
        return
    with pytest.raises(Conflict, match="is node one already"):
        refuse_known_machine(node, inventory, clocks)


def test_another_address_is_tried_before_it_is_kept(
    add: Add, ssh_node: SshdNode, root: User
) -> None:
    node = add(ssh_node)
    port = ssh_node.port
    ssh_node.stop()
    ssh_node.port = 0
    ssh_node.start()

    with pytest.raises(NodeFailed):
        node_edit(actor=root, node=node, values={"port": 1})
    node_edit(actor=root, node=node, values={"port": ssh_node.port, "labels": {"rack": "4"}})

    node.refresh_from_db()
    assert (node.port, node.labels) == (ssh_node.port, {"rack": "4"})
    assert ssh_node.port != port
    assert Event.objects.get(kind="node.changed").data["fields"] == ["labels", "port"]


def test_another_machine_is_not_reached_under_the_name(
    add: Add, start_ssh_node: StartSshNode, root: User
) -> None:
    one, two = start_ssh_node(), start_ssh_node()
    node = add(one)

    with pytest.raises(NodeFailed):
        node_edit(actor=root, node=node, values={"port": two.port, "state_dir": two.home})

    node.refresh_from_db()
    assert node.port == one.port


def test_runtime_account_and_folder_change_only_while_nothing_runs(
    add: Add, ssh_node: SshdNode, example: Example, alice: User, root: User
) -> None:
    node = add(ssh_node)
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()

    with pytest.raises(Conflict, match=f"^state_dir can be changed when .*{task.name}"):
        node_edit(actor=root, node=node, values={"state_dir": f"{ssh_node.home}-2"})


@pytest.mark.parametrize("folder", ["relative", "/a b", "/x;rm"])
def test_a_folder_that_a_shell_could_misread_is_refused(
    add: Add, ssh_node: SshdNode, root: User, folder: str
) -> None:
    node = add(ssh_node)

    with pytest.raises(BadInput) as caught:
        node_edit(actor=root, node=node, values={"state_dir": folder})

    assert list(caught.value.fields) == ["state_dir"]


def test_a_new_host_key_is_pinned_once_it_is_confirmed_and_both_are_noted(
    add: Add, ssh_node: SshdNode, root: User
) -> None:
    node = add(ssh_node)
    old = ssh_node.host_key.fingerprint
    show_another_key(ssh_node)
    new = ssh_node.host_key.fingerprint

    with pytest.raises(Conflict, match="nothing was sent"):
        host_key_of(node, wanted=old)
    node_rekey(actor=root, node=node, host_key=host_key_of(node, wanted=new))

    node.refresh_from_db()
    assert node.host_key.split() == [ssh_node.host_key.kind, ssh_node.host_key.base64]
    event = Event.objects.get(kind="node.rekeyed")
    assert (event.data["old_fingerprint"], event.data["new_fingerprint"]) == (old, new)


def test_a_machine_that_was_set_up_again_is_a_deliberate_act(
    add: Add, ssh_node: SshdNode, example: Example, alice: User, root: User
) -> None:
    node = add(ssh_node)
    before = node.identity
    shutil.rmtree(ssh_node.home)
    show_another_key(ssh_node)
    key = host_key_of(node)

    with pytest.raises(Conflict, match="set up again"):
        node_rekey(actor=root, node=node, host_key=key)
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    begin(latest(task))
    with pytest.raises(BadInput, match="nothing of its work runs"):
        node_rekey(actor=root, node=node, host_key=key, is_replaced=True)
    node_rekey(actor=root, node=node, host_key=key, is_replaced=True, reason="a new disk")

    node.refresh_from_db()
    assert node.identity not in {"", before}
    attempt = latest(task)
    assert (attempt.state, attempt.detail) == (
        "lost",
        "node_loss: the node was replaced: a new disk.",
    )
    assert states([task]) == ["queued"]
    assert not Member.objects.filter(released_at__isnull=True).exists()


def test_work_of_a_replaced_machine_fails_where_its_queue_says_so(
    add: Add, ssh_node: SshdNode, example: Example, alice: User, root: User
) -> None:
    node = add(ssh_node)
    Queue.objects.update(on_node_loss="fail")
    running, waiting = enqueue(alice, example.dev_queue, 2)
    run_pass()
    begin(latest(running))

    node_rekey(
        actor=root, node=node, host_key=host_key_of(node), is_replaced=True, reason="a new disk"
    )

    # What was not launched yet is launched on the new machine.
    assert states([running, waiting]) == ["failed", "allocated"]
