"""The life of a member on this machine, through the helper as a node runs it."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from apps.execution.node import files, processes
from apps.execution.protocol.answers import LaunchAnswer
from apps.execution.protocol.outcomes import Answered, NodeRefusal, StartFailed
from apps.execution.protocol.requests import AllocatedDevice, EndedTask, ForgetRequest
from tests.execution.nodes import INSTALLATION, TestedNode, installed_local, member_of
from tests.services.ports import wait_until
from tests.services.sshd import helpers_of, kill_helpers


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestedNode]:
    """This machine as a node."""
    home = str(tmp_path / "home")
    yield installed_local(home)
    kill_helpers(home)


def test_a_task_runs_and_its_output_and_exit_code_arrive(node: TestedNode) -> None:
    request = node.launch_request("sh", "-c", "echo out; echo err >&2; exit 7")

    outcome = node.client.launch(request)

    assert isinstance(outcome, Answered)
    ended = node.wait_for_exit(member_of(request))
    assert ended.exit_code == 7
    assert node.logs[member_of(request)] == b"out\nerr\n"
    assert ended.started_uptime_s is not None
    assert ended.ended_uptime_s is not None
    assert ended.started_uptime_s <= ended.ended_uptime_s


def test_the_same_launch_twice_starts_once(node: TestedNode, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    request = node.launch_request("sh", "-c", f"echo x >> {marks}; sleep 30")

    outcomes = [node.client.launch(request) for _ in range(3)]

    assert all(
        isinstance(one, Answered) and one.answer == LaunchAnswer("running") for one in outcomes
    )
    node.wait_for(member_of(request), lambda one: marks.exists())
    assert marks.read_text() == "x\n"


def test_a_launch_starts_no_second_supervisor_next_to_one_that_is_slow(
    node: TestedNode, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    request = node.launch_request("sh", "-c", f"echo x >> {marks}; sleep 30")
    folder = tmp_path / "home" / "tasks" / request.task_id / "1-0"
    folder.mkdir(parents=True)
    slow = files.take_lock(str(folder / "alive"), wait=False)
    assert slow is not None

    second = node.client.launch(request)
    was_started = marks.exists()
    os.close(slow)
    after = node.client.launch(request)

    assert isinstance(second, Answered)
    assert second.answer == LaunchAnswer("created")
    assert not was_started
    assert isinstance(after, Answered)
    assert after.answer == LaunchAnswer("running")
    node.wait_for(member_of(request), lambda one: marks.exists())
    assert marks.read_text() == "x\n"


def test_a_launch_after_the_end_was_acknowledged_is_refused(node: TestedNode) -> None:
    request = node.launch_request("true")
    node.client.launch(request)
    node.wait_for_exit(member_of(request))

    while node.sync(member_of(request)).members:
        pass
    again = node.client.launch(request)

    assert isinstance(again, NodeRefusal)
    assert again.code == "ended"


def test_a_result_stays_until_it_is_acknowledged(node: TestedNode) -> None:
    request = node.launch_request("sh", "-c", "exit 3")
    node.client.launch(request)
    node.wait_for_exit(member_of(request))

    first, second = node.sync(), node.sync()

    assert [one.exit_code for one in first.members] == [3]
    assert [one.exit_code for one in second.members] == [3]


def test_an_acknowledgement_of_a_running_member_removes_nothing(node: TestedNode) -> None:
    request = node.launch_request("sleep", "30")
    node.client.launch(request)

    report = node.sync(member_of(request))

    assert [one.state for one in report.members] == ["running"]


@pytest.mark.parametrize(
    ("changes", "want_code"),
    [
        pytest.param({"boot_id": "another"}, "other_boot", id="from another boot"),
        pytest.param({"not_after_s": 1.0}, "late", id="after its last moment"),
        pytest.param({"allow_process": False}, "not_allowed", id="no container, not allowed"),
        pytest.param({"installation": "other001"}, "installation", id="of somebody else"),
        pytest.param({"protocol": 99}, "protocol", id="of another protocol"),
        pytest.param({"command": ()}, "invalid", id="without a command"),
        pytest.param({"command": ("echo", "a\0b")}, "invalid", id="NUL in an argument"),
        pytest.param({"environment": {"A": "x\nB=1"}}, "invalid", id="line break in a variable"),
        pytest.param({"environment": {"A-B": "x"}}, "invalid", id="odd name of a variable"),
        pytest.param({"task_id": "../x"}, "invalid", id="a path as task id"),
        pytest.param({"working_dir": "/a/../b"}, "invalid", id="a working directory with dots"),
        pytest.param({"uid": 0, "gid": 0}, "invalid", id="the host's root"),
    ],
)
def test_a_launch_that_must_not_be_is_refused_and_leaves_nothing(
    node: TestedNode, changes: dict[str, object], want_code: str
) -> None:
    outcome = node.launch("true", **changes)

    assert isinstance(outcome, NodeRefusal)
    assert outcome.code == want_code
    assert node.sync().members == ()


def test_an_older_generation_is_fenced(node: TestedNode) -> None:
    newer = node.launch_request("true", generation=2)
    node.client.launch(newer)
    older = msgspec.structs.replace(newer, generation=1)

    outcome = node.client.launch(older)

    assert isinstance(outcome, NodeRefusal)
    assert outcome.code == "fenced"


def test_a_newer_generation_waits_for_the_older_to_end(node: TestedNode) -> None:
    older = node.launch_request("sleep", "30")
    node.client.launch(older)

    outcome = node.client.launch(msgspec.structs.replace(older, generation=2))

    assert isinstance(outcome, NodeRefusal)
    assert outcome.code == "older_alive"


def test_a_stop_that_overtakes_its_launch_keeps_it_from_starting(node: TestedNode) -> None:
    request = node.launch_request("true")

    state = node.stop(member_of(request))
    outcome = node.client.launch(request)

    assert state == "absent"
    assert isinstance(outcome, NodeRefusal)
    assert outcome.code == "ended"


def test_a_stop_gives_the_task_time_to_end_by_itself(node: TestedNode) -> None:
    command = "trap 'echo saved; exit 5' TERM; echo ready; while true; do sleep 0.05; done"
    request = node.launch_request("sh", "-c", command)
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")

    state = node.stop(member_of(request))

    ended = node.wait_for_exit(member_of(request))
    assert state == "stopping"
    assert ended.is_stop_asked
    assert ended.exit_code == 5
    assert node.logs[member_of(request)].endswith(b"saved\n")


def test_a_task_that_ignores_the_stop_is_killed_after_the_grace_period(node: TestedNode) -> None:
    command = "trap '' TERM; echo ready; while true; do sleep 0.05; done"
    request = node.launch_request("sh", "-c", command)
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")

    node.stop(member_of(request), grace_s=0.3)

    ended = node.wait_for_exit(member_of(request))
    assert ended.exit_code == 128 + signal.SIGKILL


def test_a_second_stop_shortens_the_grace_period(node: TestedNode) -> None:
    command = "trap '' TERM; echo ready; while true; do sleep 0.05; done"
    request = node.launch_request("sh", "-c", command)
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")

    node.stop(member_of(request), grace_s=3600)
    node.stop(member_of(request), grace_s=0)

    assert node.wait_for_exit(member_of(request)).exit_code == 128 + signal.SIGKILL


def test_nothing_of_a_task_outlives_its_end(node: TestedNode, tmp_path: Path) -> None:
    child = tmp_path / "child"
    command = f"(sleep 300 & echo $! > {child}); exit 0"
    request = node.launch_request("sh", "-c", command)

    node.client.launch(request)

    node.wait_for_exit(member_of(request))
    assert processes.start_ticks(int(child.read_text())) is None


def test_a_command_that_is_not_there_fails_in_the_nodes_words(node: TestedNode) -> None:
    outcome = node.launch("/no/such/program")

    assert isinstance(outcome, StartFailed)
    assert "/no/such/program" in outcome.detail
    (member,) = node.sync().members
    assert (member.state, member.exit_code) == ("exited", None)


def test_a_task_sees_the_devices_it_was_given_and_cannot_say_otherwise(node: TestedNode) -> None:
    request = node.launch_request(
        "env",
        environment={"CUDA_VISIBLE_DEVICES": "9", "LD_PRELOAD": "/x.so", "NVIDIA_X": "1", "A": "b"},
        devices=(AllocatedDevice("GPU-1"), AllocatedDevice("GPU-2")),
    )

    node.client.launch(request)

    node.wait_for_exit(member_of(request))
    lines = set(node.logs[member_of(request)].decode().splitlines())
    assert {"A=b", "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"} <= lines
    assert not any(line.startswith(("LD_PRELOAD", "NVIDIA_")) for line in lines)


def test_members_of_one_gang_run_side_by_side(node: TestedNode) -> None:
    first = node.launch_request("sleep", "30", rank=0)
    node.client.launch(first)

    outcome = node.client.launch(msgspec.structs.replace(first, rank=1))

    assert isinstance(outcome, Answered)
    assert [(one.rank, one.state) for one in node.sync().members] == [
        (0, "running"),
        (1, "running"),
    ]


def test_a_waiting_sync_hears_of_an_end_at_once(node: TestedNode, tmp_path: Path) -> None:
    gate, waiters = tmp_path / "gate", tmp_path / "home" / "waiters"
    request = node.launch_request("sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done")
    node.client.launch(request)
    node.wait_for(member_of(request), lambda one: one.state == "running")

    def open_gate() -> None:
        wait_until(lambda: any(waiters.iterdir()), what="the sync waits")
        gate.touch()

    opener = threading.Thread(target=open_gate)
    opener.start()
    report = node.sync(seen=node.seen, wait_s=50)
    opener.join()

    (member,) = report.members
    assert member.state == "exited"
    assert member.ended_uptime_s is not None
    assert node.probe().clocks.uptime_s - member.ended_uptime_s < 40


def test_a_waiting_sync_answers_after_its_time_when_nothing_happens(node: TestedNode) -> None:
    node.sync()

    report = node.sync(seen=node.seen, wait_s=0.2)

    assert report.version == node.seen


def test_long_logs_come_in_bounded_parts_and_complete(node: TestedNode) -> None:
    request = node.launch_request("sh", "-c", "seq 1 60000")
    node.client.launch(request)

    node.wait_for_exit(member_of(request))

    want = "".join(f"{number}\n" for number in range(1, 60001)).encode()
    assert node.logs[member_of(request)] == want
    part = node.sync(logs=(msgspec.structs.replace(node.position(member_of(request)), offset=0),))
    assert len(part.logs[0].content) == 64 * 1024


def test_a_task_outlives_its_supervisor_and_is_followed_again(
    node: TestedNode, tmp_path: Path
) -> None:
    request = node.launch_request("sh", "-c", "echo ready; sleep 1; echo done")
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")

    for pid in helpers_of(str(tmp_path / "home")):
        os.kill(pid, signal.SIGKILL)

    ended = node.wait_for_exit(member_of(request))
    assert ended.exit_code is None
    assert "supervisor died" in ended.error
    assert node.logs[member_of(request)] == b"ready\ndone\n"


def test_a_stop_is_carried_out_although_the_processes_next_to_the_task_were_killed(
    node: TestedNode, tmp_path: Path
) -> None:
    command = "trap '' TERM; echo ready; while true; do sleep 0.05; done"
    request = node.launch_request("sh", "-c", command)
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")
    node.stop(member_of(request), grace_s=1)

    for pid in helpers_of(str(tmp_path / "home")):
        os.kill(pid, signal.SIGKILL)

    ended = node.wait_for_exit(member_of(request))
    assert ended.is_stop_asked
    assert node.sync().members[0].state == "exited"


def test_of_an_acknowledged_member_only_the_fence_is_left(node: TestedNode, tmp_path: Path) -> None:
    request = node.launch_request("true")
    node.client.launch(request)
    node.wait_for_exit(member_of(request))

    while node.sync(member_of(request)).members:
        pass

    home = tmp_path / "home"
    assert [path.name for path in (home / "attempts").iterdir()] == ["journal.json"]
    left = {path.name for path in (home / "tasks" / request.task_id).iterdir()}
    assert left == {"fence.json", "lock"}


def test_a_task_that_is_over_can_be_forgotten(node: TestedNode, tmp_path: Path) -> None:
    request = node.launch_request("true")
    node.client.launch(request)
    node.wait_for_exit(member_of(request))
    while node.sync(member_of(request)).members:
        pass
    over = ForgetRequest(installation=INSTALLATION, tasks=(EndedTask(request.task_id, 1),))

    outcome = node.client.forget(over)

    assert isinstance(outcome, Answered)
    assert outcome.answer.forgotten == (request.task_id,)
    assert not (tmp_path / "home" / "tasks" / request.task_id).exists()


def test_a_living_task_is_not_forgotten(node: TestedNode) -> None:
    request = node.launch_request("sleep", "30")
    node.client.launch(request)
    over = ForgetRequest(installation=INSTALLATION, tasks=(EndedTask(request.task_id, 1),))

    outcome = node.client.forget(over)

    assert isinstance(outcome, Answered)
    assert outcome.answer.forgotten == ()
