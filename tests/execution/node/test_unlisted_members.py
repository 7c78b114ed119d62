"""What runs goes on being reported where the helper's files of it were lost."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.execution.node import private_files, processes, unlisted_members
from apps.execution.node.prune import own_labels
from apps.execution.node.specs import MemberIdentity
from tests.execution.nodes import INSTALLATION, TestedNode, installed_local, member_of
from tests.services.ports import wait_until
from tests.services.sshd import kill_helpers

CONFIG = {"installation": INSTALLATION}
# A runtime that has one container.
PODMAN = """\
#!/bin/sh
[ "$1" = ps ] && echo "$@" >> {folder}/asked && echo rpm-{installation}-t9-2-1 && echo other
"""


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "home")


@pytest.fixture
def node(home: str) -> Iterator[TestedNode]:
    """This machine as a node."""
    yield installed_local(home)
    kill_helpers(home)


@pytest.mark.parametrize("lost", [("tasks", "attempts"), ("tasks",)])
def test_a_process_without_files_is_neither_gone_nor_another_homes(
    node: TestedNode, home: str, tmp_path: Path, lost: tuple[str, ...]
) -> None:
    other_home = str(tmp_path / "other")
    other = installed_local(other_home)
    request = node.launch_request("sleep", "60")
    node.client.launch(request)
    assert [one.member for one in node.sync().members] == [member_of(request)]
    pid = json.loads((Path(home) / "tasks" / request.task_id / "1-0/started.json").read_text())

    for name in lost:
        shutil.rmtree(Path(home) / name)
    report, elsewhere = node.sync(), other.sync()

    assert report.members == ()
    ((member, has_ended),) = [(one.member, one.has_ended) for one in report.unreadable]
    assert (member, has_ended) == (member_of(request), False)
    assert "files of it are gone" in report.unreadable[0].problem
    assert (elsewhere.members, elsewhere.unreadable) == ((), ())
    processes.send(pid["pid"], 9, lambda _: True)  # type: ignore[arg-type]  # SIGKILL
    wait_until(lambda: processes.start_ticks(pid["pid"]) is None, what="its end")


def test_a_container_without_files_is_found_by_its_labels(home: str, tmp_path: Path) -> None:
    podman = tmp_path / "podman"
    podman.write_text(PODMAN.format(folder=tmp_path, installation=INSTALLATION))
    podman.chmod(0o755)
    config = CONFIG | {"environment": {"PATH": f"{tmp_path}:/usr/bin:/bin"}}

    found = [unlisted_members.unlisted_members(home, config) for _ in range(2)]

    assert found == [[MemberIdentity("t9", 2, 1)]] * 2
    # Not with every exchange.
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert " ".join(own_labels(home, config)) in asked


def test_where_only_the_marks_are_lost_all_is_as_before(node: TestedNode, home: str) -> None:
    request = node.launch_request("sh", "-c", "exit 3")
    node.client.launch(request)
    node.wait_for_exit(member_of(request))

    shutil.rmtree(Path(home) / "attempts")

    (seen,) = node.sync().members
    assert (seen.member, seen.exit_code) == (member_of(request), 3)


def test_a_runtime_that_gave_no_answer_is_asked_again(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([(set[str](), False), ({"t1-1-0"}, True)])
    monkeypatch.setattr(unlisted_members, "_running", lambda *_: next(answers))
    monkeypatch.setattr(unlisted_members, "INCOMPLETE_AGAIN_S", -1.0)

    found = [unlisted_members.unlisted_members(home, CONFIG) for _ in range(2)]

    assert found == [[], [MemberIdentity("t1", 1, 0)]]


def test_a_journal_asks_once_unless_a_folder_is_gone(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[str] = []
    asked: list[str] = []

    def look(home: str, _config: object) -> tuple[set[str], bool]:
        asked.append(home)
        return set(running), True

    monkeypatch.setattr(unlisted_members, "_running", look)
    assert [unlisted_members.unlisted_members(home, CONFIG) for _ in range(3)] == [[]] * 3
    assert len(asked) == 1

    mark = Path(home) / "attempts" / "t1_1-0"
    mark.touch()
    running.append("t1-1-0")
    assert unlisted_members.unlisted_members(home, CONFIG) == [MemberIdentity("t1", 1, 0)]
    running.clear()
    assert unlisted_members.unlisted_members(home, CONFIG) == []
    assert not mark.exists()
    unlisted_members.unlisted_members(home, CONFIG)
    assert len(asked) == 3


def test_no_variable_of_a_task_makes_a_member(node: TestedNode, home: str) -> None:
    private = private_files.private_root(home, CONFIG)
    forged = [
        f"{private}/x-9999999999999999-0/a",
        f"{private}/{'a' * 80}-1-0/a",
        f"{private}/y-6-0/a",
    ]
    script = "".join(f"RPM_CHECKPOINT_FILE={path} sleep 60 & " for path in forged) + "wait"
    request = node.launch_request("sh", "-c", script)
    node.client.launch(request)
    node.wait_for(member_of(request), lambda one: one.state == "running")
    (Path(home) / "attempts" / "journal.json").unlink()

    report = node.sync()

    assert [one.member for one in report.members] == [member_of(request)]
    assert report.unreadable == ()


def test_what_no_request_could_name_is_left_out(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"x-9999999999999999-0", f"{'a' * 80}-1-0", "t1-0-0", "t1", "t2-1-0"}
    names |= {f"u{number}-1-0" for number in range(unlisted_members.MOST_NAMES)}
    monkeypatch.setattr(unlisted_members, "_running", lambda *_: (names, True))

    found = unlisted_members.unlisted_members(home, CONFIG)

    assert found[0] == MemberIdentity("t2", 1, 0)
    assert len(found) == unlisted_members.MOST_NAMES


def test_a_member_that_is_being_removed_is_not_asked_for(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unlisted_members, "_running", lambda *_: (set(), True))
    unlisted_members.unlisted_members(home, CONFIG)
    monkeypatch.setattr(unlisted_members, "_running", lambda *_: pytest.fail("it was asked"))
    mark = Path(home) / "attempts" / "t1_1-0"
    mark.touch()
    (Path(home) / "tasks" / "t1" / "1-0.removed").mkdir(parents=True)

    assert unlisted_members.unlisted_members(home, CONFIG) == []
    assert mark.exists()
