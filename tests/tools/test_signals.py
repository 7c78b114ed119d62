"""A signal to tools/test.py alone ends the tests, and what these started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import ports
from tests.services.timeouts import scale_timeout

ROOT = Path(__file__).resolve().parents[2]
FOLLOW = "import sys; from tools.test import follow; sys.exit(follow(sys.argv[1:], {}))"
# Names its process and the port of its Redis; cleans up what must not be cut short.
TEST = """
import os, time
from pathlib import Path
import pytest

HERE = Path(__file__).parent

@pytest.fixture
def surroundings():
    yield
    time.sleep(0.5)
    (HERE / "cleaned").touch()

def test_it_waits(surroundings):
    port = os.environ["REDIS_URL"].rpartition(":")[2].partition("/")[0]
    (HERE / "new").write_text(f"{os.getpid()} {port}")
    (HERE / "new").rename(HERE / "runs")
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("number", "is_terminal", "workers"),
    [
        pytest.param(signal.SIGINT, False, 0, id="SIGINT"),
        pytest.param(signal.SIGINT, False, 1, id="SIGINT, tests in parallel"),
        pytest.param(signal.SIGINT, True, 0, id="Ctrl-C in a terminal"),
    ],
)
def test_it_ends_with_its_tests_and_their_services(
    tmp_path: Path, number: int, is_terminal: bool, workers: int
) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    tests = (sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-q", f"-n{workers}")
    # Not a worker of the run that this test belongs to.
    environment = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    process = subprocess.Popen(
        [sys.executable, "-c", FOLLOW, *tests, str(tmp_path / "test_it.py")],
        cwd=ROOT,
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    try:
        ports.wait_until((tmp_path / "runs").exists, what="the test runs", timeout_s=60)
        pid, port = map(int, (tmp_path / "runs").read_text().split())

        # A terminal sends it to all of them.
        (os.killpg if is_terminal else os.kill)(process.pid, number)

        assert process.wait(scale_timeout(60)) == 128 + number
        ports.wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="pytest gone")
        ports.wait_until(lambda: not ports.accepts(port), what="Redis gone")
        assert workers or (tmp_path / "cleaned").exists()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
