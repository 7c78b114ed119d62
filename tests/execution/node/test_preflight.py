"""A container of the helper's own, started by real podman as tasks get theirs."""

import json
from pathlib import Path

import pytest

from apps.execution.protocol.answers import PreflightAnswer
from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import PreflightRequest
from tests.execution.nodes import INSTALLATION, TestedNode, installed_local
from tests.services.cdi import MakeDevices
from tests.services.podman import PodmanStore

NOBODY = 65_534


def tried(node: TestedNode, **changes: object) -> PreflightAnswer:
    fields: dict[str, object] = {
        "installation": INSTALLATION,
        "runtime": "podman",
        "uid": NOBODY,
        "gid": NOBODY,
    }
    outcome = node.client.preflight(PreflightRequest(**(fields | changes)))  # type: ignore[arg-type]  # the helper checks each field
    assert isinstance(outcome, Answered), outcome
    return outcome.answer


def test_a_runtime_that_starts_containers_passes_and_nothing_is_left(
    tmp_path: Path, podman: PodmanStore, cdi_devices: MakeDevices
) -> None:
    node = installed_local(str(tmp_path / "node"), environment=podman.environment)
    (device,) = cdi_devices("preflight", 1)

    for _ in range(2):
        assert tried(node, devices=(device.given(),)) == PreflightAnswer("passed")

    assert not [name for name in podman.names() if "preflight" in name]


def test_a_device_that_no_cdi_file_names_fails_it_in_the_runtimes_words(
    tmp_path: Path, podman: PodmanStore, cdi_devices: MakeDevices
) -> None:
    node = installed_local(str(tmp_path / "node"), environment=podman.environment)
    (device,) = cdi_devices("preflight", 1)
    gone = {"uuid": device.uuid, "cdi": device.cdi + "9"}

    answer = tried(node, devices=(gone,))

    assert answer.state == "failed"
    assert "CDI" in answer.detail
    assert not [name for name in podman.names() if "preflight" in name]


@pytest.mark.parametrize("broken", ["podman", "docker"])
def test_a_runtime_that_starts_nothing_fails_it(
    tmp_path: Path, podman: PodmanStore, broken: str
) -> None:
    program = tmp_path / "bin" / broken
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'Error: OCI runtime is broken' >&2; exit 126\n")
    program.chmod(0o755)
    path = {"PATH": f"{program.parent}:/usr/bin:/bin"}
    node = installed_local(str(tmp_path / "node"), environment=podman.environment | path)

    answer = tried(node, runtime=broken)

    assert (answer.state, answer.detail) == ("failed", "Error: OCI runtime is broken")


def test_plain_processes_need_no_container(tmp_path: Path) -> None:
    node = installed_local(str(tmp_path / "node"))

    assert tried(node, runtime="process", allow_process=True) == PreflightAnswer("passed")


def test_a_node_that_does_not_allow_plain_processes_fails_it(tmp_path: Path) -> None:
    node = installed_local(str(tmp_path / "node"))

    answer = tried(node, runtime="process")

    assert answer.state == "failed"
    assert "does not allow tasks without a container" in answer.detail


@pytest.mark.parametrize(
    ("runtime", "listed"), [("process", ["podman"]), ("podman", ["docker"]), ("podman", "broken")]
)
def test_a_runtime_that_is_not_in_the_nodes_list_fails_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, listed: object
) -> None:
    node = installed_local(str(tmp_path / "node"))
    allowlist = tmp_path / "allowlist.json"
    empty: dict[str, object] = {name: [] for name in ("mounts", "capabilities", "devices")}
    allowlist.write_text(
        json.dumps(empty | {"runtimes": listed, "host_network": False, "root": False})
    )
    monkeypatch.setenv("RPM_NODE_ALLOWLIST", str(allowlist))

    answer = tried(node, runtime=runtime, allow_process=True)

    assert answer.state == "failed"
    assert str(allowlist) in answer.detail
