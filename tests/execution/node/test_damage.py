"""The helper's own files as a power cut or a broken disk leaves them."""

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from apps.execution.node import leases, members, results, serials, state_files, sync
from apps.execution.node.runtime_kinds import runtime_of
from apps.execution.node.runtimes import CallFiles
from apps.execution.node.serials import Serial
from apps.execution.node.specs import MemberIdentity
from apps.execution.node.state_files import MemberFolder
from apps.execution.protocol.outcomes import NodeRefusal
from tests.execution.node.test_arguments import spec as plain_spec
from tests.execution.nodes import INSTALLATION, TestedNode, installed_local, member_of
from tests.services.ports import wait_until
from tests.services.sshd import kill_helpers

DAMAGE = {
    "zeros": b"\0" * 4096,
    "empty": b"",
    "cut": b'{"boot_id": "',
    "nested": b"[" * 100_000,
    "no text": b'{"\xff": 1}',
    "no number": b'{"uptime_s": NaN}',
    "no fields": b"{}",
    "other types": json.dumps(
        {
            name: [[1]]
            for name in (
                *("boot_id", "runtime", "user", "pid", "uptime_s", "bytes", "exit_code", "error"),
                *("term_at_s", "kill_at_s", "until_s", "deadline_uptime_s", "generation", "ended"),
            )
        }
    ).encode(),
}
SIGNED = "a" * 64
CONFIG = {"installation": INSTALLATION}
damaged = pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestedNode]:
    home = str(tmp_path / "home")
    yield installed_local(home)
    kill_helpers(home)


@pytest.fixture
def attempt(tmp_path: Path) -> MemberFolder:
    attempt = MemberFolder(str(tmp_path / "home"), MemberIdentity("t1", 1, 0))
    Path(attempt.folder).mkdir(parents=True)
    return attempt


def folder_of(node: TestedNode, task_id: str) -> Path:
    return Path(node.client.transport.home) / "tasks" / task_id  # type: ignore[attr-defined]  # local


@pytest.mark.parametrize("name", ["spec.json", "started.json"])
def test_a_sync_goes_on_and_a_task_is_not_started_next_to_one_whose_files_are_damaged(
    node: TestedNode, name: str
) -> None:
    request = node.launch_request("sleep", "60")
    node.client.launch(request)
    path = folder_of(node, request.task_id) / "1-0" / name
    whole = path.read_bytes()

    for content in DAMAGE.values():
        path.write_bytes(content)
        assert [one.member for one in node.sync().members] == [member_of(request)]
        newer = node.client.launch(msgspec.structs.replace(request, generation=2))
        assert isinstance(newer, NodeRefusal)
        assert newer.code == "older_alive"

    path.write_bytes(whole)
    node.stop(member_of(request), grace_s=0)
    assert node.wait_for_exit(member_of(request)).exit_code == 137


def test_a_damaged_fence_lets_nothing_start_and_a_sync_go_on(
    node: TestedNode, tmp_path: Path
) -> None:
    request = node.launch_request("touch", str(tmp_path / "mark"))
    node.client.launch(request)
    node.wait_for_exit(member_of(request))
    (tmp_path / "mark").unlink()
    for content in DAMAGE.values():
        (folder_of(node, request.task_id) / "fence.json").write_bytes(content)
        while node.sync(member_of(request)).members:
            pass

        for generation in (1, 2):
            outcome = node.client.launch(msgspec.structs.replace(request, generation=generation))
            assert isinstance(outcome, NodeRefusal)
            assert (outcome.code, "cannot be read" in outcome.detail) == ("fenced", True)

    assert not (tmp_path / "mark").exists()


def test_a_damaged_result_is_an_end_without_a_code(node: TestedNode) -> None:
    request = node.launch_request("true")
    node.client.launch(request)
    node.wait_for_exit(member_of(request))

    for content in DAMAGE.values():
        (folder_of(node, request.task_id) / "1-0" / "exit.json").write_bytes(content)
        (member,) = node.sync().members
        assert (member.state, member.exit_code, member.error) == (
            "exited",
            None,
            state_files.DAMAGED_RESULT,
        )
    while node.sync(member_of(request)).members:
        pass


@damaged
def test_a_damaged_serial_is_none_and_the_next_one_replaces_it(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "serial.json").write_bytes(content)

    known = [serials.record(str(tmp_path), Serial(number, SIGNED)) for number in (5, 6)]

    assert known == [Serial(0, ""), Serial(5, SIGNED)]


@damaged
def test_a_damaged_lease_is_over(attempt: MemberFolder, content: bytes) -> None:
    assert leases.read(attempt) is None

    Path(attempt.path("lease.json")).write_bytes(content)

    assert leases.read(attempt) == leases.Lease(0, 0, 0)


@damaged
def test_what_a_power_cut_damaged_is_of_an_earlier_boot(
    attempt: MemberFolder, content: bytes
) -> None:
    path = attempt.path("spec.json")
    Path(path).write_bytes(content)

    assert state_files.is_of_this_boot(attempt)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    assert not state_files.is_of_this_boot(attempt)


@pytest.mark.parametrize(
    ("name", "want"), [("cid", "Docker"), ("pid", "Podman"), ("", "ProcessRuntime")]
)
def test_a_damaged_specification_does_not_make_a_container_a_process(
    attempt: MemberFolder, name: str, want: str
) -> None:
    Path(attempt.path("spec.json")).touch()
    if name:
        Path(attempt.path(name)).touch()

    runtime = runtime_of(attempt, CONFIG)

    assert type(runtime).__name__ == want


def test_a_callback_does_not_run_with_the_helpers_rights_for_want_of_others(
    attempt: MemberFolder,
) -> None:
    Path(attempt.path("spec.json")).touch()

    with pytest.raises(OSError, match=r"spec\.json"):
        runtime_of(attempt, CONFIG).call(("true",), CallFiles(0, 1, 1))


def whole_files(folder: Path) -> Iterator[Path]:
    """What the node has written of a member, without its log and what is only reserved."""
    for path in sorted(folder.iterdir()):
        if path.suffix != ".reserved" and path.name != "log":
            yield path


def test_no_damage_to_a_file_of_a_member_hides_another_one_or_what_it_is(
    node: TestedNode, tmp_path: Path
) -> None:
    home = str(tmp_path / "home")
    running, ended = node.launch_request("sleep", "600"), node.launch_request("true")
    for request in (running, ended):
        node.client.launch(request)
    node.wait_for(member_of(running), lambda one: one.state == "running")
    node.wait_for_exit(member_of(ended))
    folders = [folder_of(node, request.task_id) / "1-0" for request in (running, ended)]
    wait_until((folders[1] / "cleaned").exists, what="it is cleaned up")
    report = partial(sync._members, home, CONFIG)
    state_of = {one["task_id"]: one["state"] for one in report()}

    for folder in folders:
        for path in whole_files(folder):
            whole = path.read_bytes()
            for content in DAMAGE.values():
                path.write_bytes(content)
                found = {one["task_id"]: one["state"] for one in report()}
                assert found == state_of, (path.name, content[:99])
            path.write_bytes(whole)
            # A folder in its place cannot be opened at all, as by an error of the disk.
            os.rename(path, f"{path}.kept")
            path.mkdir()
            found = {one["task_id"]: one["state"] for one in report()}
            path.rmdir()
            os.rename(f"{path}.kept", path)
            known = {state_of[folder.parent.name], "unknown"}
            assert found.pop(folder.parent.name) in known, path.name
            assert found.items() <= state_of.items(), path.name
    assert {one["task_id"]: one["state"] for one in report()} == state_of


def test_what_a_node_cannot_read_of_a_member_is_neither_gone_nor_hides_the_others(
    node: TestedNode,
) -> None:
    requests = [node.launch_request("sleep", "60") for _ in range(2)]
    for request in requests:
        node.client.launch(request)
    path = folder_of(node, requests[0].task_id) / "1-0" / "spec.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"user": "x:y:z"}))

    report = node.sync()

    assert [one.member for one in report.members] == [member_of(requests[1])]
    ((member, has_ended, problem),) = [
        (one.member, one.has_ended, one.problem) for one in report.unreadable
    ]
    assert (member, has_ended) == (member_of(requests[0]), False)
    assert "ValueError" in problem


def test_a_result_is_reported_though_all_else_of_the_member_is_gone(
    node: TestedNode,
) -> None:
    request = node.launch_request("sh", "-c", "exit 3")
    node.client.launch(request)
    node.wait_for_exit(member_of(request))
    folder = folder_of(node, request.task_id) / "1-0"
    for path in folder.iterdir():
        if path.name != "exit.json":
            path.unlink()

    (seen,) = node.sync().members

    assert (seen.state, seen.exit_code) == ("exited", 3)
    while node.sync(member_of(request)).members:
        pass


def test_what_a_later_boot_has_to_know_reaches_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "tasks").mkdir(parents=True)
    synced: set[Path] = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        # By the inode: what is written gets its name afterwards.
        synced.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        inodes.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    inodes: set[int] = set()
    monkeypatch.setattr(os, "fsync", fsync)
    member = MemberFolder(str(home), MemberIdentity("t1", 1, 0))
    state_files.task_lock(str(home), "t1")
    state_files.raise_fence(str(home), member.identity, ended=False)
    state_files.add(member)
    members._write_spec(member, plain_spec(), None)
    results.note_exit(member, CONFIG, 0, "")

    folder = home / "tasks" / "t1"
    kept = [
        *(folder / "fence.json", folder / "1-0" / "spec.json", folder / "1-0" / "exit.json"),
        home / "attempts" / "t1_1-0",
    ]
    assert [path for path in kept if path.stat().st_ino not in inodes] == []
    entries = {parent for path in kept for parent in path.parents if parent.is_relative_to(home)}
    assert entries - synced == set()
