"""Devices as the helper reports them: real pynvml, a stand-in for the driver under it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from apps.execution.protocol.answers import DeviceProcess, DeviceReport, NodeInventory
from tests.execution.nodes import TestedNode, installed_local, member_of
from tests.nvml.driver import GPU_IS_LOST, VERSION_MISMATCH, Gpu, Slice, StubDriver

# No process has this number: it is beyond the kernel's highest.
FOREIGN_PID = 4_194_305


@pytest.fixture
def node(stub_driver: StubDriver, tmp_path: Path) -> TestedNode:
    return installed_local(str(tmp_path / "home"))


def inventory(node: TestedNode) -> NodeInventory:
    return node.probe().answer


def processes(node: TestedNode) -> tuple[DeviceProcess, ...]:
    return node.sync(full=True).device_processes


def test_devices_are_reported_as_the_driver_knows_them(
    stub_driver: StubDriver, node: TestedNode
) -> None:
    stub_driver.tell(
        Gpu("GPU-a", memory_mb=81_559, used_mb=1_024, utilisation=37),
        Gpu("GPU-b", memory_mb=24_576, name="NVIDIA L4", capability="8.9"),
        version="570.86.10",
    )

    answer = inventory(node)

    assert (answer.nvidia, answer.driver) == ("ok", "570.86.10")
    assert answer.devices == (
        DeviceReport(0, "GPU-a", "NVIDIA H100 80GB HBM3", 81_559, 1_024, "", False, 37),
        DeviceReport(1, "GPU-b", "NVIDIA L4", 24_576, 0, "", False, 0),
    )


def test_a_machine_without_gpus_has_a_driver_that_is_fine(node: TestedNode) -> None:
    assert (inventory(node).nvidia, inventory(node).devices) == ("ok", ())


def test_a_gpu_that_falls_off_the_bus_is_named_and_hides_no_other(
    stub_driver: StubDriver, node: TestedNode
) -> None:
    stub_driver.tell(Gpu("GPU-a"), Gpu("GPU-b"), Gpu("GPU-c"))
    assert len(inventory(node).devices) == 3

    stub_driver.tell(Gpu("GPU-a"), Gpu("GPU-b", error=GPU_IS_LOST), Gpu("GPU-c"))

    answer = inventory(node)
    assert answer.nvidia == "GPU 1: GPU is lost"
    assert [(one.index, one.uuid) for one in answer.devices] == [(0, "GPU-a"), (2, "GPU-c")]


def test_libraries_that_are_newer_than_the_driver_are_reported_with_the_fix(
    stub_driver: StubDriver, node: TestedNode
) -> None:
    stub_driver.tell(Gpu("GPU-a"), init=VERSION_MISMATCH)

    answer = inventory(node)

    assert answer.devices == ()
    assert answer.nvidia == (
        "the NVIDIA driver says: RM has detected an NVML/RM version mismatch. "
        "(its libraries were updated: reload its kernel modules, or restart the node)"
    )


def test_a_driver_whose_modules_are_not_loaded_says_so(
    stub_driver: StubDriver, node: TestedNode
) -> None:
    stub_driver.scenario.unlink()

    assert inventory(node).nvidia == "the NVIDIA driver says: Driver Not Loaded"


def test_slices_are_devices_and_the_gpu_that_is_split_is_not(
    stub_driver: StubDriver, node: TestedNode
) -> None:
    slices = (Slice("MIG-1", used_mb=12), Slice("MIG-2", name="NVIDIA H100 MIG 2g.20gb"))
    stub_driver.tell(Gpu("GPU-a", is_split=True, slices=slices), Gpu("GPU-b"))

    first, second, whole = inventory(node).devices

    assert (first.uuid, first.parent_uuid, first.index) == ("MIG-1", "GPU-a", 100)
    assert (first.memory_mb, first.used_mb, first.utilisation_percent) == (9_856, 12, None)
    assert (second.uuid, second.model) == ("MIG-2", "NVIDIA H100 MIG 2g.20gb")
    assert (whole.uuid, whole.parent_uuid, whole.index) == ("GPU-b", "", 1)


def test_a_split_gpu_without_slices_offers_nothing(
    stub_driver: StubDriver, node: TestedNode
) -> None:
    stub_driver.tell(Gpu("GPU-a", is_split=True))

    assert (inventory(node).nvidia, inventory(node).devices) == ("ok", ())


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param("MIG-1", "nvidia.com/gpu=MIG-1", id="by UUID"),
        pytest.param("0:0", "nvidia.com/gpu=0:0", id="by numbers"),
        pytest.param("0", "", id="not by the name of the whole GPU"),
    ],
)
def test_a_slice_is_handed_over_by_the_name_that_cdi_files_give_it(
    stub_driver: StubDriver, name: str, want: str
) -> None:
    stub_driver.tell(Gpu("GPU-a", is_split=True, slices=(Slice("MIG-1"),)))
    program = (
        "import json; from apps.execution.node import devices; "
        f"devices.cdi_names = lambda: {{'nvidia.com/gpu={name}'}}; "
        "print(json.dumps(devices.inventory()))"
    )

    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)

    (device,) = json.loads(done.stdout)["devices"]
    assert device["cdi"] == want


def test_a_process_of_somebody_else_is_not_ours(stub_driver: StubDriver, node: TestedNode) -> None:
    stub_driver.tell(Gpu("GPU-a"), Gpu("GPU-b", processes=((FOREIGN_PID, 512),)))

    assert processes(node) == (DeviceProcess("GPU-b", FOREIGN_PID, 512, None),)


def test_a_process_below_a_member_is_the_members(
    stub_driver: StubDriver, node: TestedNode, tmp_path: Path
) -> None:
    request = node.launch_request("sh", "-c", "sleep 60 & echo $!; wait")
    node.client.launch(request)
    member = member_of(request)
    node.wait_for(member, lambda _: node.logs.get(member, b"").endswith(b"\n"))
    child = int(node.logs[member])

    stub_driver.tell(Gpu("GPU-a", processes=((child, 700), (FOREIGN_PID, 1))))

    assert processes(node) == (
        DeviceProcess("GPU-a", child, 700, member),
        DeviceProcess("GPU-a", FOREIGN_PID, 1, None),
    )
    node.stop(member, grace_s=0)
    node.wait_for_exit(member)


def test_clients_of_mps_are_seen_once(stub_driver: StubDriver, node: TestedNode) -> None:
    stub_driver.tell(
        Gpu(
            "GPU-a",
            processes=((FOREIGN_PID, 512),),
            clients=((FOREIGN_PID, 512), (FOREIGN_PID + 1, 8)),
        )
    )

    assert {one.pid for one in processes(node)} == {FOREIGN_PID, FOREIGN_PID + 1}
    assert len(processes(node)) == 2


def test_processes_of_a_split_gpu_are_those_of_its_slices(
    stub_driver: StubDriver, node: TestedNode
) -> None:
    slices = (Slice("MIG-1"), Slice("MIG-2", processes=((FOREIGN_PID, 64),)))
    stub_driver.tell(Gpu("GPU-a", is_split=True, slices=slices))

    assert processes(node) == (DeviceProcess("MIG-2", FOREIGN_PID, 64, None),)


def test_a_lost_gpu_does_not_hide_who_computes_on_the_others(
    stub_driver: StubDriver, node: TestedNode
) -> None:
    stub_driver.tell(Gpu("GPU-a", error=GPU_IS_LOST), Gpu("GPU-b", processes=((FOREIGN_PID, 5),)))

    assert processes(node) == (DeviceProcess("GPU-b", FOREIGN_PID, 5, None),)
