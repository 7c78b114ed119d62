"""A real GPU and a node on this machine that gives it out.

Elsewhere these tests are skipped. With GPU_FIGURES=<file> they also write down what they saw.
"""

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pynvml
import pytest

from apps.execution.protocol.answers import DeviceReport, NodeInventory
from tests.execution.nodes import TestedNode, installed_local
from tests.services.requirements import need

# Of a GPU that nobody uses the driver itself takes less.
IDLE_MB = 2_048


@pytest.fixture(scope="session")
def driver() -> None:
    """NVIDIA's driver, with a GPU."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        need("NVIDIA GPU", because=f"NVML says: {error}")
    count = pynvml.nvmlDeviceGetCount()
    pynvml.nvmlShutdown()
    if not count:
        need("NVIDIA GPU", because="the driver shows none")


@pytest.fixture
def node(driver: None, tmp_path: Path) -> TestedNode:
    """This machine as a node."""
    if os.geteuid() != 0:
        need("root", because="only a helper that runs as root starts MPS for others")
    return installed_local(str(tmp_path / "home"))


@pytest.fixture
def inventory(node: TestedNode) -> NodeInventory:
    """The node's inventory."""
    return node.probe().answer


@pytest.fixture
def whole_gpu(inventory: NodeInventory) -> DeviceReport:
    """A GPU that is not split and that nobody uses."""
    idle = [one for one in inventory.devices if not one.parent_uuid and one.used_mb < IDLE_MB]
    if not idle:
        need("NVIDIA GPU", because="none that is whole and idle")
    return idle[0]


@pytest.fixture
def mps(inventory: NodeInventory, whole_gpu: DeviceReport) -> None:
    """MPS, as the node itself says."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        need("MPS", because="nvidia-cuda-mps-control is not installed")
    assert inventory.enforcement is not None
    assert inventory.enforcement.memory == "mps", inventory.enforcement.detail


@pytest.fixture
def gpu_slice(inventory: NodeInventory) -> DeviceReport:
    """A MIG slice that nobody uses."""
    idle = [one for one in inventory.devices if one.parent_uuid and one.used_mb < IDLE_MB]
    if not idle:
        need("MIG", because="no GPU here is split")
    return idle[0]


@pytest.fixture
def note(inventory: NodeInventory, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Writes down what a test saw, dated, for docs/gpus.md."""

    def write(**facts: Any) -> None:
        path = os.environ.get("GPU_FIGURES")
        if path:
            day = datetime.now(tz=UTC).date().isoformat()
            seen = {"test": request.node.name, "day": day, "driver": inventory.driver, **facts}
            with Path(path).open("a", encoding="utf-8") as target:
                target.write(json.dumps(seen) + "\n")

    return write
