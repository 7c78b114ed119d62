"""Containers of a real podman on real sshd nodes."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from apps.execution.protocol.outcomes import Answered, ImageMissing, NodeRefusal, StartFailed
from apps.execution.protocol.requests import (
    AllocatedDevice,
    LaunchRequest,
    ProbeRequest,
    PullRequest,
    VolumeMount,
)
from tests.execution.nodes import INSTALLATION, TestedNode, installed_ssh, member_of
from tests.services.cdi import MakeDevices
from tests.services.podman import PodmanStore
from tests.services.ports import wait_until
from tests.services.sshd import SshdNode, StartSshNode, helpers_of

Container = Callable[..., LaunchRequest]


@pytest.fixture
def node(ssh_node: SshdNode, podman: PodmanStore) -> TestedNode:
    """An sshd node with podman."""
    return installed_ssh(ssh_node, podman.environment)


def container(
    node: TestedNode, podman: PodmanStore, *command: str, **changes: object
) -> LaunchRequest:
    """A launch request for a container of the test image, as an ordinary user."""
    fields: dict[str, object] = {
        "runtime": "podman",
        "image": podman.image,
        "allow_process": False,
        "uid": 12345,
        "gid": 12345,
        "cpu_milli": 500,
        "memory_mb": 64,
        "shm_mb": 16,
    }
    return node.launch_request(*command, **(fields | changes))


def test_each_container_sees_exactly_the_devices_it_was_given(
    start_ssh_node: StartSshNode, podman: PodmanStore, cdi_devices: MakeDevices
) -> None:
    nodes = [installed_ssh(start_ssh_node(), podman.environment) for _ in range(2)]
    devices = [cdi_devices(name, 4) for name in ("one", "two")]
    given = [[(0, 2), (3,)], [(1,), ()]]

    for node, there, groups in zip(nodes, devices, given, strict=True):
        for group in groups:
            chosen = [there[index] for index in group]
            request = container(
                node,
                podman,
                "sh",
                "-c",
                "ls -d /dev/rpm* 2>/dev/null; echo $RPM_DEVICES",
                devices=tuple(device.given() for device in chosen),
            )
            assert isinstance(node.client.launch(request), Answered)
            assert node.wait_for_exit(member_of(request)).exit_code == 0
            *seen, uuids = node.logs[member_of(request)].decode().splitlines()
            assert seen == sorted(device.path for device in chosen)
            assert uuids == ",".join(device.uuid for device in chosen)


def test_the_limits_of_the_request_hold_in_the_container(
    node: TestedNode, podman: PodmanStore
) -> None:
    request = container(node, podman, "sh", "-c", "id -u; grep -c CapEff.*0000000000000000 "
        "/proc/self/status; df -m /dev/shm | tail -n1 | tr -s ' ' | cut -d' ' -f2; "
        "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; "
        "grep NoNewPrivs /proc/self/status | tr -d '\\t'")  # fmt: skip

    node.client.launch(request)

    node.wait_for_exit(member_of(request))
    lines = node.logs[member_of(request)].decode().splitlines()
    assert lines == ["12345", "1", "16", str(64 * 2**20), "NoNewPrivs:1"]


def test_exit_code_and_output_arrive_and_the_container_is_removed(
    node: TestedNode, podman: PodmanStore
) -> None:
    request = container(node, podman, "sh", "-c", "echo out; echo err >&2; exit 9")

    node.client.launch(request)

    assert node.wait_for_exit(member_of(request)).exit_code == 9
    assert node.logs[member_of(request)] == b"out\nerr\n"
    while node.sync(member_of(request)).members:
        pass
    assert name_of(request) not in podman.names()


def test_arguments_and_variables_arrive_byte_for_byte(
    node: TestedNode, podman: PodmanStore, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    odd = f"--rm $(touch {canary}) `touch {canary}` ; & | ' \" \\ ü 日 \n\t # %s"
    plain = odd.replace("\n", " ")
    request = container(
        node,
        podman,
        "sh",
        "-c",
        'printf "%s\\0" "$@"; printf "%s\\0" "$ODD"; cat "$SECRET_FILE"',
        "name",
        "--privileged",
        odd,
        environment={"ODD": plain},
        secrets={"SECRET": plain},
    )

    node.client.launch(request)

    node.wait_for_exit(member_of(request))
    arguments = node.logs[member_of(request)].decode().split("\0")
    assert arguments == ["--privileged", odd, plain, plain]
    assert not canary.exists()


def test_a_secret_is_not_in_what_podman_tells_of_the_container(
    node: TestedNode, podman: PodmanStore
) -> None:
    request = container(node, podman, "sleep", "60", secrets={"PASS": "s3cret-value"})
    node.client.launch(request)

    inspected = podman.run("inspect", name_of(request))

    assert inspected.returncode == 0
    assert b"s3cret-value" not in inspected.stdout
    assert b"/run/secrets/PASS" in inspected.stdout
    node.stop(member_of(request), grace_s=0)
    node.wait_for_exit(member_of(request))
    wait_until(
        lambda: name_of(request).encode() not in podman.run("secret", "ls").stdout,
        what="the secret is removed",
    )


def test_what_decides_about_devices_is_replaced(node: TestedNode, podman: PodmanStore) -> None:
    request = container(
        node,
        podman,
        "env",
        environment={"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0", "A": "b"},
        devices=(AllocatedDevice("GPU-7"),),
    )

    node.client.launch(request)

    node.wait_for_exit(member_of(request))
    lines = set(node.logs[member_of(request)].decode().splitlines())
    assert {"A=b", "CUDA_VISIBLE_DEVICES=GPU-7", "NVIDIA_VISIBLE_DEVICES=void"} <= lines


def test_volumes_are_mounted_and_read_only_ones_cannot_be_written(
    node: TestedNode, podman: PodmanStore, tmp_path: Path
) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir(mode=0o777)
        (tmp_path / name).chmod(0o777)
    tmp_path.chmod(0o755)
    (tmp_path / "in" / "data").write_text("42")
    request = container(
        node,
        podman,
        "sh",
        "-c",
        "cat /in/data > /out/copy; touch /in/x 2>/dev/null || echo refused",
        volumes=(
            VolumeMount(str(tmp_path / "in"), "/in", read_only=True),
            VolumeMount(str(tmp_path / "out"), "/out"),
        ),
    )

    node.client.launch(request)

    node.wait_for_exit(member_of(request))
    assert node.logs[member_of(request)] == b"refused\n"
    assert (tmp_path / "out" / "copy").read_text() == "42"


def test_a_read_only_root_cannot_be_written(node: TestedNode, podman: PodmanStore) -> None:
    request = container(
        node, podman, "sh", "-c", "touch /x 2>/dev/null || echo refused", read_only=True
    )

    node.client.launch(request)

    node.wait_for_exit(member_of(request))
    assert node.logs[member_of(request)] == b"refused\n"


def test_a_missing_image_is_an_answer_of_its_own_and_can_be_pulled_for(
    node: TestedNode, podman: PodmanStore
) -> None:
    request = container(node, podman, "true", image="localhost/none:1")

    outcome = node.client.launch(request)
    there = node.client.pull(
        PullRequest(installation=INSTALLATION, runtime="podman", image=podman.image, wait_s=30)
    )
    missing = node.client.pull(
        PullRequest(
            installation=INSTALLATION, runtime="podman", image="localhost:1/none:1", wait_s=50
        )
    )

    assert isinstance(outcome, ImageMissing), outcome
    assert isinstance(there, Answered)
    assert there.answer.state == "present"
    assert isinstance(missing, Answered)
    assert missing.answer.state == "failed"
    assert "localhost:1/none" in missing.answer.progress


@pytest.mark.parametrize(
    ("changes", "want_words"),
    [
        pytest.param({"command": ("/no/program",)}, "/no/program", id="a missing program"),
        pytest.param(
            {"devices": (AllocatedDevice("X", "none.example/gpu=X"),)},
            "none.example",
            id="a device",
        ),
        pytest.param(
            {"volumes": (VolumeMount("/no/such/folder", "/x"),)}, "/no/such/folder", id="a volume"
        ),
    ],
)
def test_what_podman_cannot_start_fails_in_its_own_words(
    node: TestedNode, podman: PodmanStore, changes: dict[str, object], want_words: str
) -> None:
    request = container(node, podman, "true", **changes)

    outcome = node.client.launch(request)

    assert isinstance(outcome, StartFailed), outcome
    assert want_words in outcome.detail
    wait_until(lambda: name_of(request) not in podman.names(), what="nothing is left")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"image": "--privileged"}, id="an option as image"),
        pytest.param({"volumes": (VolumeMount("/a,suid", "/x"),)}, id="a comma in a mount"),
        pytest.param({"volumes": (VolumeMount("/a/../b", "/x"),)}, id="dots in a mount"),
        pytest.param({"devices": (AllocatedDevice("X", "/dev/kmsg"),)}, id="a path as device"),
        pytest.param({"uid": 0, "gid": 0}, id="the host's root"),
    ],
)
def test_what_does_not_fit_its_grammar_never_reaches_podman(
    node: TestedNode, podman: PodmanStore, changes: dict[str, object]
) -> None:
    request = container(node, podman, "true", **changes)

    outcome = node.client.launch(request)

    assert isinstance(outcome, NodeRefusal)
    assert outcome.code == "invalid"


def test_a_stop_ends_a_container_after_its_grace_period(
    node: TestedNode, podman: PodmanStore
) -> None:
    request = container(node, podman, "sh", "-c", "trap '' TERM; echo ready; sleep 60; sleep 60")
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")

    node.stop(member_of(request), grace_s=0.5)

    ended = node.wait_for_exit(member_of(request))
    assert ended.exit_code == 128 + signal.SIGKILL
    assert ended.is_stop_asked


def test_a_container_that_is_killed_from_outside_has_ended(
    node: TestedNode, podman: PodmanStore
) -> None:
    request = container(node, podman, "sleep", "60")
    node.client.launch(request)

    podman.run("kill", name_of(request))

    ended = node.wait_for_exit(member_of(request))
    assert ended.exit_code == 128 + signal.SIGKILL
    assert not ended.is_stop_asked


def test_a_container_outlives_its_supervisor_and_its_result_is_not_lost(
    ssh_node: SshdNode, podman: PodmanStore
) -> None:
    node = installed_ssh(ssh_node, podman.environment)
    request = container(node, podman, "sh", "-c", "echo ready; sleep 1.5; echo done; exit 6")
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")

    for pid in helpers_of(ssh_node.home):
        os.kill(pid, signal.SIGKILL)

    ended = node.wait_for_exit(member_of(request))
    assert ended.exit_code == 6
    assert node.logs[member_of(request)] == b"ready\ndone\n"


def test_a_container_outlives_the_client_that_started_it(
    node: TestedNode, podman: PodmanStore
) -> None:
    request = container(node, podman, "sh", "-c", "echo ready; sleep 1.5; exit 6")
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")

    for pid in clients_of(request):
        os.kill(pid, signal.SIGKILL)

    assert node.wait_for_exit(member_of(request)).exit_code == 6


def test_a_supervisor_that_dies_before_the_start_leads_to_no_second_start(
    node: TestedNode, podman: PodmanStore, ssh_node: SshdNode
) -> None:
    request = container(node, podman, "sleep", "60")
    node.client.launch(request)
    for pid in helpers_of(ssh_node.home):
        os.kill(pid, signal.SIGKILL)

    again = node.client.launch(request)

    assert isinstance(again, Answered)
    assert again.answer.state == "running"
    assert podman.run("ps", "--quiet").stdout.count(b"\n") == 1


def test_a_probe_names_podman_and_the_devices_in_cdi(
    node: TestedNode, cdi_devices: MakeDevices
) -> None:
    (device,) = cdi_devices("probed", 1)

    outcome = node.client.probe(
        ProbeRequest(installation=INSTALLATION, simulated_devices=(device.simulated(),))
    )

    assert isinstance(outcome, Answered)
    assert outcome.answer.runtimes["podman"][0].isdigit()
    assert device.cdi in outcome.answer.cdi_names
    (found,) = outcome.answer.devices
    assert (found.uuid, found.simulated, found.cdi) == (device.uuid, True, device.cdi)


def clients_of(request: LaunchRequest) -> list[int]:
    """The `podman run` of this member."""
    name = f"--name={name_of(request)}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            arguments = path.read_bytes().split(b"\0")
            if arguments[:2] == [b"podman", b"run"] and name in arguments:
                found.append(int(path.parent.name))
    return found


def name_of(request: LaunchRequest) -> str:
    """The container's name."""
    return f"rpm-{INSTALLATION}-{request.task_id}-{request.generation}-{request.rank}"
