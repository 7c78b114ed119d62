"""Commands and terminals next to a running task: real sshd, real podman."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.execution.node.channel import HEADER
from apps.execution.node.stream_relay import (
    CHUNK_BYTES,
    END,
    ERRORS,
    INPUT,
    INPUT_END,
    OUTPUT,
    RESIZE,
    SIZE,
)
from apps.execution.protocol.requests import LaunchRequest, StreamRequest, encode
from apps.execution.transport.streams import NodeStream, StreamRefused, begun_check, stream_open
from tests.execution.node.test_containers import container
from tests.execution.nodes import (
    INSTALLATION,
    PATIENCE_S,
    TestedNode,
    installed_local,
    installed_ssh,
    member_of,
)
from tests.services.podman import PodmanStore
from tests.services.ports import wait_until
from tests.services.sshd import SshdNode, helpers_of, kill_helpers
from tests.services.timeouts import scale_timeout

WAITS = ("sh", "-c", "echo ready; exec sleep 600")


PODMAN, PROCESS = "podman over sshd", "process"
both = pytest.mark.parametrize("running", [PODMAN, PROCESS], indirect=True)
in_podman = pytest.mark.parametrize("running", [PODMAN], indirect=True)
as_process = pytest.mark.parametrize("running", [PROCESS], indirect=True)


@pytest.fixture
def running(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[TestedNode, LaunchRequest, str]]:
    """A node with a task that runs, and the home of its helper."""
    if request.param == PROCESS:
        home = str(tmp_path / "home")
        node = installed_local(home)
        launch = node.launch_request(*WAITS)
    else:
        podman: PodmanStore = request.getfixturevalue("podman")
        server: SshdNode = request.getfixturevalue("ssh_node")
        home, node = server.home, installed_ssh(server, podman.environment)
        launch = container(node, podman, *WAITS)
    node.client.launch(launch)
    node.wait_for_log(member_of(launch), b"ready")
    yield node, launch, home
    node.stop(member_of(launch), is_kill=True)
    if request.param == PODMAN:
        request.getfixturevalue("podman").run("rm", "--all", "--force", "--time=0")
    kill_helpers(home)


def opened(node: TestedNode, launch: LaunchRequest, *command: str, **changes: object) -> NodeStream:
    fields: dict[str, object] = {
        "installation": INSTALLATION,
        "task_id": launch.task_id,
        "generation": launch.generation,
        "kind": "exec",
        "command": command,
    }
    return stream_open(node.client.transport, StreamRequest(**(fields | changes)))  # type: ignore[arg-type]  # as it is


def output_of(stream: NodeStream) -> tuple[bytes, bytes, dict[str, object]]:
    """Its output, its errors and its end."""
    parts: dict[int, bytes] = {OUTPUT: b"", ERRORS: b"", END: b""}
    while not parts[END] and (frame := stream.receive()) is not None:
        parts[frame.kind] += frame.content
    return parts[OUTPUT], parts[ERRORS], json.loads(parts[END])


def send_all(stream: NodeStream, content: bytes) -> None:
    for begin in range(0, len(content), 32 * 1024):
        stream.send(INPUT, content[begin : begin + 32 * 1024])
    stream.send(INPUT_END, b"")


def read_until(stream: NodeStream, words: bytes) -> bytes:
    content = b""
    while words not in content:
        frame = stream.receive()
        assert frame is not None, content
        content += frame.content
    return content


Running = tuple[TestedNode, LaunchRequest, str]


@in_podman
def test_bytes_and_exit_code_of_a_command_arrive(running: Running) -> None:
    node, launch, _ = running
    odd = "$(touch /x); `echo`"
    content = os.urandom(1024 * 1024)

    said = opened(node, launch, "sh", "-c", 'echo "$1"; echo bad >&2; exit 7', "name", odd)
    copied = opened(node, launch, "cat")
    # The helper holds less than that: it takes no more input than its output is taken.
    sender = threading.Thread(target=send_all, args=(copied, content))
    sender.start()
    output, errors, end = output_of(copied)
    sender.join()

    want = (odd.encode() + b"\n", b"bad\n", {"exit_code": 7, "is_task_over": False})
    assert output_of(said) == want
    assert (output == content, errors, end["exit_code"]) == (True, b"", 0)


@both
def test_a_terminal_has_the_size_and_the_keys_of_its_user(running: Running) -> None:
    node, launch, _ = running
    stream = opened(node, launch, kind="shell", columns=97, rows=31)

    stream.send(INPUT, _until_size_is("31 97") + b"echo one-$((20 + 3))\n")
    read_until(stream, b"one-23")
    stream.send(RESIZE, SIZE.pack(101, 33))
    stream.send(INPUT, _until_size_is("33 101") + b"echo two-$((20 + 3))\n")
    read_until(stream, b"two-23")
    stream.send(INPUT, b"sh -c 'echo six-$((20 + 3)); exec sleep 500'\n")
    read_until(stream, b"six-23")
    stream.send(INPUT, b"\x03")
    stream.send(INPUT, b"exit 5\n")

    assert output_of(stream)[2]["exit_code"] == 5


def _until_size_is(words: str) -> bytes:
    """A container gets a new size a little later."""
    return b'until [ "$(stty size)" = "%s" ]; do sleep 0.1; done; ' % words.encode()


def test_a_client_that_leaves_is_noticed_although_nothing_more_is_taken() -> None:
    code = (
        "import os\n"
        "from apps.execution.node.stream_relay import OUTPUT, Ends, Relay\n"
        "_, given = os.pipe()\n"
        "output, _ = os.pipe()\n"
        "os._exit(Relay(1, b'', Ends(given, {output: OUTPUT}, False), lambda: False).run())\n"
    )
    frame = HEADER.pack(1, INPUT, CHUNK_BYTES) + bytes(CHUNK_BYTES)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as relay:
        late = threading.Timer(scale_timeout(30), relay.kill)
        late.start()
        assert relay.stdin is not None
        # More than the relay and the pipe of the command hold, less than with its own pipe.
        relay.stdin.write(frame * 11)
        relay.stdin.close()

        assert relay.wait() == 0
        late.cancel()


@both
def test_a_closed_stream_leaves_no_process(running: Running) -> None:
    node, launch, home = running
    before = len(helpers_of(home))
    stream = opened(node, launch, "sh", "-c", "echo $$; sleep 333 & exec sleep 333")
    read_until(stream, b"\n")

    stream.close()

    wait_until(lambda: not _sleepers("333"), what="what the stream started has ended")
    wait_until(lambda: len(helpers_of(home)) == before, what="its helper has ended")


@in_podman
def test_a_stream_ends_with_its_task(running: Running) -> None:
    node, launch, _ = running
    stream = opened(node, launch, "sh", "-c", "echo here; exec sleep 444")
    read_until(stream, b"here")

    node.stop(member_of(launch), is_kill=True)

    assert output_of(stream)[2]["is_task_over"] is True
    assert not _sleepers("444")


@as_process
def test_only_the_running_generation_has_streams(running: Running) -> None:
    node, launch, _ = running

    for changes in ({"generation": 2}, {"rank": 1}, {"task_id": "other"}):
        with pytest.raises(StreamRefused):
            opened(node, launch, "true", **changes)


def test_a_node_installed_without_streams_refuses_them(tmp_path: Path) -> None:
    node = installed_local(str(tmp_path / "home"), has_streams=False)

    with pytest.raises(StreamRefused, match="without streams"):
        opened(node, node.launch_request(*WAITS), "true")


def test_an_older_helper_refuses_with_words_that_say_so(tmp_path: Path) -> None:
    node = installed_local(str(tmp_path / "home"))
    request = StreamRequest(installation=INSTALLATION, task_id="t1", generation=1, kind="shell")

    # It takes the request for one of its verbs.
    answer = node.client.transport.exchange(encode(request), timeout_s=PATIENCE_S)

    with pytest.raises(StreamRefused, match="older version"):
        begun_check(answer)


def _sleepers(seconds: str) -> list[str]:
    want = b"sleep\0%s\0" % seconds.encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            content = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if content == want:
            found.append(folder.name)
    return found
