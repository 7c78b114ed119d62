"""Shares of devices without a runtime: variables, mounts, grammar, and what a node says of them."""

from typing import Any

import pytest

from apps.execution.node import mps
from apps.execution.node.arguments import ContainerPaths, docker_run, podman_run
from apps.execution.node.environment import container_environment, process_environment
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.mps import MpsDaemon
from apps.execution.node.specs import Spec
from apps.execution.protocol.requests import AllocatedDevice
from tests.execution.node.test_arguments import spec as plain_spec
from tests.nvml.driver import Gpu, Slice

HALF = AllocatedDevice("GPU-a", milli=500, memory_mb=40_779, enforced_by="mps")
PATHS = ContainerPaths("rpm-inst-t1-1-0", "inst", "/home", "/home/tasks/t1/1-0")


def spec(device: AllocatedDevice, **changes: Any) -> Spec:
    given = {
        "uuid": device.uuid,
        "cdi": device.cdi,
        "milli": device.milli,
        "memory_mb": device.memory_mb,
        "enforced_by": device.enforced_by,
    }
    return plain_spec(cpu_milli=0, memory_mb=0, **{"devices": [given], **changes})


@pytest.mark.parametrize(("milli", "want"), [(999, "99"), (142, "14"), (10, "1"), (1, "1")])
def test_threads_are_limited_in_whole_percent_and_never_to_none(milli: int, want: str) -> None:
    launch_spec = spec(AllocatedDevice("GPU-a", milli=milli, memory_mb=100, enforced_by="mps"))

    variables = container_environment(launch_spec._replace(mps_pipe="/p", mps_shared_memory="/s"))

    assert variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == want


def test_what_a_task_says_of_mps_is_not_passed_on() -> None:
    own = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/x", "RPM_GPU_SHARE": "1.000"}

    for build in (container_environment, process_environment):
        variables = build(spec(AllocatedDevice("GPU-a"), environment=own))

        assert not own.items() & variables.items()


@pytest.mark.parametrize("build", [podman_run, docker_run])
def test_a_container_gets_sockets_and_shared_memory_by_mounts(build: Any) -> None:
    launch_spec = spec(HALF)._replace(
        mps_pipe="/run/rpm-mps/a/b/pipe", mps_shared_memory="/dev/shm/c"
    )

    arguments = build(launch_spec, PATHS)

    options = arguments[: arguments.index("--")]
    pipe = "source=/run/rpm-mps/a/b/pipe,destination=/run/rpm-mps/a/b/pipe"
    assert f"--mount=type=bind,{pipe}" in options
    assert "--mount=type=bind,source=/dev/shm/c,destination=/dev/shm" in options
    # The two ways of giving a container a /dev/shm exclude each other.
    assert not [option for option in options if option.startswith("--shm-size")]


@pytest.mark.parametrize("build", [podman_run, docker_run])
def test_a_slice_is_given_by_its_uuid(build: Any) -> None:
    launch_spec = spec(AllocatedDevice("MIG-1f2e", "nvidia.com/gpu=MIG-1f2e", memory_mb=9_856))

    assert "--device=nvidia.com/gpu=MIG-1f2e" in build(launch_spec, PATHS)
    assert container_environment(launch_spec)["CUDA_VISIBLE_DEVICES"] == "MIG-1f2e"


def test_the_daemon_is_started_as_the_user_of_the_tasks() -> None:
    contained = MpsDaemon("/h", "GPU-a", "1000:1001", is_contained=True)
    plain = MpsDaemon("/h", "GPU-a", "0:0", is_contained=False)

    assert mps.start_command(plain, "/usr/bin/control") == ["/usr/bin/control", "-d"]
    assert mps.start_command(contained, "/usr/bin/control") == [
        *("unshare", "--mount", "--propagation=private", "--"),
        *("sh", "-c", mps.MOUNT, "sh", contained.shared_memory),
        *("setpriv", "--reuid=1000", "--regid=1001", "--clear-groups", "--"),
        *("/usr/bin/control", "-d"),
    ]


def test_sockets_of_the_longest_paths_can_still_be_made() -> None:
    daemon = MpsDaemon(
        "/" + "h" * 500, "MIG-" + "0" * 36, "4294967294:4294967294", is_contained=True
    )

    assert len(f"{daemon.pipe}/control_privileged") < 108


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"milli": 0}, id="nothing of it"),
        pytest.param({"milli": 1001}, id="more than all of it"),
        pytest.param({"memory_mb": -1}, id="less than no memory"),
        pytest.param({"enforced_by": "magic"}, id="an unknown way"),
    ],
)
def test_a_share_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RequestRefusal, match=r"is not|is none of"):
        spec(AllocatedDevice("GPU-a"), devices=[{"uuid": "GPU-a", **changes}])


@pytest.mark.parametrize(
    ("gpus", "has_mps", "account", "cuda", "want"),
    [
        pytest.param((), True, 0, 12_040, None, id="no device, nothing to say"),
        pytest.param((Gpu("a"),), True, 0, 12_040, ("mps", ""), id="MPS"),
        pytest.param(
            (Gpu("a"),), False, 0, 12_040, ("accounted", "is not installed"), id="no program"
        ),
        pytest.param(
            (Gpu("a"),), True, 1000, 12_040, ("accounted", "does not run as root"), id="no root"
        ),
        pytest.param(
            (Gpu("a"), Gpu("b", capability="6.1")),
            *(True, 0, 12_040),
            ("accounted", "older than Volta"),
            id="one GPU too old",
        ),
        pytest.param(
            (Gpu("a"),), True, 0, 11_040, ("accounted", "older than CUDA 11.5"), id="driver too old"
        ),
        pytest.param(
            (Gpu("a", is_split=True, slices=(Slice("m"),)),),
            *(False, 0, 12_040),
            ("mig", ""),
            id="slices only",
        ),
        pytest.param(
            (Gpu("a", is_split=True, slices=(Slice("m"),)), Gpu("b")),
            *(False, 0, 12_040),
            ("accounted", "is not installed"),
            id="the weaker counts where some are split",
        ),
    ],
)
def test_a_node_says_what_holds_tasks_to_their_share(
    gpus: tuple[Gpu, ...],
    has_mps: bool,
    account: int,
    cuda: int,
    want: tuple[str, str] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mps, "_program", lambda _: "/usr/bin/control" if has_mps else None)
    units = [one for gpu in gpus for one in (gpu.slices if gpu.is_split else (gpu,))]
    whole = [gpu for gpu in gpus if not gpu.is_split]
    found = {
        "devices": [{"parent_uuid": "a" if isinstance(one, Slice) else ""} for one in units],
        "capability": min((int(gpu.capability.replace(".", "")) for gpu in whole), default=0),
        "cuda": cuda,
    }

    answer = mps.enforcement(found, {}, account=account)

    if want is None:
        assert answer is None
    else:
        assert answer is not None
        assert (answer["memory"], answer["compute"]) == (want[0], want[0])
        assert want[1] in answer["detail"]
