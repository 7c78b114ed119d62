"""Devices in CDI that containers can be given on a machine without GPUs.

Each is the null device under a name of its own, so that a container can list which ones it got.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from apps.execution.protocol.requests import AllocatedDevice, SimulatedDevice
from tests.services.requirements import need

# podman 4 reads no other folder than this and /var/run/cdi.
FOLDER = Path("/etc/cdi")


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """One device: its CDI name, and the path under which a container that has it sees it."""

    uuid: str
    cdi: str
    path: str

    def given(self) -> AllocatedDevice:
        """As a launch request names it."""
        return AllocatedDevice(self.uuid, self.cdi)

    def simulated(self, model: str = "H100") -> SimulatedDevice:
        """As a probe request names it."""
        return SimulatedDevice(self.uuid, model, 81_920, self.cdi)


MakeDevices = Callable[[str, int], tuple[CdiDevice, ...]]


@pytest.fixture
def cdi_devices() -> Iterator[MakeDevices]:
    """`cdi_devices("n1", 8)` defines eight devices for a node; all are removed afterwards."""
    if not os.access(FOLDER if FOLDER.exists() else FOLDER.parent, os.W_OK):
        need("CDI", because=f"{FOLDER} cannot be written")
    token = secrets.token_hex(4)
    made: list[Path] = []
    was_there = FOLDER.exists()
    FOLDER.mkdir(mode=0o755, exist_ok=True)

    def make(node: str, count: int) -> tuple[CdiDevice, ...]:
        path = FOLDER / f"rpm-test-{token}-{node}.json"
        kind = f"rpm-test-{token}-{node}.example/gpu"
        devices = [_device(kind, f"{token}-{node}", index) for index in range(count)]
        made.append(path)
        path.write_text(json.dumps(_specification(kind, devices)))
        return tuple(devices)

    yield make
    for path in made:
        path.unlink(missing_ok=True)
    if not was_there and not any(FOLDER.iterdir()):
        FOLDER.rmdir()


def _device(kind: str, prefix: str, index: int) -> CdiDevice:
    uuid = f"GPU-{prefix}-{index}"
    return CdiDevice(uuid, f"{kind}={uuid}", f"/dev/rpm-test-{prefix}-gpu{index}")


def _specification(kind: str, devices: list[CdiDevice]) -> dict[str, object]:
    return {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [
            {
                "name": device.uuid,
                "containerEdits": {"deviceNodes": [{"path": device.path, "hostPath": "/dev/null"}]},
            }
            for device in devices
        ],
    }
