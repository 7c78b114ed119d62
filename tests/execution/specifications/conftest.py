"""How many launch specifications are tried: some here, all of them with `make properties`."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.execution.nodes import installed_ssh
from tests.execution.specifications.recorded_node import RecordedNode
from tests.services.requirements import need
from tests.services.sshd import SshdNode
from tools.packages import find_program

SOURCE = Path(__file__).parent / "recorder.c"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known only where this folder is named on the command line, as `make properties` does."""
    parser.addoption("--recorded", type=int, default=200, help="Specifications up to the runtime.")
    parser.addoption("--contained", type=int, default=20, help="Specifications through podman.")
    parser.addoption("--specification-seed", type=int, default=4, help="Their seed.")


@pytest.fixture
def recorded(pytestconfig: pytest.Config) -> int:
    """How many specifications go up to the runtime's argument list."""
    return int(pytestconfig.getoption("recorded", 200))


@pytest.fixture
def contained(pytestconfig: pytest.Config) -> int:
    """How many specifications go through podman."""
    return int(pytestconfig.getoption("contained", 20))


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of the specifications."""
    return int(pytestconfig.getoption("specification_seed", 4))


@pytest.fixture
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Writes a line to the terminal of the run."""
    capturing = pytestconfig.pluginmanager.get_plugin("capturemanager")

    def written(line: str) -> None:
        assert capturing is not None
        with capturing.global_and_fixture_disabled():
            sys.stdout.write(f"\n{line}\n")

    return written


@pytest.fixture
def recording_node(ssh_node: SshdNode, tmp_path: Path) -> Iterator[RecordedNode]:
    """An sshd node whose podman only records its arguments."""
    need("cc", because=None if find_program("cc") else "no C compiler found")
    (tmp_path / "bin").mkdir()
    (tmp_path / "records").mkdir()
    (tmp_path / "image").mkdir()
    program = tmp_path / "bin" / "podman"
    subprocess.run(["cc", "-O1", "-static", "-o", program, SOURCE], check=True)
    # Nothing else is on the PATH: what a shell would start is missing, and reported.
    node = installed_ssh(ssh_node, {"PATH": str(program.parent)})
    yield RecordedNode(node, tmp_path / "records")
    node.client.transport.close()
