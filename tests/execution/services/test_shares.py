"""How a share of a device reaches the node."""

import pytest

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.container_specs import container_spec
from apps.execution.protocol.requests import AllocatedDevice
from apps.nodes.models import Device, Node
from apps.tasks.models import Member
from tests.allocation.state import enqueue, make_node
from tests.people import Example

MPS = {"memory": "mps", "compute": "mps", "detail": ""}
MIG = {"memory": "mig", "compute": "mig", "detail": ""}
ACCOUNTED = {"memory": "accounted", "compute": "accounted", "detail": "no MPS"}


@pytest.fixture
def member(example: Example, alice: User) -> Member:
    """A task on a node whose devices have 81,559 MiB each."""
    node = make_node(example.bare_metal, name="b1")
    Device.objects.filter(node=node).update(memory_mb=81_559, cdi="nvidia.com/gpu=0")
    enqueue(alice, example.dev_queue)
    run_pass()
    return Member.objects.select_related("node", "attempt__task__owner").get()


def given(
    member: Member, *, milli: int, enforcement: object = MPS, **device: object
) -> AllocatedDevice:
    """The device in the launch request, of which the task holds so much."""
    Node.objects.update(report={"enforcement": enforcement})
    Device.objects.update(**device or {"is_simulated": False})
    member.refresh_from_db()
    member.devices = [[0, milli]]
    (found,) = container_spec(member).devices
    return found


def test_a_share_has_its_part_of_the_memory_and_is_enforced_by_mps(member: Member) -> None:
    assert given(member, milli=250) == AllocatedDevice(
        "GPU-b1-0", "nvidia.com/gpu=0", milli=250, memory_mb=20_389, enforced_by="mps"
    )


def test_a_whole_device_needs_nobody_to_hold_a_task_to_it(member: Member) -> None:
    assert given(member, milli=1000) == AllocatedDevice(
        "GPU-b1-0", "nvidia.com/gpu=0", milli=1000, memory_mb=81_559
    )


@pytest.mark.parametrize("enforcement", [ACCOUNTED, MIG, None])
def test_where_the_node_has_no_mps_a_share_is_accounted(
    member: Member, enforcement: object
) -> None:
    assert given(member, milli=500, enforcement=enforcement).enforced_by == ""


def test_a_simulated_device_is_never_enforced(member: Member) -> None:
    assert given(member, milli=500, is_simulated=True).enforced_by == ""


def test_a_share_of_a_slice_is_accounted(member: Member) -> None:
    assert given(member, milli=500, parent_uuid="GPU-1").enforced_by == ""
