"""A client of podman that hangs and holds a lock keeps neither a stop nor the node."""

import os
import tarfile
from pathlib import Path

import pytest

from apps.execution.node import processes, state_files, supervisor
from apps.execution.node.state_files import MemberFolder, result_of
from apps.execution.protocol.requests import LaunchRequest, VolumeMount
from tests.execution.node.test_arguments import spec
from tests.execution.node.test_containers import container, name_of
from tests.execution.node.test_image_root import entry, make_image
from tests.execution.nodes import INSTALLATION, TestedNode, installed_ssh, member_of
from tests.services.podman import PodmanStore
from tests.services.ports import wait_until
from tests.services.sshd import SshdNode
from tools.packages import find_program

# The real podman, with an image that looks to the helper like an empty one.
WRAPPER = """\
#!/bin/sh
case "$1 $2" in
"image mount") echo {folder}/empty ;;
"image umount") ;;
*) exec {podman} "$@" ;;
esac
"""


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, str]:
    """Variables that lead to that podman."""
    (tmp_path / "empty").mkdir()
    wrapper = tmp_path / "podman"
    wrapper.write_text(WRAPPER.format(folder=tmp_path, podman=find_program("podman")))
    wrapper.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


@pytest.fixture
def node(ssh_node: SshdNode, podman: PodmanStore, tools: dict[str, str]) -> TestedNode:
    """An sshd node with that podman."""
    return installed_ssh(ssh_node, podman.environment | tools)


@pytest.fixture
def image(podman: PodmanStore) -> str:
    """An image at which podman hangs: it opens the pipe with the container's lock."""
    return make_image(podman, entry("etc/passwd", tarfile.FIFOTYPE))


def hanging(node: TestedNode, podman: PodmanStore, image: str) -> LaunchRequest:
    """A launch whose client hangs."""
    request = container(node, podman, "true", image=image, start_wait_s=0)
    node.client.launch(request)
    wait_until(
        lambda: podman.run("container", "exists", name_of(request)).returncode == 0,
        what="a container",
    )
    assert processes.clients("podman", name_of(request))
    return request


@pytest.mark.parametrize("stop", [{"is_kill": True}, {"grace_s": 0.5}])
def test_a_start_that_hangs_ends_with_a_stop(
    node: TestedNode, podman: PodmanStore, image: str, stop: dict[str, float]
) -> None:
    request = hanging(node, podman, image)

    node.stop(member_of(request), **stop)  # type: ignore[arg-type]  # a flag or seconds

    ended = node.wait_for_exit(member_of(request))
    assert ended.exit_code is None
    wait_until(lambda: name_of(request) not in podman.names(), what="nothing is left")


def test_a_start_that_hangs_ends_after_its_time(
    podman: PodmanStore,
    tools: dict[str, str],
    image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "START_LIMIT_S", 1)
    config = {"installation": INSTALLATION, "environment": podman.environment | tools}
    hung = spec(task_id="hung", image=image, cpu_milli=0)
    member = MemberFolder(str(tmp_path / "home"), hung.identity)
    state_files.add(member)
    member.write("spec.json", {"runtime": "podman", "user": hung.user})

    change = supervisor.launch(member, hung, config)
    assert change is not None
    os.close(change)

    wait_until(lambda: member.has("cleaned"), what="the start is given up")
    assert (result_of(member) or {})["error"] == "it had not started after 1 s"
    assert state_files.container_name(INSTALLATION, hung.identity) not in podman.names()


def test_a_pipe_in_a_volume_keeps_no_stop(
    node: TestedNode, podman: PodmanStore, tmp_path: Path
) -> None:
    (tmp_path / "etc").mkdir()
    os.mkfifo(tmp_path / "etc" / "passwd", 0o666)
    volume = VolumeMount(str(tmp_path / "etc"), "/etc", read_only=True)
    request = container(node, podman, "true", volumes=(volume,), start_wait_s=0)
    node.client.launch(request)
    wait_until(
        lambda: podman.run("container", "exists", name_of(request)).returncode == 0,
        what="a container",
    )

    node.stop(member_of(request), grace_s=0.5)

    node.wait_for_exit(member_of(request))
    wait_until(lambda: name_of(request) not in podman.names(), what="nothing is left")


def test_prune_does_not_wait_for_a_start_that_hangs(
    node: TestedNode, podman: PodmanStore, image: str
) -> None:
    request = hanging(node, podman, image)

    answer = node.prune()

    assert answer.containers == ()
    node.stop(member_of(request), is_kill=True)
    node.wait_for_exit(member_of(request))
