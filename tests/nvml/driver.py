"""A stand-in for NVIDIA's driver: `stub.c`, compiled here, under the real pynvml.

What it cannot show: anything that needs a GPU. It answers what a test wrote into its scenario, in
the structures of NVIDIA's public header; whether a real driver answers the same in the same
situation is for `tests/gpu` to say.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.services.requirements import need

SOURCE = Path(__file__).parent / "stub.c"
# Codes of nvml.h.
GPU_IS_LOST = 15
VERSION_MISMATCH = 18


@dataclass(frozen=True, slots=True)
class Slice:
    """One MIG slice. `processes` are (pid, memory in 2^20 bytes)."""

    uuid: str
    memory_mb: int = 9_856
    used_mb: int = 0
    name: str = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    processes: tuple[tuple[int, int], ...] = ()

    def lines(self) -> list[str]:
        """The slice as the stub reads it."""
        first = f"slice {self.uuid} {self.memory_mb} {self.used_mb} {self.name}"
        return [first, *(f"process {pid} {mb}" for pid, mb in self.processes)]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. With an `error` (a code of NVML) it answers nothing else."""

    uuid: str
    memory_mb: int = 81_559
    used_mb: int = 0
    utilisation: int = 0
    power_mw: int = 0
    is_split: bool = False
    capability: str = "9.0"
    error: int = 0
    name: str = "NVIDIA H100 80GB HBM3"
    processes: tuple[tuple[int, int], ...] = ()
    clients: tuple[tuple[int, int], ...] = ()
    slices: tuple[Slice, ...] = ()

    def lines(self) -> list[str]:
        """The GPU and its slices as the stub reads them."""
        facts = (
            *("gpu", self.uuid, self.memory_mb, self.used_mb, self.utilisation),
            *(int(self.is_split), self.capability, self.error, self.name),
        )
        return [
            " ".join(map(str, facts)),
            f"power {self.power_mw}",
            *(f"process {pid} {mb}" for pid, mb in self.processes),
            *(f"client {pid} {mb}" for pid, mb in self.clients),
            *(line for one in self.slices for line in one.lines()),
        ]


@dataclass(slots=True)
class StubDriver:
    """The stand-in for one test; what it tells can change at any moment."""

    library: Path
    scenario: Path
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Name the variables under which a program finds the stand-in before any real driver."""
        folders = [str(self.library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment = {
            "LD_LIBRARY_PATH": ":".join(filter(None, folders)),
            "RPM_NVML_STUB": str(self.scenario),
        }
        self.tell()

    def tell(
        self, *gpus: Gpu, version: str = "550.54.15", cuda: int = 12_040, init: int = 0
    ) -> None:
        """From now on these GPUs are there; an `init` other than 0 is nvmlInit's refusal."""
        lines = [f"driver {version}", f"cuda {cuda}", f"init {init}"]
        lines += [line for gpu in gpus for line in gpu.lines()]
        # In one step: a process may be reading.
        fresh = self.scenario.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(self.scenario)


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled stand-in under the name that programs look for."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        need("cc", because="no C compiler on the PATH")
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    command = [str(compiler), "-shared", "-fPIC", "-Wall", "-Werror", "-O1"]
    soname = f"-Wl,-soname,{library.name}"
    subprocess.run([*command, soname, "-o", str(library), str(SOURCE)], check=True)
    return library


@pytest.fixture
def stub_driver(stub_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubDriver:
    """A driver without GPUs; programs that this test starts find it."""
    driver = StubDriver(stub_library, tmp_path / "nvml-scenario")
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    return driver
