"""The exit code of a plain process, whichever process of the helper is killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.execution.node import keeper
from apps.execution.node.specs import MemberIdentity
from apps.execution.node.state_files import MemberFolder, first_process, supervisor_of
from apps.execution.protocol.requests import LaunchRequest
from tests.execution.nodes import TestedNode, installed_local, member_of
from tests.services.ports import wait_until
from tests.services.sshd import kill_helpers


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestedNode]:
    """This machine as a node."""
    home = str(tmp_path / "home")
    yield installed_local(home)
    kill_helpers(home)


def test_the_exit_code_of_a_process_outlives_its_supervisor(
    node: TestedNode, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    request = node.launch_request("sh", "-c", f"until [ -e {gate} ]; do sleep 0.02; done; exit 7")
    node.client.launch(request)
    node.wait_for(member_of(request), lambda one: one.state == "running")
    supervisor = supervisor_of(folder_of(request, tmp_path))
    assert supervisor is not None

    os.kill(supervisor, signal.SIGKILL)
    gate.touch()

    ended = node.wait_for_exit(member_of(request))
    assert (ended.exit_code, ended.error) == (7, "")


def test_a_process_whose_keeper_is_killed_is_followed_and_its_code_is_unknown(
    node: TestedNode, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    request = node.launch_request("sh", "-c", f"until [ -e {gate} ]; do sleep 0.02; done; exit 7")
    node.client.launch(request)
    node.wait_for(member_of(request), lambda one: one.state == "running")
    pid, _ = first_process(folder_of(request, tmp_path))
    status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()

    os.kill(int(status[1]), signal.SIGKILL)
    gate.touch()

    ended = node.wait_for_exit(member_of(request))
    assert ended.exit_code is None
    assert ended.error == "the process that kept its exit code was killed before it ended"


def folder_of(request: LaunchRequest, tmp_path: Path) -> MemberFolder:
    return MemberFolder(str(tmp_path / "home"), MemberIdentity(request.task_id, 1, 0))


def test_a_keeper_ends_with_its_task_and_says_which_signal_ended_it(
    node: TestedNode, tmp_path: Path
) -> None:
    request = node.launch_request("sh", "-c", "kill -9 $$")
    node.client.launch(request)

    ended = node.wait_for_exit(member_of(request))

    assert ended.exit_code == 137
    member = folder_of(request, tmp_path)
    wait_until(lambda: not keeper.is_there(member), what="the keeper has gone")
    assert keeper.code_of(member) == 137
