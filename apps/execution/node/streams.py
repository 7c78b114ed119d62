"""Streams: a command or a shell next to a running task, or connections to a port of it.

One program per stream, in a session of its own of the node's sshd. It ends with its connection and
with the task's attempt, and everything that it started ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import time
from typing import Any

from apps.execution.node import clocks, processes, request_fields, state_files, task_network
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.port_relay import PortRelay
from apps.execution.node.runtime_kinds import runtime_of
from apps.execution.node.runtimes import STREAM_MARK, CallFiles, RuntimeUnavailable, TaskRuntime
from apps.execution.node.specs import MemberIdentity, identity_of, one_of
from apps.execution.node.state_files import MemberFolder, first_process, is_done
from apps.execution.node.stream_relay import ERRORS, OUTPUT, Ends, Relay, set_size

KINDS = ("exec", "shell", "port")
PORT_HIGHEST = 65_535
# Images have one of these; nothing of it is the user's.
SHELL = ("sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh")
# A terminal has no more, in either direction.
SIZE_HIGHEST = 2000
# What ignores its end is killed again for so long; then only its container can hold it.
END_WITHIN_S = 10.0
END_STEP_S = 0.02


class Stream:
    """One that has begun."""

    def __init__(
        self,
        member: MemberFolder,
        runtime: TaskRuntime,
        mark: str,
        client: subprocess.Popen[bytes],
        ends: Ends,
    ) -> None:
        self._member = member
        self._runtime = runtime
        self._mark = mark
        self._client = client
        self._ends = ends
        self._is_ended = False

    def relay(self, number: int, received: bytes) -> None:
        """Carry bytes until the process ends, its task does, or the other side leaves."""
        relay = Relay(number, received, self._ends, self._is_over)
        if not relay.run():
            return
        is_task_over = self._is_task_over()
        self.end()
        code = self._client.returncode
        words = {"exit_code": code if code is None or code >= 0 else 128 - code}
        relay.send_end(json.dumps({**words, "is_task_over": is_task_over}).encode())

    def end(self) -> None:
        """End what it started, and wait until that is gone."""
        if self._is_ended:
            return
        self._is_ended = True
        until = clocks.uptime_s() + END_WITHIN_S
        # Without a process inside, a client of podman or docker may still be about to make one.
        while clocks.uptime_s() < until:
            found = self._runtime.called(self._mark)
            for pid in found:
                processes.send(pid, signal.SIGKILL, self._is_called)
            if self._client.poll() is not None and not found:
                return
            if clocks.uptime_s() > until - END_WITHIN_S / 2:
                self._kill_client()
            time.sleep(END_STEP_S)

    def _is_called(self, pid: int) -> bool:
        return processes.is_marked(pid, self._mark, owner=None, mark=STREAM_MARK)

    def _kill_client(self) -> None:
        if self._client.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._client.pid, signal.SIGKILL)

    def _is_over(self) -> bool:
        return self._client.poll() is not None or self._is_task_over()

    def _is_task_over(self) -> bool:
        return _is_over(self._member)


class PortStream:
    """Connections to a port of the task; nothing is started for them."""

    def __init__(self, member: MemberFolder, port: int) -> None:
        self._member = member
        self._port = port

    def relay(self, number: int, received: bytes) -> None:
        """Carry connections until the task ends, or the other side leaves."""
        relay = PortRelay(number, received, self._port, lambda: _is_over(self._member))
        if relay.run():
            relay.send_end(json.dumps({"exit_code": None, "is_task_over": True}).encode())

    def end(self) -> None:
        """The connections end with this program."""


def _is_over(member: MemberFolder) -> bool:
    pid, ticks = first_process(member)
    return is_done(member) or (pid > 0 and processes.start_ticks(pid) != ticks)


def begin(home: str, config: dict[str, Any], request: dict[str, Any]) -> Stream | PortStream:
    """Start what a stream is to.

    Refuses (code): `not_allowed` (the installation has no streams), `fenced` (this is not the
    generation that runs here), `ended` (the member does not run), `other_boot`, `start_failed`,
    `invalid`.
    """
    if not config.get("has_streams", True):
        raise RequestRefusal("not_allowed", "this node was installed without streams")
    identity = identity_of(request)
    kind = one_of(request, "kind", KINDS)
    command = request_fields.command(request)
    if kind == "exec" and not command:
        raise request_fields.refuse("command", "empty")
    size = [
        request_fields.whole(request, name, lowest=1, highest=SIZE_HIGHEST)
        for name in ("columns", "rows")
    ]
    member = MemberFolder(home, identity)
    _refuse_not_running(home, identity)
    runtime = runtime_of(member, config)
    mark = secrets.token_hex(16)
    try:
        pid = runtime.living_pid()
        if pid is None:
            raise RequestRefusal("ended", "the task has ended")
        if kind == "port":
            return _begin_port(member, runtime, pid, request)
        if kind == "shell":
            return _begin_shell(member, runtime, mark, command or SHELL, size)
        return _begin_exec(member, runtime, mark, command)
    except (OSError, RuntimeUnavailable, subprocess.SubprocessError) as error:
        raise RequestRefusal("start_failed", "could not start: %s" % error) from None


def _refuse_not_running(home: str, identity: MemberIdentity) -> None:
    member = MemberFolder(home, identity)
    fence = state_files.read_fence(home, identity.task_id)
    if fence.generation != identity.generation:
        raise RequestRefusal("fenced", "generation %d is known here" % fence.generation)
    if identity.rank in fence.ended or is_done(member):
        raise RequestRefusal("ended", "the task has ended")
    if not state_files.is_of_this_boot(member):
        raise RequestRefusal("other_boot", "this member was launched before the node booted")
    if not member.has("started.json"):
        raise RequestRefusal("ended", "the task has not started yet")


def _begin_port(
    member: MemberFolder, runtime: TaskRuntime, pid: int, request: dict[str, Any]
) -> PortStream:
    port = request_fields.whole(request, "port", lowest=1, highest=PORT_HIGHEST)
    ticks = processes.start_ticks(pid)
    task_network.enter(
        pid, lambda: processes.start_ticks(pid) == ticks and runtime.living_pid() == pid
    )
    return PortStream(member, port)


def _begin_shell(
    member: MemberFolder,
    runtime: TaskRuntime,
    mark: str,
    command: tuple[str, ...],
    size: list[int],
) -> Stream:
    terminal, other_end = os.openpty()
    try:
        set_size(terminal, *size)
        pipes = CallFiles(other_end, other_end, other_end)
        client = runtime.call(command, pipes, mark=mark)
    finally:
        os.close(other_end)
    return Stream(
        member, runtime, mark, client, Ends(terminal, {terminal: OUTPUT}, is_terminal=True)
    )


def _begin_exec(
    member: MemberFolder, runtime: TaskRuntime, mark: str, command: tuple[str, ...]
) -> Stream:
    taken, given = os.pipe()
    output, outputting = os.pipe()
    errors, erring = os.pipe()
    try:
        client = runtime.call(command, CallFiles(taken, outputting, erring), mark=mark)
    finally:
        for descriptor in (taken, outputting, erring):
            os.close(descriptor)
    ends = Ends(given, {output: OUTPUT, errors: ERRORS}, is_terminal=False)
    return Stream(member, runtime, mark, client, ends)
