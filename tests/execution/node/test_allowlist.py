"""What a node lets a launch have, whatever the control plane's key asks for."""

import json
from pathlib import Path
from typing import Any

import pytest

from apps.execution.node import allowlist
from apps.execution.node.errors import Refusal
from apps.execution.protocol.outcomes import Answered, Refused
from apps.execution.protocol.requests import GivenVolume
from apps.policies import extras
from tests.execution.node.test_arguments import spec, volume
from tests.execution.node.test_containers import container
from tests.execution.nodes import installed_ssh, member_of
from tests.services.podman import PodmanStore
from tests.services.sshd import SshdNode

NOTHING: dict[str, Any] = {
    "runtimes": ["podman"],
    "mounts": [],
    "capabilities": [],
    "devices": [],
    "host_network": False,
    "root": False,
}
ROOT = {"uid": 0, "gid": 0, "allow_root": True}
PROCESS = {"runtime": "process", "image": "", "uid": None}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(allowlist.VARIABLE, str(tmp_path / "allowlist.json"))
    return tmp_path / "allowlist.json"


def problem(home: Path, **changes: Any) -> str:
    """The field that is refused; empty where nothing is."""
    try:
        allowlist.check(spec(**changes), str(home))
    except Refusal as refusal:
        return refusal.detail.partition(":")[0]
    return ""


def test_it_knows_the_capabilities_of_profiles() -> None:
    assert set(allowlist.CAPABILITIES) == extras.CAPABILITIES


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        *[
            ({"volumes": [volume(one, "/x")]}, "volumes")
            for one in ("/", "/etc", "/var", "/usr/lib")
        ],
        *[({"volumes": [volume(one, "/x")]}, "") for one in ("/srv/data", "/home", "/opt")],
        ({"capabilities": ["SYS_ADMIN"]}, "capabilities"),
        ({"capabilities": ["IPC_LOCK"]}, ""),
        ({"network": "host"}, "network"),
        ({"network": "none"}, ""),
        ({"device_paths": ["/dev/mem"]}, "device_paths"),
        ({"device_paths": ["/dev/fuse"]}, ""),
        (ROOT, ""),
        (PROCESS, ""),
    ],
)
def test_a_node_without_a_list_keeps_its_own_system(
    path: Path, changes: dict[str, Any], want: str
) -> None:
    assert problem(path.parent / "home", **changes) == want


@pytest.mark.parametrize(
    ("allowed", "changes", "want"),
    [
        ({}, {}, ""),
        ({}, {"volumes": [volume("/srv/data", "/x")]}, "volumes"),
        ({"mounts": ["/srv"]}, {"volumes": [volume("/srv/data", "/x")]}, ""),
        ({"mounts": ["/srv"]}, {"volumes": [volume("/srvx", "/x")]}, "volumes"),
        ({"mounts": ["/srv/data"]}, {"volumes": [volume("/srv", "/x")]}, "volumes"),
        ({"mounts": ["/"]}, {"volumes": [volume("/", "/x")]}, ""),
        ({}, {"capabilities": ["IPC_LOCK"]}, "capabilities"),
        ({"capabilities": ["SYS_ADMIN"]}, {"capabilities": ["SYS_ADMIN"]}, ""),
        ({}, {"device_paths": ["/dev/fuse"]}, "device_paths"),
        ({"devices": ["/dev/fuse"]}, {"device_paths": ["/dev/fuse"]}, ""),
        ({"host_network": True}, {"network": "host"}, ""),
        ({}, {"network": "host"}, "network"),
        ({}, ROOT, "uid"),
        ({"root": True}, ROOT, ""),
        ({}, PROCESS, "runtime"),
        ({}, {"runtime": "docker"}, "runtime"),
        ({"runtimes": ["process"], "root": True}, PROCESS, ""),
    ],
)
def test_a_nodes_list_is_the_most_that_a_launch_gets(
    path: Path, allowed: dict[str, Any], changes: dict[str, Any], want: str
) -> None:
    path.write_text(json.dumps(NOTHING | allowed))

    assert problem(path.parent / "home", **changes) == want


def test_links_are_followed_and_the_helpers_own_files_are_never_given(path: Path) -> None:
    home = path.parent / "home"
    (path.parent / "link").symlink_to("/etc")
    path.write_text(json.dumps(NOTHING | {"mounts": [str(path.parent)]}))

    assert problem(home, volumes=[volume(str(path.parent / "link"), "/x")]) == "volumes"
    assert problem(home, volumes=[volume(str(home / "tasks"), "/x")]) == "volumes"
    assert problem(home, volumes=[volume(str(path.parent / "data"), "/x")]) == ""


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", json.dumps(NOTHING | {"mount": []}), json.dumps(NOTHING | {"mounts": "/"})],
)
def test_a_list_that_cannot_be_read_allows_nothing(path: Path, content: str) -> None:
    path.write_text(content)

    with pytest.raises(Refusal) as refusal:
        allowlist.check(spec(), str(path.parent / "home"))

    assert (refusal.value.code, str(path) in refusal.value.detail) == ("not_allowed", True)


def test_a_stolen_key_gets_no_more_than_the_node_allows(
    ssh_node: SshdNode, podman: PodmanStore
) -> None:
    node = installed_ssh(ssh_node, podman.environment)
    stolen = [
        container(node, podman, "true", volumes=(GivenVolume("/", "/host"),)),
        container(node, podman, "true", capabilities=("SYS_ADMIN",)),
        container(node, podman, "true", network="host"),
    ]

    outcomes = [node.client.launch(request) for request in stolen]
    ssh_node.allowlist.write_text(json.dumps(NOTHING | {"host_network": True}))
    allowed = node.client.launch(stolen[2])
    process = node.launch("true")

    for outcome in (*outcomes, process):
        assert isinstance(outcome, Refused), outcome
        assert f"root can allow it in {ssh_node.allowlist}" in outcome.detail
    assert isinstance(allowed, Answered), allowed
    assert node.wait_for_exit(member_of(stolen[2])).exit_code == 0
