"""What podman itself does wrong is not the task's result, and nothing of a task stays behind."""

import os
import signal
from pathlib import Path

import pytest

from apps.execution.node import processes
from apps.execution.node.specs import MemberIdentity
from apps.execution.node.state_files import MemberFolder, supervisor_of
from apps.execution.protocol.outcomes import Answered, StartFailed
from apps.execution.protocol.requests import LaunchRequest, VolumeMount
from tests.execution.node.test_containers import container, name_of
from tests.execution.nodes import TestedNode, installed_ssh, member_of
from tests.services.podman import PodmanStore
from tests.services.ports import wait_until
from tests.services.sshd import SshdNode
from tools.packages import find_program

# The real podman, which fails where a file says so: fail-<verb> holds how many times.
WRAPPER = """\
#!/bin/sh
verb=$1
[ "$verb" = container ] && verb=inspect
if [ -e {folder}/fail-$verb ]; then
    echo x >> {folder}/failed-$verb
    echo "Error: database is locked" >&2
    exit 125
fi
if [ "$verb" = run ] && [ -e {folder}/lose ]; then
    setsid {podman} "$@" &
    until [ -e {folder}/lost ]; do sleep 0.05; done
    exit 125
fi
exec {podman} "$@"
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with a podman that can be made to fail."""
    folder = tmp_path / "tools"
    folder.mkdir()
    wrapper = folder / "podman"
    wrapper.write_text(WRAPPER.format(folder=folder, podman=find_program("podman")))
    wrapper.chmod(0o755)
    return folder


@pytest.fixture
def node(ssh_node: SshdNode, podman: PodmanStore, tools: Path) -> TestedNode:
    """A node with that podman."""
    path = f"{tools}:{os.environ['PATH']}"
    return installed_ssh(ssh_node, podman.environment | {"PATH": path})


def member_of_request(server: SshdNode, request: LaunchRequest) -> MemberFolder:
    return MemberFolder(
        server.home, MemberIdentity(request.task_id, request.generation, request.rank)
    )


@pytest.mark.parametrize("code", [125, 126, 127])
def test_a_task_may_end_with_the_codes_that_podman_uses_itself(
    node: TestedNode, podman: PodmanStore, code: int
) -> None:
    request = container(node, podman, "sh", "-c", f"exit {code}")

    outcome = node.client.launch(request)

    assert isinstance(outcome, Answered), outcome
    ended = node.wait_for_exit(member_of(request))
    assert (ended.exit_code, ended.error) == (code, "")


def test_a_client_that_fails_does_not_end_the_task(
    node: TestedNode, podman: PodmanStore, tools: Path
) -> None:
    (tools / "lose").touch()
    request, gate = gated(node, podman, tools)
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")

    (tools / "lost").touch()
    wait_until(lambda: not wrappers_of(request), what="the client's end")
    gate.touch()

    ended = node.wait_for_exit(member_of(request))
    assert (ended.exit_code, ended.error) == (6, "")
    assert node.logs[member_of(request)] == b"ready\ndone\n"


def test_a_result_is_asked_for_until_podman_answers(
    node: TestedNode, podman: PodmanStore, tools: Path
) -> None:
    request, gate = gated(node, podman, tools)
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")
    (tools / "fail-inspect").touch()
    for pid in processes.clients("podman", name_of(request)):
        os.kill(pid, signal.SIGKILL)
    gate.touch()

    wait_until((tools / "failed-inspect").exists, what="podman failed")
    (tools / "fail-inspect").unlink()

    assert node.wait_for_exit(member_of(request)).exit_code == 6


def test_a_container_that_podman_would_not_remove_is_removed_later(
    node: TestedNode, podman: PodmanStore, tools: Path
) -> None:
    (tools / "fail-rm").touch()
    request = container(node, podman, "true", secrets={"PASS": "word"})
    node.client.launch(request)
    member = member_of(request)
    node.wait_for_exit(member)
    wait_until((tools / "failed-rm").exists, what="podman failed")

    kept = node.sync(member)
    (tools / "fail-rm").unlink()

    assert [one.state for one in kept.members] == ["exited"]
    wait_until(lambda: not node.sync(member).members, what="the member is dropped")
    assert name_of(request) not in podman.names()
    assert name_of(request).encode() not in podman.run("secret", "ls").stdout


def test_an_acknowledged_task_whose_supervisor_died_leaves_nothing(
    node: TestedNode, podman: PodmanStore, tools: Path, ssh_node: SshdNode
) -> None:
    (tools / "fail-rm").touch()
    request = container(node, podman, "true", secrets={"PASS": "word"})
    node.client.launch(request)
    member = member_of(request)
    node.wait_for_exit(member)
    supervisor = supervisor_of(member_of_request(ssh_node, request))
    if supervisor is not None:
        os.kill(supervisor, signal.SIGKILL)
    (tools / "fail-rm").unlink()

    wait_until(lambda: not node.sync(member).members, what="the member is dropped")

    assert name_of(request) not in podman.names()
    assert name_of(request).encode() not in podman.run("secret", "ls").stdout


def test_a_podman_that_cannot_start_it_says_why(
    node: TestedNode, podman: PodmanStore, tools: Path
) -> None:
    (tools / "fail-run").touch()

    outcome = node.client.launch(container(node, podman, "true"))

    assert isinstance(outcome, StartFailed)
    assert "database is locked" in outcome.detail


def gated(node: TestedNode, podman: PodmanStore, tools: Path) -> tuple[LaunchRequest, Path]:
    """A task that waits for a file, and that file."""
    shared = tools / "shared"
    shared.mkdir()
    volume = VolumeMount(str(shared), "/in", read_only=True)
    command = "echo ready; until [ -e /in/gate ]; do sleep 0.05; done; echo done; exit 6"
    return container(node, podman, "sh", "-c", command, volumes=(volume,)), shared / "gate"


def wrappers_of(request: LaunchRequest) -> list[int]:
    """The script that stands before `podman run`."""
    name = f"--name={name_of(request)}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if arguments[0] == b"/bin/sh" and name in arguments:
            found.append(int(path.parent.name))
    return found
