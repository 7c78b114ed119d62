"""What a real container may and sees: nothing beyond what it was given."""

import os
import secrets
import stat
from collections.abc import Iterator

import pytest

from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import LaunchRequest
from tests.execution.nodes import TestedNode, installed_ssh, member_of
from tests.services.podman import PodmanStore
from tests.services.sshd import SshdNode

IPC_LOCK = 1 << 14
STATUS = "cat /proc/self/status"
LIMITS = "cat /sys/fs/cgroup/{0}.max /sys/fs/cgroup/{0}/{1} 2>/dev/null"


@pytest.fixture
def node(ssh_node: SshdNode, podman: PodmanStore) -> TestedNode:
    """An sshd node with podman."""
    return installed_ssh(ssh_node, podman.environment)


@pytest.fixture
def device() -> Iterator[str]:
    """A device file of this machine that swallows what is written to it."""
    path = f"/dev/rpm-test-{secrets.token_hex(4)}"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("needs root: makes a device file")
    yield path
    os.unlink(path)


def output(node: TestedNode, podman: PodmanStore, script: str, **changes: object) -> list[str]:
    """What the script writes in a container of an ordinary user."""
    fields: dict[str, object] = {
        "runtime": "podman",
        "image": podman.image,
        "allow_process": False,
        "uid": 12345,
        "gid": 12345,
        "memory_mb": 64,
        "pids": 77,
    }
    request: LaunchRequest = node.launch_request("sh", "-c", script, **(fields | changes))
    outcome = node.client.launch(request)
    assert isinstance(outcome, Answered), outcome
    node.wait_for_exit(member_of(request))
    return node.logs[member_of(request)].decode().splitlines()


def status(lines: list[str]) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs}


def test_a_container_has_no_capabilities_and_gains_none(
    node: TestedNode, podman: PodmanStore
) -> None:
    found = status(output(node, podman, STATUS))

    sets = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    assert [int(found[name], 16) for name in sets] == [0] * 5
    assert found["NoNewPrivs"] == "1"
    assert found["Uid"].split() == found["Gid"].split() == ["12345"] * 4
    assert found["Groups"].split() in ([], ["12345"])


def test_processes_and_memory_are_limited(node: TestedNode, podman: PodmanStore) -> None:
    pids = output(node, podman, LIMITS.format("pids", "pids.max"))
    memory = output(node, podman, LIMITS.format("memory", "memory.limit_in_bytes"))

    assert pids == ["77"]
    assert memory == [str(64 * 2**20)]


def test_no_namespace_of_the_node_is_shared(node: TestedNode, podman: PodmanStore) -> None:
    lines = output(node, podman, "ls -l /proc/self/ns")

    shared = {name for name in ("ipc", "mnt", "net", "pid", "uts") if _own(name) in str(lines)}
    assert shared == set()
    assert any("pid:[" in line for line in lines)


def test_what_a_profile_allows_is_there_and_no_more(
    node: TestedNode, podman: PodmanStore, device: str
) -> None:
    script = f"{STATUS}; ls -d /dev/rpm*"
    allowed = {
        "uid": 0,
        "gid": 0,
        "allow_root": True,
        "capabilities": ("IPC_LOCK",),
        "device_paths": (device,),
    }

    lines = output(node, podman, script, **allowed)

    found = status(lines)
    assert found["Uid"].split() == ["0"] * 4
    assert int(found["CapEff"], 16) == int(found["CapBnd"], 16) == IPC_LOCK
    assert found["NoNewPrivs"] == "1"
    assert lines[-1] == device


def test_a_capability_helps_a_user_who_is_not_root(node: TestedNode, podman: PodmanStore) -> None:
    found = status(output(node, podman, STATUS, capabilities=("IPC_LOCK",)))

    assert int(found["CapEff"], 16) == IPC_LOCK
    assert found["Uid"].split() == ["12345"] * 4


def _own(name: str) -> str:
    return os.readlink(f"/proc/self/ns/{name}")
