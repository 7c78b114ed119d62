"""The helper's own files as a power cut or a broken disk leaves them."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from apps.execution.node import leases, serials, state_files
from apps.execution.node.runtime_kinds import runtime_of
from apps.execution.node.serials import Serial
from apps.execution.node.specs import MemberIdentity
from apps.execution.node.state_files import MemberFolder
from apps.execution.protocol.outcomes import NodeRefusal
from tests.execution.nodes import INSTALLATION, TestedNode, installed_local, member_of
from tests.services.sshd import kill_helpers

DAMAGE = {
    "zeros": b"\0" * 4096,
    "empty": b"",
    "cut": b'{"boot_id": "',
    "nested": b"[" * 100_000,
    "no text": b'{"\xff": 1}',
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


@pytest.mark.parametrize(("name", "want"), [("cid", "Docker"), ("pid", "Podman"), ("", "Process")])
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
        runtime_of(attempt, CONFIG).call(("true",), 0, 1)
