"""A task that takes more space than its log and its checkpoint file may have is ended for it."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.execution.node.specs import MemberIdentity
from apps.execution.node.state_files import MemberFolder
from apps.execution.node.supervisor import MOST_EXCESSES, log_takes_too_much
from tests.execution.nodes import TestedNode, installed_local, member_of
from tests.services.sshd import kill_helpers

TAKE_AGAIN = """\
while :; do fallocate --keep-size --length {length} "{path}"; sleep 0.02; done
"""
# A lease keeps others from opening the file, until the kernel ends it after 45 s.
LEASE = """\
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(os.environ["RPM_CHECKPOINT_FILE"], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
os.posix_fallocate(file, 0, 8 * 2**20)
print("taken", flush=True)
time.sleep(40)
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestedNode]:
    """This machine, with plain processes."""
    home = str(tmp_path / "home")
    yield installed_local(home)
    kill_helpers(home)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            ("sh", "-c", TAKE_AGAIN.format(length="8M", path="$RPM_CHECKPOINT_FILE")),
            id="the checkpoint file",
        ),
        pytest.param(
            ("sh", "-c", TAKE_AGAIN.format(length="600M", path="/proc/self/fd/1")), id="the log"
        ),
        pytest.param(("python3", "-c", LEASE), id="a checkpoint file with a lease"),
    ],
)
def test_a_task_that_takes_space_again_and_again_is_ended(
    node: TestedNode, command: tuple[str, ...]
) -> None:
    request = node.launch_request(*command)

    node.client.launch(request)

    ended = node.wait_for_exit(member_of(request))
    assert ended.exit_code == 128 + signal.SIGKILL
    assert ended.error == (
        f"its log and its checkpoint file took more space than they may, {MOST_EXCESSES} times"
    )


def test_the_end_of_a_log_that_was_thrown_away_is_reached(node: TestedNode, tmp_path: Path) -> None:
    request = node.launch_request("true")
    node.client.launch(request)
    node.wait_for_exit(member_of(request))
    identity = MemberIdentity(request.task_id, request.generation, request.rank)
    # As if it had written 7 bytes, which went before they were read.
    MemberFolder(str(tmp_path / "home"), identity).write("dropped.json", {"bytes": 7})

    ended = node.wait_for_exit(member_of(request))

    assert ended.log_bytes == 7
    assert node.log_ends[member_of(request)] == 7
    assert node.logs[member_of(request)] == b""


def test_a_log_that_was_written_counts_by_its_length(tmp_path: Path) -> None:
    member = MemberFolder(str(tmp_path), MemberIdentity("t1", 1, 0))
    log = Path(member.path("log"))
    log.parent.mkdir(parents=True)

    log.write_bytes(b"x" * 2**23)
    assert not log_takes_too_much(member, limit=2**20)
    log.write_bytes(b"x")
    subprocess.run(["fallocate", "--keep-size", "--length", "8M", str(log)], check=True)
    assert log_takes_too_much(member, limit=2**20)


def test_a_task_that_writes_too_much_into_its_checkpoint_file_once_goes_on(
    node: TestedNode,
) -> None:
    once = 'fallocate --length 8M "$RPM_CHECKPOINT_FILE"; '
    # It ends when the node has looked at it, and emptied it.
    wait = 'while [ -s "$RPM_CHECKPOINT_FILE" ]; do sleep 0.05; done; exit 5'
    request = node.launch_request("sh", "-c", once + wait)

    node.client.launch(request)

    ended = node.wait_for_exit(member_of(request))
    assert (ended.exit_code, ended.error) == (5, "")
