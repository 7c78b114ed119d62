"""What a waiting sync takes for news, and what it gathers before it answers."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.execution.node import files, sync
from apps.execution.node.specs import MemberIdentity
from apps.execution.node.state_files import MemberFolder
from apps.execution.protocol.requests import LaunchRequest
from tests.execution.nodes import INSTALLATION, TestedNode, installed_local, member_of
from tests.services.ports import wait_until
from tests.services.sshd import kill_helpers


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def node(home: Path) -> Iterator[TestedNode]:
    """This machine as a node."""
    yield installed_local(str(home))
    kill_helpers(str(home))


def test_the_news_of_a_start_comes_with_the_first_line(
    node: TestedNode, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long this machine takes from the start to the line.
    monkeypatch.setattr(sync, "FIRST_LINE_S", 60)
    request = node.launch_request("sh", "-c", "echo hello; sleep 60")

    answer = _meanwhile(node, home, lambda: node.client.launch(request))

    assert [one["state"] for one in answer["members"]] == ["running"]
    assert [(one["task_id"], one["offset"]) for one in answer["logs"]] == [(request.task_id, 0)]


def test_the_news_of_a_start_waits_a_moment_for_a_line_that_does_not_come(
    node: TestedNode, home: Path
) -> None:
    request = node.launch_request("sleep", "60")

    answer = _meanwhile(node, home, lambda: node.client.launch(request))

    assert [one["state"] for one in answer["members"]] == ["running"]
    assert answer["logs"] == []


def test_an_end_is_reported_at_once_while_the_first_line_of_another_is_awaited(
    node: TestedNode, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "FIRST_LINE_S", 60)
    gate = tmp_path / "gate"
    ending = node.launch_request("sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done")
    node.client.launch(ending)
    node.wait_for(member_of(ending), lambda one: one.state == "running")

    def start_another() -> None:
        node.launch("sleep", "60")
        gate.touch()

    answer = _meanwhile(node, home, start_another)

    assert sorted(one["state"] for one in answer["members"]) == ["exited", "running"]


def test_lines_of_a_log_alone_are_no_news_for_as_long_as_is_asked(
    node: TestedNode, home: Path, tmp_path: Path
) -> None:
    go, printed, end = tmp_path / "go", tmp_path / "printed", tmp_path / "end"
    script = (
        f"until [ -e {go} ]; do sleep 0.02; done; echo line; touch {printed}; "
        f"until [ -e {end} ]; do sleep 0.02; done"
    )
    request = node.launch_request("sh", "-c", script)
    node.client.launch(request)

    def print_and_end() -> None:
        go.touch()
        wait_until(printed.exists, what="the line is printed")
        end.touch()

    position = {"task_id": request.task_id, "generation": 1, "rank": 0, "offset": 0}
    answer = _meanwhile(node, home, print_and_end, logs=[position], logs_after_s=50)

    assert [one["state"] for one in answer["members"]] == ["exited"]
    assert [one["offset"] for one in answer["logs"]] == [0]


def test_an_acknowledgement_is_carried_out_when_the_container_is_removed(
    node: TestedNode, home: Path
) -> None:
    request = node.launch_request("true")
    node.client.launch(request)
    node.wait_for_exit(member_of(request))
    attempt = _attempt(home, request)
    wait_until(lambda: attempt.has("cleaned"), what="nothing is left of it")
    # As the process that removes its container holds it.
    lock = files.take_lock(attempt.path("alive"), wait=True)
    assert lock is not None
    identity = {"task_id": request.task_id, "generation": 1, "rank": 0}

    answer = _meanwhile(node, home, lambda: os.close(lock), acknowledged=[identity])

    assert answer["members"] == []


def _meanwhile(node: TestedNode, home: Path, act: Any, **fields: Any) -> dict[str, Any]:
    """The answer of a sync that waits while something happens."""
    node.sync()
    config = json.loads((home / "config.json").read_text())
    request = {"installation": INSTALLATION, "seen": node.seen, "wait_s": 50, **fields}
    waiters = home / "waiters"

    def act_later() -> None:
        wait_until(lambda: any(waiters.iterdir()), what="the sync waits")
        act()

    actor = threading.Thread(target=act_later)
    actor.start()
    answer = sync.sync(str(home), config, request)
    actor.join()
    return answer


def _attempt(home: Path, request: LaunchRequest) -> MemberFolder:
    return MemberFolder(str(home), MemberIdentity(request.task_id, 1, 0))
