"""MPS under the helper's care, with a stand-in for its control program."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from apps.execution.node import mps
from apps.execution.node.mps import MpsDaemon
from apps.execution.node.processes import start_ticks
from apps.execution.protocol.outcomes import Answered, StartFailed
from apps.execution.protocol.requests import AllocatedDevice, LaunchRequest, MemberKey
from tests.execution.nodes import TestedNode, installed_local, installed_ssh, member_of
from tests.nvml.driver import Gpu, StubDriver
from tests.services.mps import MpsControl
from tests.services.podman import PodmanStore
from tests.services.ports import wait_until
from tests.services.sshd import SshdNode

HALF = AllocatedDevice("GPU-a", milli=500, memory_mb=40_779, enforced_by="mps")


@pytest.fixture
def node(tmp_path: Path, mps_control: MpsControl) -> TestedNode:
    return installed_local(str(tmp_path / "home"), environment=mps_control.environment)


def home_of(node: TestedNode) -> str:
    return node.client.transport.home  # type: ignore[attr-defined,no-any-return]  # a local one


def launched(
    node: TestedNode, *command: str, device: AllocatedDevice = HALF, **more: Any
) -> LaunchRequest:
    request = node.launch_request(*command, devices=(device,), **more)
    outcome = node.client.launch(request)
    assert isinstance(outcome, Answered), outcome
    return request


def ended(node: TestedNode, member: MemberKey) -> None:
    node.stop(member, grace_s=0)
    node.wait_for_exit(member)
    node.sync(member)


def none_left(home: str) -> None:
    """Daemons end in a process of their own once an exchange sees that no task needs them."""
    wait_until(lambda: not mps.daemons(home), what="the end of every daemon")


def daemon_of(node: TestedNode) -> MpsDaemon:
    (daemon,) = mps.daemons(home_of(node))
    return daemon


def pid_in(daemon: MpsDaemon, name: str) -> int:
    return int((Path(daemon.pipe) / name).read_text())


def is_living(pid: int) -> bool:
    return mps._name_of(pid) == mps.KNOWN_AS and start_ticks(pid) is not None


def test_the_daemon_runs_before_the_task_and_its_limits_are_the_tasks_share(
    node: TestedNode, mps_control: MpsControl
) -> None:
    request = launched(node, "sh", "-c", "env; ls $CUDA_MPS_PIPE_DIRECTORY; sleep 60")
    member = member_of(request)
    node.wait_for_log(member, b"server\n")

    variables = dict(
        line.split("=", 1) for line in node.logs[member].decode().splitlines() if "=" in line
    )
    daemon = daemon_of(node)
    assert variables["CUDA_MPS_PIPE_DIRECTORY"] == daemon.pipe
    assert variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=40779M"
    assert variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert variables["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert (variables["RPM_GPU_SHARE"], variables["RPM_GPU_MEMORY_MB"]) == ("0.500", "40779")
    # The log lists the daemon's files: it was there before the task.
    assert b"nvidia-cuda-mps-control.pid" in node.logs[member]
    (call,) = mps_control.calls()
    assert (call["word"], call["device"], call["user"]) == ("start", "GPU-a", "0:0")
    assert (call["pipe"], call["log"]) == (daemon.pipe, daemon.log)
    ended(node, member)
    none_left(home_of(node))


def test_the_last_task_takes_the_daemon_with_it(node: TestedNode, mps_control: MpsControl) -> None:
    first, second = (member_of(launched(node, "sleep", "60")) for _ in range(2))
    daemon = daemon_of(node)
    pids = [pid_in(daemon, name) for name in ("nvidia-cuda-mps-control.pid", "server")]

    ended(node, first)
    assert mps_control.words() == ["start"]
    ended(node, second)
    none_left(home_of(node))

    assert mps_control.words() == ["start", "quit"]
    wait_until(lambda: not any(map(is_living, pids)), what="the end of daemon and server")
    wait_until(lambda: not Path(daemon.folder).exists(), what="the end of its folder")


def test_another_device_or_user_has_a_daemon_of_its_own(
    node: TestedNode, mps_control: MpsControl
) -> None:
    other = AllocatedDevice("GPU-b", milli=500, memory_mb=1, enforced_by="mps")
    members = [
        member_of(launched(node, "sleep", "60")),
        member_of(launched(node, "sleep", "60", device=other)),
        member_of(launched(node, "sleep", "60", uid=12_345, gid=12_346)),
    ]

    assert sorted((call["device"], call["user"]) for call in mps_control.calls()) == [
        ("GPU-a", "0:0"),
        ("GPU-a", "12345:12346"),
        ("GPU-b", "0:0"),
    ]
    for member in members:
        ended(node, member)
    none_left(home_of(node))


def test_a_daemon_that_died_is_started_again(node: TestedNode, mps_control: MpsControl) -> None:
    member = member_of(launched(node, "sleep", "60"))
    before = pid_in(daemon_of(node), "nvidia-cuda-mps-control.pid")
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: not is_living(before), what="the end of the daemon")

    node.sync()
    wait_until(lambda: mps._pid_of(daemon_of(node)) is not None, what="another daemon")

    assert mps_control.words() == ["start", "start"]
    assert pid_in(daemon_of(node), "nvidia-cuda-mps-control.pid") != before
    assert next(one for one in node.sync().members if one.member == member).state == "running"
    ended(node, member)
    none_left(home_of(node))


def test_a_task_does_not_run_without_the_limits_it_was_promised(
    node: TestedNode, mps_control: MpsControl
) -> None:
    mps_control.be("broken")

    outcome = node.client.launch(node.launch_request("true", devices=(HALF,)))

    assert isinstance(outcome, StartFailed)
    assert outcome.detail == "MPS does not start: An instance of this daemon is already running"
    node.sync()
    none_left(home_of(node))


def test_a_daemon_that_does_not_listen_is_killed(node: TestedNode, mps_control: MpsControl) -> None:
    member = member_of(launched(node, "sleep", "60"))
    daemon = daemon_of(node)
    pids = [pid_in(daemon, name) for name in ("nvidia-cuda-mps-control.pid", "server")]
    mps_control.be("deaf")

    ended(node, member)

    wait_until(lambda: not any(map(is_living, pids)), what="the end of daemon and server")
    none_left(home_of(node))


@pytest.mark.parametrize(
    "device",
    [
        pytest.param(AllocatedDevice("GPU-a"), id="a whole device"),
        pytest.param(
            AllocatedDevice("GPU-a", milli=250, memory_mb=9), id="a share that is accounted"
        ),
    ],
)
def test_without_a_limit_to_hold_there_is_no_daemon(
    node: TestedNode, mps_control: MpsControl, device: AllocatedDevice
) -> None:
    request = launched(node, "env", device=device)

    node.wait_for_exit(member_of(request))

    assert mps_control.words() == []
    assert b"CUDA_MPS" not in node.logs[member_of(request)]
    is_share = device.milli < 1000
    assert (b"RPM_GPU_SHARE=0.250" in node.logs[member_of(request)]) == is_share


def test_the_server_of_our_daemon_does_not_occupy_the_device(
    node: TestedNode, stub_driver: StubDriver
) -> None:
    member = member_of(launched(node, "sh", "-c", "echo $$; exec sleep 60"))
    node.wait_for(member, lambda _: node.logs.get(member, b"").endswith(b"\n"))
    server, client = pid_in(daemon_of(node), "server"), int(node.logs[member])
    # A foreign process that calls itself like a server is still foreign.
    stub_driver.tell(Gpu("GPU-a", processes=((server, 30), (client, 400), (os.getpid(), 1))))

    found = node.sync(full=True).device_processes

    assert {(one.pid, one.member) for one in found} == {(client, member), (os.getpid(), None)}
    ended(node, member)
    none_left(home_of(node))


def test_a_container_reaches_the_daemon_and_shares_memory_with_its_server(
    ssh_node: SshdNode, podman: PodmanStore, mps_control: MpsControl
) -> None:
    node = installed_ssh(ssh_node, podman.environment | mps_control.environment)
    request = node.launch_request(
        "sh",
        "-c",
        "cat $CUDA_MPS_PIPE_DIRECTORY/server; echo here > /dev/shm/mine; sleep 60",
        devices=(HALF,),
        runtime="podman",
        image=podman.image,
        allow_process=False,
        uid=12_345,
        gid=12_345,
        memory_mb=64,
        shm_mb=16,
    )
    member = member_of(request)
    assert isinstance(node.client.launch(request), Answered)
    node.wait_for_log(member, b"\n")
    (daemon,) = mps.daemons(ssh_node.home)
    shared = Path(daemon.shared_memory)

    wait_until((shared / "mine").exists, what="a file in the shared memory")
    assert int(node.logs[member]) == pid_in(daemon, "server")
    (call,) = mps_control.calls()
    assert call["user"] == "12345:12345"
    # The daemon's own /dev/shm is that folder, and nobody else's is.
    assert int(call["shm"]) == shared.stat().st_ino != os.stat("/dev/shm").st_ino
    assert shared.parent.stat().st_mode & 0o777 == 0o700
    ended(node, member)
    wait_until(lambda: not shared.exists(), what="the end of the shared memory")


def test_the_probe_tells_it_of_the_devices_that_the_driver_shows(
    node: TestedNode, stub_driver: StubDriver
) -> None:
    assert node.probe().answer.enforcement is None
    stub_driver.tell(Gpu("GPU-a"), Gpu("GPU-b", capability="6.1"))
    old = node.probe().answer.enforcement
    stub_driver.tell(Gpu("GPU-a"))
    new = node.probe().answer.enforcement

    assert old is not None
    assert new is not None
    assert (old.memory, old.detail) == (
        "accounted",
        "MPS cannot limit GPUs that are older than Volta",
    )
    assert (new.memory, new.compute, new.detail) == ("mps", "mps", "")
