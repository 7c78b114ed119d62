"""A disk that runs full while tasks run costs no result, and does not keep them from ending."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from apps.execution.node import files, leases
from apps.execution.node.specs import MemberIdentity
from apps.execution.node.state_files import MemberFolder
from apps.execution.protocol.outcomes import Answered, NodeRefusal
from apps.execution.protocol.requests import LeaseRenewal
from tests.execution.nodes import TestedNode, installed_local, member_of
from tests.services.ports import wait_until
from tests.services.requirements import need
from tests.services.sshd import kill_helpers


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        need("a small tmpfs", because=done.stderr.decode(errors="replace").strip())
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def node(small: Path) -> Iterator[TestedNode]:
    """A node whose helper lives on the small file system."""
    yield installed_local(str(small / "home"))
    kill_helpers(str(small / "home"))


def fill(folder: Path) -> None:
    """Leave not a single byte."""
    with suppress(OSError), (folder / "filler").open("ab", buffering=0) as filler:
        while True:
            filler.write(bytes(65536))
    with suppress(OSError), (folder / "filler").open("ab", buffering=0) as filler:
        while True:
            filler.write(b"x")
    with pytest.raises(OSError, match="No space left"):
        (folder / "more").write_bytes(bytes(5000))
    (folder / "more").unlink(missing_ok=True)


def test_a_result_is_kept_and_fetched_while_the_disk_is_full(
    node: TestedNode, small: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    request = node.launch_request("sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done; exit 7")
    node.client.launch(request)
    fill(small)

    gate.touch()

    ended = node.wait_for_exit(member_of(request))
    assert ended.exit_code == 7
    assert ended.started_uptime_s is not None
    while node.sync(member_of(request)).members:
        pass
    again = node.client.launch(request)
    assert isinstance(again, NodeRefusal)
    assert again.code == "ended"


def test_a_task_can_be_stopped_and_then_killed_while_the_disk_is_full(
    node: TestedNode, small: Path
) -> None:
    command = "trap '' TERM; echo ready; while true; do sleep 0.05; done"
    request = node.launch_request("sh", "-c", command)
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")
    fill(small)

    first = node.stop(member_of(request), grace_s=3600)
    second = node.stop(member_of(request), grace_s=0)

    assert (first, second) == ("stopping", "stopping")
    assert node.wait_for_exit(member_of(request)).exit_code == 128 + signal.SIGKILL


def test_a_lease_is_renewed_and_ends_while_the_disk_is_full(node: TestedNode, small: Path) -> None:
    until_s = node.probe().clocks.uptime_s + 60
    request = node.launch_request("sleep", "600", lease_until_s=until_s)
    node.client.launch(request)
    attempt = MemberFolder(str(small / "home"), MemberIdentity(request.task_id, 1, 0))
    fill(small)

    for more_s in (60, 120, 180):
        node.sync(leases=(LeaseRenewal(request.task_id, 1, 0, until_s + more_s),))
        lease = leases.read(attempt)
        assert lease is not None
        assert lease.until_s == until_s + more_s

    leases.mark_over(attempt)
    wait_until(lambda: attempt.has("lease-over"), what="the mark")


def test_a_launch_is_refused_while_the_disk_is_full_and_goes_well_afterwards(
    node: TestedNode, small: Path
) -> None:
    request = node.launch_request("true")
    fill(small)

    refused = node.client.launch(request)
    (small / "filler").unlink()
    outcome = node.client.launch(request)

    assert isinstance(refused, NodeRefusal)
    assert refused.code == "disk_full"
    assert isinstance(outcome, Answered)
    assert node.wait_for_exit(member_of(request)).exit_code == 0


def test_what_was_written_first_stays(tmp_path: Path) -> None:
    path = str(tmp_path / "exit.json")
    files.reserve(path, size=4096, times=1)

    first = files.write_json_once(path, {"exit_code": 1})
    second = files.write_json_once(path, {"exit_code": 2})

    assert (first, second) == (True, False)
    assert files.read_json(path) == {"exit_code": 1}


def test_a_shorter_content_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    path = str(tmp_path / "stop.json")
    files.reserve(path, size=4096, times=2)

    for content in ({"a": "x" * 3000}, {"b": 1}, {"c": "y" * 2000}, {"d": 2}):
        files.write_json(path, content, durable=False)
        assert files.read_json(path) == content
    assert os.path.getsize(path) == 4096
