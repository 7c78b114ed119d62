"""`manage.py up` begins once per folder, and ends with everything it started."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import ports
from tests.services.timeouts import scale_timeout

ROOT = Path(__file__).resolve().parent.parent.parent
START_WITHIN_S = 120.0
# Far above what `up` gives its programs before it kills them: the machine may be busy.
END_WITHIN_S = 120.0


def command(port: int) -> list[str]:
    return [sys.executable, "manage.py", "up", "--port", str(port)]


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listed.split()]


def program_of(pid: int) -> str:
    return Path(f"/proc/{pid}/exe").resolve().name


def has_ended(pid: int) -> bool:
    """Its new parent may be slow to collect the exit status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """A machine with nothing but Python: SQLite and the bundled Redis in a folder of its own."""
    kept = {k: v for k, v in os.environ.items() if k not in {"DATABASE_URL", "REDIS_URL"}}
    return kept | {"RPM_HOME": str(tmp_path / "home"), "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def up(surroundings: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`manage.py up`, ready; its words go to `log`."""
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(ports.free_port()),
            cwd=ROOT,
            env=surroundings,
            stdout=output,
            stderr=subprocess.STDOUT,
            # The suite itself may run under `nohup`, which `up` would rightly take for its own.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509 - one thread
        )
    try:
        ports.wait_for_server(
            process,
            lambda: "RPM is up at" in log.read_text(),
            what="manage.py up",
            timeout_s=START_WITHIN_S,
        )
        yield process
    finally:
        ports.stop(process, signal=signal.SIGHUP, timeout_s=END_WITHIN_S)


def test_a_closed_terminal_ends_everything_and_a_second_one_does_not_begin(
    up: subprocess.Popen[bytes], surroundings: dict[str, str], tmp_path: Path
) -> None:
    started = children_of(up.pid)
    second = subprocess.run(
        command(ports.free_port()),
        cwd=ROOT,
        env=surroundings,
        check=False,
        capture_output=True,
        text=True,
    )

    ports.stop(up, signal=signal.SIGHUP, timeout_s=END_WITHIN_S)

    assert second.returncode == 1
    assert "RPM is up already" in second.stderr
    assert len(started) == 4
    assert up.returncode == 0, (tmp_path / "log").read_text()
    assert not [child for child in started if Path(f"/proc/{child}").exists()]


def offspring_of(pid: int) -> list[int]:
    children = children_of(pid)
    return [*children, *(one for child in children for one in offspring_of(child))]


@pytest.mark.parametrize("are_stuck", [False, True])
def test_what_a_killed_one_started_ends_and_the_next_one_begins(
    up: subprocess.Popen[bytes], surroundings: dict[str, str], tmp_path: Path, are_stuck: bool
) -> None:
    """Its beat, too, which is a process of the worker; and those that cannot end by themselves."""
    ports.wait_until(lambda: len(offspring_of(up.pid)) == 4, what="beat", timeout_s=60)
    started = offspring_of(up.pid)
    for one in started if are_stuck else ():
        os.kill(one, signal.SIGSTOP)

    up.kill()
    up.wait()

    log = tmp_path / "next"
    with log.open("wb") as output:
        following = subprocess.Popen(
            command(ports.free_port()), cwd=ROOT, env=surroundings, stdout=output, stderr=output
        )
    try:
        ports.wait_until(
            lambda: "RPM is up at" in log.read_text() or following.poll() is not None,
            what="the next one",
            timeout_s=START_WITHIN_S,
        )
        assert following.poll() is None, log.read_text()
        ports.wait_until(lambda: all(has_ended(one) for one in started), what="all have ended")
    finally:
        ports.stop(following, signal=signal.SIGTERM, timeout_s=END_WITHIN_S)


def test_the_beat_of_a_killed_worker_ends(up: subprocess.Popen[bytes]) -> None:
    def beats() -> list[int]:
        return [one for child in children_of(up.pid) for one in children_of(child)]

    ports.wait_until(lambda: len(beats()) == 1, what="beat", timeout_s=60)
    [beat] = beats()
    worker = int(Path(f"/proc/{beat}/stat").read_text().rpartition(")")[2].split()[1])

    os.kill(worker, signal.SIGKILL)

    ports.wait_until(lambda: has_ended(beat), what="beat ends")


def test_a_bundled_redis_that_dies_is_named_and_ends_the_rest(
    up: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    started = children_of(up.pid)
    [redis] = [pid for pid in started if program_of(pid) == "redis-server"]

    os.kill(redis, signal.SIGKILL)

    assert up.wait(timeout=scale_timeout(END_WITHIN_S)) == 1
    assert (tmp_path / "log").read_text().splitlines()[-1] == (
        "CommandError: redis ended unexpectedly, killed by SIGKILL. "
        f"Its log is {tmp_path}/home/redis.log. The other programs are stopped. "
        f"Start RPM again: {sys.executable} {ROOT}/manage.py up"
    )
    assert not [child for child in started if Path(f"/proc/{child}").exists()]
