"""What a node lets a launch have, whatever the control plane's key asks for."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from apps.execution.node import allowlist
from apps.execution.node.errors import RequestRefusal
from apps.execution.protocol.outcomes import Answered, NodeRefusal
from apps.execution.protocol.requests import VolumeMount
from apps.policies import extra_permissions
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
ROOTS_GROUP = {"uid": 12345, "gid": 0, "allow_root": True}
SOMEBODY = 12_345
PROCESS = {"runtime": "process", "image": "", "uid": None}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(allowlist.VARIABLE, str(tmp_path / "allowlist.json"))
    return tmp_path / "allowlist.json"


def problem(home: Path, **changes: Any) -> str:
    """The field that is refused; empty where nothing is."""
    try:
        allowlist.check(spec(**changes), str(home))
    except RequestRefusal as refusal:
        return refusal.detail.partition(":")[0]
    return ""


def test_it_knows_the_capabilities_of_profiles() -> None:
    assert set(allowlist.CAPABILITIES) == extra_permissions.CAPABILITIES


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
        ({}, ROOTS_GROUP, "uid"),
        ({"root": True}, ROOTS_GROUP, ""),
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
    ("mode", "owner", "want"),
    [
        pytest.param(0o755, None, "", id="of root"),
        pytest.param(0o755, SOMEBODY, "volumes", id="of a task's user"),
        pytest.param(0o775, None, "volumes", id="of a group"),
        pytest.param(0o777, None, "volumes", id="of everybody"),
        pytest.param(0o1777, None, "", id="of everybody, where each removes only their own"),
    ],
)
def test_a_volume_lies_in_folders_that_only_root_can_change(
    path: Path, mode: int, owner: int | None, want: str
) -> None:
    around = path.parent / "around"
    (around / "data").mkdir(parents=True)
    around.chmod(mode)
    if owner is not None:
        os.chown(around, owner, owner)
    path.write_text(json.dumps(NOTHING | {"mounts": [str(path.parent)]}))
    home = path.parent / "home"

    assert problem(home, volumes=[volume(str(around / "data"), "/x")]) == want
    # Its own top folder may belong to anybody.
    assert problem(home, volumes=[volume(str(around), "/x")]) == ""


def test_a_volume_in_a_folder_for_everybody_is_roots_own(path: Path) -> None:
    around = path.parent / "around"
    (around / "theirs").mkdir(parents=True)
    around.chmod(0o1777)
    os.chown(around / "theirs", SOMEBODY, SOMEBODY)
    path.write_text(json.dumps(NOTHING | {"mounts": [str(path.parent)]}))

    for name in ("theirs", "nothing-yet"):
        given = [volume(str(around / name), "/x")]
        assert problem(path.parent / "home", volumes=given) == "volumes"


@pytest.mark.parametrize("more", [{"root": True}, {"capabilities": ["DAC_OVERRIDE"]}])
def test_where_tasks_may_be_root_no_volume_lies_in_another(
    path: Path, more: dict[str, Any]
) -> None:
    (path.parent / "data" / "inner").mkdir(parents=True)
    mounts = [str(path.parent / "data"), str(path.parent / "data" / "inner")]
    home = path.parent / "home"
    path.write_text(json.dumps(NOTHING | {"mounts": mounts}))
    before = [problem(home, volumes=[volume(one, "/x")]) for one in mounts]
    path.write_text(json.dumps(NOTHING | {"mounts": mounts} | more))

    after = [problem(home, volumes=[volume(one, "/x")]) for one in mounts]

    assert (before, after) == (["", ""], ["", "volumes"])


def test_a_link_is_followed_only_where_root_made_it(path: Path) -> None:
    (path.parent / "data").mkdir()
    for name, owner in (("roots", 0), ("theirs", SOMEBODY)):
        (path.parent / name).symlink_to("data")
        os.chown(path.parent / name, owner, owner, follow_symlinks=False)
    (path.parent / "circle").symlink_to("circle")
    path.write_text(json.dumps(NOTHING | {"mounts": [str(path.parent)]}))

    wanted = {"roots": "", "theirs": "volumes", "circle": "volumes"}
    for name, want in wanted.items():
        given = [volume(str(path.parent / name), "/x")]
        assert problem(path.parent / "home", volumes=given) == want


def test_a_line_of_the_list_that_others_can_lead_elsewhere_allows_nothing(path: Path) -> None:
    around = path.parent / "around"
    around.mkdir()
    (around / "data").symlink_to("/etc")
    around.chmod(0o777)
    path.write_text(json.dumps(NOTHING | {"mounts": [str(around / "data")]}))

    assert problem(path.parent / "home", volumes=[volume("/etc", "/x")]) == "volumes"


@pytest.mark.parametrize("field", ["volumes", "device_paths"])
def test_a_path_that_nobody_can_follow_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    def lstat(_: str) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied")

    path.write_text(json.dumps(NOTHING | {"mounts": ["/srv"], "devices": ["/dev/fuse"]}))
    given = {"volumes": [volume("/srv/data", "/x")], "device_paths": ["/dev/fuse"]}

    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", lstat)
        refused = problem(path.parent / "home", **{field: given[field]})

    assert refused == field


def test_a_device_has_a_name_that_only_root_can_change(path: Path) -> None:
    around = Path("/dev/shm", f"rpm-test-{os.getpid()}")
    around.symlink_to("/dev/fuse")
    os.chown(around, SOMEBODY, SOMEBODY, follow_symlinks=False)
    try:
        assert problem(path.parent / "home", device_paths=[str(around)]) == "device_paths"
    finally:
        around.unlink()


def test_without_a_list_no_volume_holds_the_helpers_own_files(path: Path) -> None:
    home = path.parent / "account" / "home"
    home.mkdir(parents=True)

    assert problem(home, volumes=[volume(str(home.parent), "/x")]) == "volumes"


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", json.dumps(NOTHING | {"mount": []}), json.dumps(NOTHING | {"mounts": "/"})],
)
def test_a_list_that_cannot_be_read_allows_nothing(path: Path, content: str) -> None:
    path.write_text(content)

    with pytest.raises(RequestRefusal) as refusal:
        allowlist.check(spec(), str(path.parent / "home"))

    assert (refusal.value.code, str(path) in refusal.value.detail) == ("not_allowed", True)


def test_a_stolen_key_gets_no_more_than_the_node_allows(
    ssh_node: SshdNode, podman: PodmanStore
) -> None:
    node = installed_ssh(ssh_node, podman.environment)
    stolen = [
        container(node, podman, "true", volumes=(VolumeMount("/", "/host"),)),
        container(node, podman, "true", capabilities=("SYS_ADMIN",)),
        container(node, podman, "true", network="host"),
    ]

    outcomes = [node.client.launch(request) for request in stolen]
    ssh_node.allowlist.write_text(json.dumps(NOTHING | {"host_network": True}))
    allowed = node.client.launch(stolen[2])
    process = node.launch("true")

    for outcome in (*outcomes, process):
        assert isinstance(outcome, NodeRefusal), outcome
        assert f"root can allow it in {ssh_node.allowlist}" in outcome.detail
    assert isinstance(allowed, Answered), allowed
    assert node.wait_for_exit(member_of(stolen[2])).exit_code == 0


def test_a_launch_that_has_not_begun_is_checked_when_it_comes_again(
    ssh_node: SshdNode, podman: PodmanStore
) -> None:
    node = installed_ssh(ssh_node, podman.environment)
    ssh_node.allowlist.write_text(json.dumps(NOTHING))
    request = container(node, podman, "true")
    # An earlier launch of it was written down, and its supervisor died at once.
    folder = Path(ssh_node.home, "tasks", request.task_id, "1-0")
    folder.mkdir(parents=True)
    noted = {"boot_id": request.boot_id, "runtime": "podman"}
    (folder / "spec.json").write_text(json.dumps(noted))

    other = container(node, podman, "true", task_id=request.task_id, network="host")
    outcome = node.client.launch(other)

    assert isinstance(outcome, NodeRefusal), outcome
    assert f"root can allow it in {ssh_node.allowlist}" in outcome.detail


def test_a_task_that_swaps_a_folder_of_its_volume_gets_nothing_else_of_the_node(
    ssh_node: SshdNode, podman: PodmanStore, tmp_path: Path
) -> None:
    node = installed_ssh(ssh_node, podman.environment)
    data = tmp_path / "data"
    (data / "inner").mkdir(parents=True)
    data.chmod(0o777)
    ssh_node.allowlist.write_text(json.dumps(NOTHING | {"mounts": [str(data)]}))
    outer = container(node, podman, "true", volumes=(VolumeMount(str(data), "/v"),))
    inner = container(node, podman, "true", volumes=(VolumeMount(str(data / "inner"), "/v"),))

    first, second = node.client.launch(outer), node.client.launch(inner)

    assert isinstance(first, Answered), first
    assert node.wait_for_exit(member_of(outer)).exit_code == 0
    assert isinstance(second, NodeRefusal), second
    assert f"others can change the folder {data}" in second.detail
