"""What only the task may read, and the file by which it tells of its checkpoints."""

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.execution.node import private_files, processes
from apps.execution.node.arguments import ContainerPaths, docker_run
from apps.execution.node.specs import MemberIdentity
from apps.execution.node.state_files import MemberFolder, supervisor_of
from apps.execution.protocol.requests import LaunchRequest
from tests.execution.node.test_arguments import spec as plain_spec
from tests.execution.node.test_containers import container, name_of
from tests.execution.nodes import (
    INSTALLATION,
    TestedNode,
    installed_local,
    installed_ssh,
    member_of,
)
from tests.services.podman import PodmanStore
from tests.services.ports import wait_until
from tests.services.sshd import SshdNode, kill_helpers

CANARY = "c4n4ry-of-the-tests"


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "home")


@pytest.fixture
def node(home: str) -> Iterator[TestedNode]:
    """This machine as a node."""
    yield installed_local(home)
    kill_helpers(home)


def member_of_request(home: str, request: LaunchRequest) -> MemberFolder:
    return MemberFolder(home, MemberIdentity(request.task_id, request.generation, request.rank))


def folder_of(home: str, request: LaunchRequest) -> Path:
    return Path(
        private_files.folder_of(member_of_request(home, request), {"installation": INSTALLATION})
    )


def holders_of(words: str, *folders: str) -> list[str]:
    """Files, command lines and environments that hold these words."""
    want = words.encode()
    paths = [path for folder in folders for path in Path(folder).rglob("*") if path.is_file()]
    paths += [*Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")]
    found = []
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if want in content:
            found.append(str(path))
    return found


def test_a_task_tells_of_a_checkpoint_by_touching_a_file(node: TestedNode, tmp_path: Path) -> None:
    gates = [tmp_path / "one", tmp_path / "two"]
    waits = [f"until [ -e {gate} ]; do sleep 0.05; done" for gate in gates]
    command = f'{waits[0]}; touch "$RPM_CHECKPOINT_FILE"; {waits[1]}'
    request = node.launch_request("sh", "-c", command)
    node.client.launch(request)
    before = node.wait_for(member_of(request), lambda one: one.state == "running")

    gates[0].touch()

    after = node.wait_for(member_of(request), lambda one: one.checkpointed_wall_s is not None)
    gates[1].touch()
    ended = node.wait_for_exit(member_of(request))
    assert before.checkpointed_wall_s is None
    assert after.checkpointed_wall_s is not None
    assert ended.checkpointed_wall_s == after.checkpointed_wall_s
    assert after.checkpointed_wall_s >= (after.started_wall_s or 0) - 1


def test_a_task_that_never_saved_anything_has_no_checkpoint(node: TestedNode) -> None:
    request = node.launch_request("true", environment={"RPM_CHECKPOINT_FILE": "/etc/passwd"})

    node.client.launch(request)

    assert node.wait_for_exit(member_of(request)).checkpointed_wall_s is None


def test_a_checkpoint_file_takes_no_space_behind_its_end(node: TestedNode, home: str) -> None:
    command = """
        fallocate --keep-size --length 8M "$RPM_CHECKPOINT_FILE" && echo taken
        until [ $(stat --format=%b "$RPM_CHECKPOINT_FILE") = 0 ]; do sleep 0.1; done
    """
    request = node.launch_request("sh", "-c", command)

    node.client.launch(request)

    assert node.wait_for_exit(member_of(request)).exit_code == 0
    assert node.logs[member_of(request)] == b"taken\n"


def test_a_checkpoint_file_does_not_grow_for_ever(node: TestedNode, home: str) -> None:
    command = 'head -c 200000 /dev/zero > "$RPM_CHECKPOINT_FILE"; exec sleep 60'
    request = node.launch_request("sh", "-c", command)

    node.client.launch(request)

    file = folder_of(home, request) / "checkpoint"
    node.wait_for(member_of(request), lambda one: one.checkpointed_wall_s is not None)
    wait_until(lambda: file.stat().st_size == 0, what="the file is shortened")


def test_a_process_finds_its_secrets_as_files_and_nobody_else_does(
    node: TestedNode, home: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    command = f'wc -c < "$PASS_FILE"; echo "[$PASS]"; until [ -e {gate} ]; do sleep 0.05; done'
    request = node.launch_request("sh", "-c", command, secrets={"PASS": CANARY})
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"]")

    holders = holders_of(CANARY, home)
    secret = folder_of(home, request) / "secrets" / "PASS"
    content, mode = secret.read_text(), stat.S_IMODE(secret.stat().st_mode)

    gate.touch()
    node.wait_for_exit(member_of(request))
    assert node.logs[member_of(request)] == f"{len(CANARY)}\n[]\n".encode()
    assert holders == []
    assert content == CANARY
    assert mode & 0o077 in (0, 0o044)
    wait_until(lambda: not folder_of(home, request).exists(), what="the folder is removed")


def test_secrets_go_when_their_supervisor_was_killed(node: TestedNode, home: str) -> None:
    request = node.launch_request("sleep", "60", secrets={"PASS": CANARY})
    node.client.launch(request)
    started = member_of_request(home, request).read("started.json")
    assert started is not None
    os.kill(supervisor_of(member_of_request(home, request)) or 0, signal.SIGKILL)
    processes.send(started["pid"], signal.SIGKILL, lambda _: True)
    member = member_of(request)

    wait_until(lambda: not node.sync(member).members, what="the member is dropped")

    assert not folder_of(home, request).exists()


def test_a_secret_of_a_container_stands_nowhere_in_clear(
    ssh_node: SshdNode, podman: PodmanStore
) -> None:
    node = installed_ssh(ssh_node, podman.environment)
    command = "cat $PASS_FILE | wc -c; touch $RPM_CHECKPOINT_FILE; echo ready; sleep 60; sleep 60"
    request = container(node, podman, "sh", "-c", command, secrets={"PASS": CANARY})
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")

    holders = holders_of(CANARY, ssh_node.home)
    inspected = podman.run("inspect", name_of(request)).stdout
    # What the task writes there without end fills no memory of the node.
    telling = Path(member_of_request(ssh_node.home, request).folder) / "checkpoint"
    is_mounted = f"{telling}:" in inspected.decode() or f'"{telling}"' in inspected.decode()
    reported = node.wait_for(member_of(request), lambda one: one.checkpointed_wall_s is not None)
    node.stop(member_of(request), grace_s=0)
    ended = node.wait_for_exit(member_of(request))

    assert node.logs[member_of(request)] == f"{len(CANARY)}\nready\n".encode()
    assert holders == []
    assert CANARY.encode() not in inspected
    assert is_mounted
    assert not (folder_of(ssh_node.home, request) / "checkpoint").exists()
    assert ended.checkpointed_wall_s == reported.checkpointed_wall_s
    wait_until(lambda: not folder_of(ssh_node.home, request).exists(), what="it is removed")


def test_docker_gets_each_secret_as_a_file_of_the_tasks_user(tmp_path: Path) -> None:
    spec = plain_spec(runtime="docker", secrets={"KEY": CANARY})
    attempt = MemberFolder(str(tmp_path), spec.identity)
    config = {"installation": INSTALLATION}

    Path(attempt.folder).mkdir(parents=True)
    folder = Path(private_files.make(attempt, spec, config, secrets=True, is_open=False))
    arguments = docker_run(
        spec, ContainerPaths("name", INSTALLATION, "/home", "/home/x", str(folder))
    )
    file, outer = (folder / "secrets" / "KEY").stat(), folder.stat()
    is_removed = private_files.remove(attempt, config)

    mount = f"source={folder}/secrets/KEY,destination=/run/secrets/KEY,readonly"
    assert f"--mount=type=bind,{mount}" in arguments
    assert CANARY not in " ".join(arguments)
    assert stat.S_IMODE(outer.st_mode) == 0o700
    if os.geteuid() == 0:
        assert (file.st_uid, file.st_gid, stat.S_IMODE(file.st_mode)) == (1000, 1001, 0o400)
    assert is_removed
    assert not folder.exists()


def test_a_folder_that_somebody_else_has_put_in_the_way_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "base").symlink_to(tmp_path / "theirs")
    monkeypatch.setattr(private_files, "_base", lambda: str(tmp_path / "base"))
    spec = plain_spec()

    with pytest.raises(PermissionError):
        private_files.make(
            MemberFolder(str(tmp_path), spec.identity),
            spec,
            {"installation": INSTALLATION},
            secrets=True,
            is_open=False,
        )
