"""A task that is to end runs its callback first, once, and never longer than it may."""

import json
import os
import signal
from collections.abc import Iterator
from math import ceil
from pathlib import Path

import pytest

from apps.core.containers import AbortCallback
from apps.execution.node.specs import MemberIdentity
from apps.execution.node.state_files import MemberFolder, supervisor_of
from apps.execution.protocol.outcomes import NodeRefusal
from apps.execution.protocol.requests import LaunchRequest, VolumeMount
from tests.execution.node.test_containers import container
from tests.execution.nodes import TestedNode, installed_local, installed_ssh, member_of
from tests.services.podman import PodmanStore
from tests.services.sshd import SshdNode, helpers_of, kill_helpers
from tests.services.timeouts import scale_timeout

WAITS = "trap 'echo asked; exit 5' TERM; echo ready; while true; do sleep 0.05; done"

PYTHON_SCRIPT = """\
import os, sys
print("saved", os.environ["WORD"], "in", os.getcwd(), "by", os.getuid())
sys.exit(3)
"""


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "home")


@pytest.fixture
def node(home: str) -> Iterator[TestedNode]:
    """This machine as a node."""
    yield installed_local(home)
    kill_helpers(home)


def with_callback(
    node: TestedNode, script: str, *, language: str = "bash", timeout_s: int = 60, **more: object
) -> LaunchRequest:
    """A launched task that says `ready`, and `asked` when it gets SIGTERM."""
    callback = AbortCallback(script, language, timeout_s)  # type: ignore[arg-type]  # the node checks it
    request = node.launch_request("sh", "-c", WAITS, abort_callback=callback, **more)
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")
    return request


def lines_of(node: TestedNode, request: LaunchRequest) -> list[str]:
    """Its output, without what some shells say of their own of a child that was stopped."""
    lines = node.logs[member_of(request)].decode().splitlines()
    return [line for line in lines if line not in {"Killed", "Terminated"}]


@pytest.mark.parametrize(
    ("language", "script"),
    [
        ("bash", 'echo "saved $WORD in $PWD by $(id -u)"; exit 3'),
        (
            "python",
            PYTHON_SCRIPT,
        ),
    ],
)
def test_a_callback_runs_where_the_task_runs_and_before_sigterm(
    node: TestedNode, tmp_path: Path, language: str, script: str
) -> None:
    request = with_callback(
        node, script, language=language, environment={"WORD": "x"}, working_dir="/usr"
    )

    node.stop(member_of(request))

    ended = node.wait_for_exit(member_of(request))
    lines = lines_of(node, request)
    assert ended.exit_code == 5
    assert lines == [
        "ready",
        f"[rpm] abort callback starts ({language}, at most 60 s)",
        f"saved x in /usr by {os.getuid()}",
        "[rpm] abort callback ended with code 3",
        "asked",
    ]


def test_a_callback_that_takes_too_long_is_cut_off(node: TestedNode) -> None:
    request = with_callback(node, "echo begun; sleep 600", timeout_s=ceil(scale_timeout(3)))

    node.stop(member_of(request))

    assert node.wait_for_exit(member_of(request)).exit_code == 5
    lines = lines_of(node, request)
    assert lines[-3:] == ["begun", "[rpm] abort callback was cut off", "asked"]


@pytest.mark.parametrize("again", [{"grace_s": 0}, {"grace_s": 10, "is_kill": True}])
def test_a_kill_cuts_a_callback_short(node: TestedNode, again: dict[str, float]) -> None:
    request = with_callback(node, "echo begun; sleep 600")
    node.stop(member_of(request))
    node.wait_for_log(member_of(request), b"begun")

    node.stop(member_of(request), **again)  # type: ignore[arg-type]  # a flag among numbers

    assert node.wait_for_exit(member_of(request)).exit_code == 128 + signal.SIGKILL
    assert lines_of(node, request)[-1] == "[rpm] abort callback was cut off"


def test_a_task_that_is_killed_runs_no_callback(node: TestedNode) -> None:
    request = with_callback(node, "echo begun")

    node.stop(member_of(request), is_kill=True)

    assert node.wait_for_exit(member_of(request)).exit_code == 128 + signal.SIGKILL
    assert lines_of(node, request) == ["ready"]


def test_a_callback_runs_although_there_is_no_grace_period(node: TestedNode) -> None:
    request = with_callback(node, "echo saved")

    node.stop(member_of(request), grace_s=0)

    assert node.wait_for_exit(member_of(request)).exit_code == 128 + signal.SIGKILL
    assert b"saved\n" in node.logs[member_of(request)]


def test_a_task_that_ends_by_itself_does_not_wait_for_its_callback(
    node: TestedNode, home: str
) -> None:
    request = with_callback(node, "echo begun; sleep 600", timeout_s=3600)
    started = MemberFolder(home, identity_of(request)).read("started.json")
    assert started is not None
    node.stop(member_of(request))
    node.wait_for_log(member_of(request), b"begun")

    os.kill(started["pid"], signal.SIGTERM)

    assert node.wait_for_exit(member_of(request)).exit_code == 5


def test_a_callback_is_not_run_again_when_the_process_that_ran_it_was_killed(
    node: TestedNode, home: str, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    request = with_callback(node, f"echo x >> {runs}; echo begun; sleep 2; echo y >> {runs}")
    node.stop(member_of(request))
    node.wait_for_log(member_of(request), b"begun")

    supervisor = supervisor_of(MemberFolder(home, identity_of(request)))
    for pid in set(helpers_of(home)) - {supervisor}:
        os.kill(pid, signal.SIGKILL)

    assert node.wait_for_exit(member_of(request)).exit_code == 5
    assert runs.read_text() == "x\ny\n"


@pytest.mark.parametrize(
    "callback",
    [
        AbortCallback("", "perl", 1),  # type: ignore[arg-type]  # that is the point
        AbortCallback("x" * (2**20 + 1), "bash", 1),
        AbortCallback("", "bash", -1),
        AbortCallback("", "bash", 10**9),
    ],
    ids=["of another language", "too long", "no time", "too much time"],
)
def test_a_callback_that_cannot_be_is_refused(node: TestedNode, callback: AbortCallback) -> None:
    outcome = node.launch("true", abort_callback=callback)

    assert isinstance(outcome, NodeRefusal)
    assert outcome.code == "invalid"


def test_a_callback_runs_in_the_container(
    ssh_node: SshdNode, podman: PodmanStore, tmp_path: Path
) -> None:
    node = installed_ssh(ssh_node, podman.environment)
    bash = tmp_path / "bash"
    bash.write_text('#!/bin/sh\nexec sh "$@"\n')
    bash.chmod(0o755)
    callback = AbortCallback("echo saved $WORD by $(id -u) of $(hostname) $HOSTNAME", "bash", 60)
    request = container(
        node,
        podman,
        "sh",
        "-c",
        WAITS,
        abort_callback=callback,
        environment={"WORD": "x"},
        volumes=(VolumeMount(str(bash), "/bin/bash", read_only=True),),
    )
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")

    node.stop(member_of(request))

    assert node.wait_for_exit(member_of(request)).exit_code == 5
    lines = node.logs[member_of(request)].decode().splitlines()
    assert lines[1] == "[rpm] abort callback starts (bash, at most 60 s)"
    assert any(line.startswith("saved x by 12345 of") for line in lines)
    assert lines[-2:] == ["[rpm] abort callback ended with code 0", "asked"]


def test_an_image_without_bash_is_reported_in_the_log_and_the_task_ends(
    ssh_node: SshdNode, podman: PodmanStore
) -> None:
    node = installed_ssh(ssh_node, podman.environment)
    callback = AbortCallback("echo saved", "bash", 60)
    request = container(node, podman, "sh", "-c", WAITS, abort_callback=callback)
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")

    node.stop(member_of(request))

    assert node.wait_for_exit(member_of(request)).exit_code == 5
    log = node.logs[member_of(request)]
    assert b"bash" in log.split(b"starts", 1)[1].split(b"\n", 1)[1]
    assert b"[rpm] abort callback ended with code 127\nasked\n" in log


def identity_of(request: LaunchRequest) -> MemberIdentity:
    return MemberIdentity(request.task_id, request.generation, request.rank)


def test_a_stop_of_an_attempt_of_another_boot_signals_nothing_and_runs_no_callback(
    node: TestedNode, home: str, tmp_path: Path
) -> None:
    request = with_callback(node, f"touch {tmp_path}/ran")
    member = member_of(request)
    folder = Path(home) / "tasks" / member.task_id / "1-0"
    whole = (folder / "spec.json").read_text()
    (folder / "spec.json").write_text(json.dumps(json.loads(whole) | {"boot_id": "before"}))

    answers = [node.stop(member, grace_s=0), node.stop(member, is_kill=True)]

    (folder / "spec.json").write_text(whole)
    (seen,) = node.sync().members
    assert answers == ["absent", "absent"]
    assert (seen.state, seen.is_stop_asked) == ("running", False)
    assert not (tmp_path / "ran").exists()
    refused = node.client.launch(request)
    assert isinstance(refused, NodeRefusal)
    assert refused.code == "ended"
