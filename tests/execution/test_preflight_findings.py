"""Whether a machine passes its preflight checks, and what fixes it."""

from typing import Any

import pytest
from msgspec import structs

from apps.execution.preflight_findings import ConnectionFacts, PreflightFinding, examine, version_of
from apps.execution.protocol.answers import DeviceReport, NodeInventory
from apps.execution.transport.ssh import EXCHANGES_AT_ONCE

GPU = DeviceReport(
    index=0,
    uuid="GPU-1",
    model="H100",
    memory_mb=81_559,
    used_mb=0,
    cdi="nvidia.com/gpu=0",
    simulated=False,
)
FIT = NodeInventory(
    hostname="gpu01",
    kernel="6.1.0",
    python="3.11.2",
    account=1001,
    nvidia="ok",
    driver="570.10",
    devices=(GPU,),
    cdi_names=("nvidia.com/gpu=0",),
    cpu_milli=64_000,
    memory_mb=500_000,
    memory_free_mb=400_000,
    disk_mb=2_000_000,
    disk_free_mb=900_000,
    network=(),
    runtimes={"podman": "4.3.1", "docker": "27.5.1"},
    crashes="",
)
CONNECTION = ConnectionFacts(skew_s=0.1, is_restricted=True, shell="/bin/sh", sessions=16)


def bad(findings: list[PreflightFinding]) -> dict[str, str]:
    assert all(bool(one.fix) is not one.is_fine for one in findings), findings
    return {one.name: one.fix for one in findings if not one.is_fine}


@pytest.mark.parametrize("runtime", ["podman", "docker", "process"])
def test_a_fit_machine_needs_nothing(runtime: str) -> None:
    assert bad(examine(FIT, CONNECTION, runtime=runtime)) == {}


@pytest.mark.parametrize(
    ("runtime", "inventory", "connection", "want_name", "want_fix"),
    [
        pytest.param("podman", {"python": "3.8.10"}, {}, "python", "python3", id="old Python"),
        pytest.param(
            "podman", {"runtimes": {"podman": "3.4.4"}}, {}, "podman", "4.1", id="old podman"
        ),
        pytest.param(
            "podman", {"runtimes": {"podman": "4.7.0"}}, {}, "podman", "quotes", id="podman 4.7.0"
        ),
        # It does not answer without the programs of uidmap either.
        pytest.param(
            "podman", {"runtimes": {}}, {}, "podman", "install podman uidmap", id="no podman"
        ),
        pytest.param(
            "docker", {"runtimes": {"docker": "24.0.7"}}, {}, "docker", "25.0", id="old docker"
        ),
        pytest.param("docker", {"runtimes": {}}, {}, "docker", "usermod", id="no docker"),
        pytest.param(
            "podman",
            {"devices": (structs.replace(GPU, cdi=""),)},
            {},
            "cdi",
            "nvidia-ctk cdi generate",
            id="no CDI",
        ),
        pytest.param("podman", {"disk_free_mb": 5_000}, {}, "disk", "prune", id="full disk"),
        pytest.param("podman", {}, {"skew_s": -7.0}, "clock", "timedatectl", id="clock behind"),
        pytest.param("podman", {}, {"sessions": 4}, "sshd", "MaxSessions", id="few sessions"),
        pytest.param("podman", {}, {"shell": "/bin/bash"}, "shell", "usermod", id="other shell"),
        pytest.param(
            "podman", {}, {"is_restricted": False}, "key", "node prepare", id="a key for all"
        ),
        pytest.param("podman", {"crashes": "Oops\n"}, {}, "helper", "report", id="a trace"),
    ],
)
def test_what_is_wrong_is_shown_with_its_fix(
    runtime: str,
    inventory: dict[str, Any],
    connection: dict[str, Any],
    want_name: str,
    want_fix: str,
) -> None:
    problems = bad(
        examine(
            structs.replace(FIT, **inventory),
            ConnectionFacts(**({"skew_s": 0.1, "sessions": 16} | connection)),
            runtime=runtime,
        )
    )

    assert list(problems) == [want_name]
    assert want_fix in problems[want_name]


def test_a_container_that_lacks_uidmap_is_fixed_with_that_package() -> None:
    problem = 'command required for rootless mode: exec: "newuidmap": not found'

    findings = examine(FIT, CONNECTION, runtime="podman", problem=problem)

    assert bad(findings) == {"container": "apt-get install uidmap"}


def test_a_fix_names_the_account_where_it_is_known() -> None:
    connection = ConnectionFacts(shell="/bin/bash", account="gpu-runner")

    assert bad(examine(FIT, connection, runtime="podman")) == {
        "shell": "usermod --shell /bin/sh gpu-runner"
    }


def test_for_the_account_root_the_fix_is_another_account() -> None:
    connection = ConnectionFacts(shell="/bin/bash", is_restricted=False, account="root")

    problems = bad(examine(FIT, connection, runtime="podman"))

    want = "use another account than root: the script of manage.py node prepare makes one"
    assert problems == {"shell": want, "key": want}


@pytest.mark.parametrize(
    ("is_new", "want"),
    [
        pytest.param(True, "tick “Allow plain processes”, then check again", id="a new machine"),
        pytest.param(False, "manage.py node set NODE --allow-process", id="a node"),
    ],
)
def test_what_allows_plain_processes_depends_on_where_it_is_set(*, is_new: bool, want: str) -> None:
    problem = "this node does not allow tasks without a container"

    found = examine(FIT, ConnectionFacts(), runtime="process", problem=problem, is_new=is_new)

    assert bad(found) == {"process": want}


@pytest.mark.parametrize(
    ("fix", "want"),
    [
        ("usermod --shell /bin/sh gpu-runner", True),
        ("manage.py node set NODE --allow-process", True),
        ("apt-get install podman (Debian 12, Ubuntu 24.04 or newer have 4.3 and up)", False),
        ("run the script of manage.py node prepare on it", False),
        ("report it", False),
        ("", False),
    ],
)
def test_only_a_command_is_offered_to_copy(*, fix: str, want: bool) -> None:
    assert PreflightFinding("x", is_fine=False, words="", fix=fix).is_command is want


def test_a_machine_without_gpus_and_one_of_which_little_is_known_are_fit() -> None:
    plain = structs.replace(FIT, devices=(), nvidia="no driver", cdi_names=())

    assert bad(examine(plain, ConnectionFacts(), runtime="podman")) == {}


@pytest.mark.parametrize(
    ("words", "want"),
    [("4.3.1", (4, 3)), ("podman version 5.0", (5, 0)), ("", None), ("dev", None)],
)
def test_versions_are_read_out_of_words(words: str, want: tuple[int, int] | None) -> None:
    assert version_of(words) == want


def test_the_sessions_asked_for_are_those_that_are_used() -> None:
    assert examine(FIT, ConnectionFacts(sessions=EXCHANGES_AT_ONCE + 1), runtime="process")
    assert (
        bad(examine(FIT, ConnectionFacts(sessions=EXCHANGES_AT_ONCE + 1), runtime="process")) == {}
    )
    assert bad(examine(FIT, ConnectionFacts(sessions=EXCHANGES_AT_ONCE), runtime="process"))
