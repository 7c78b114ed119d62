"""A script of the task's owner that runs where the task runs, before it is asked to end.

It can save what the task has in memory. It runs once, has a time limit, and whatever becomes of it
the task ends afterwards.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Any, NamedTuple

from apps.execution.node import clocks, files, processes, request_fields
from apps.execution.node.runtimes import CallFiles, TaskRuntime
from apps.execution.node.state_files import MemberFolder, is_done

# The script comes on standard input, so nothing of it is in a command line.
COMMANDS = {"bash": ("bash", "-s"), "python": ("python3", "-")}
SCRIPT_BYTES = 1024 * 1024
TIMEOUT_HIGHEST_S = 86_400
STEP_S = 0.05
# Created by the process that runs it, before it runs: no other process runs it after that.
MARK = "callback"


class Callback(NamedTuple):
    """What to run, and for how long at most."""

    language: str
    script: str
    timeout_s: float


def callback_of(request: dict[str, Any]) -> Callback | None:
    """The callback in a launch request, checked."""
    item = request.get("abort_callback")
    if item is None:
        return None
    if not isinstance(item, dict) or item.get("language") not in COMMANDS:
        raise request_fields.refuse("abort_callback", "none of %s" % ", ".join(COMMANDS))
    script = item.get("script")
    try:
        is_short = isinstance(script, str) and len(script.encode()) <= SCRIPT_BYTES
    except UnicodeEncodeError:
        is_short = False
    if not is_short:
        raise request_fields.refuse(
            "abort_callback.script", "no text of at most %d bytes" % SCRIPT_BYTES
        )
    timeout_s = request_fields.number(item, "timeout_s", highest=TIMEOUT_HIGHEST_S)
    return Callback(item["language"], str(script), timeout_s)


def keep(member: MemberFolder, callback: Callback) -> None:
    """Store it for the process that will stop the member."""
    files.reserve(member.path(MARK), size=0, times=1)
    files.reserve(member.path("callback-client.json"), size=4096, times=1)
    member.write("callback.json", callback._asdict())


def timeout_s(member: MemberFolder) -> float:
    """How long the member's callback may take; 0 without one."""
    return float((member.read("callback.json") or {}).get("timeout_s", 0))


def run(member: MemberFolder, runtime: TaskRuntime) -> None:
    """Run the member's callback if it has one that was not run, until it ends or is cut off."""
    kept = member.read("callback.json")
    if kept is None or not member.has("started.json") or _until(member) <= clocks.uptime_s():
        return
    if not member.mark(MARK):
        _await_other(member)
        return
    callback = Callback(**kept)
    log = os.open(member.path("log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _say(log, "starts (%s, at most %g s)" % (callback.language, callback.timeout_s))
        _say(log, _run(member, runtime, callback, log))
    finally:
        os.close(log)


def _run(member: MemberFolder, runtime: TaskRuntime, callback: Callback, log: int) -> str:
    """Run it; the words about how it ended."""
    script = os.memfd_create("callback")
    os.write(script, callback.script.encode())
    os.lseek(script, 0, os.SEEK_SET)
    try:
        client = runtime.call(COMMANDS[callback.language], CallFiles(script, log, log))
    except (OSError, subprocess.SubprocessError) as error:
        return "could not run: %s" % error
    finally:
        os.close(script)
    ticks = processes.start_ticks(client.pid)
    with contextlib.suppress(OSError):
        member.write("callback-client.json", {"pid": client.pid, "pid_start": ticks})
    while client.poll() is None and not _is_due(member):
        time.sleep(STEP_S)
    if client.poll() is None:
        _end(client.pid)
        client.wait()
        return "was cut off"
    return "ended with code %d" % client.returncode


def _await_other(member: MemberFolder) -> None:
    """Another process ran it and died; what it began may go on until its time is over."""
    client = member.read("callback-client.json") or {}
    pid, ticks = int(client.get("pid", 0)), client.get("pid_start")
    while pid and ticks is not None and processes.start_ticks(pid) == ticks:
        if _is_due(member):
            processes.kill_group(pid, lambda pid: processes.start_ticks(pid) == ticks)
            return
        time.sleep(STEP_S)


def _is_due(member: MemberFolder) -> bool:
    """Whether its time is over, was cut short by a kill, or the task has ended meanwhile."""
    return is_done(member) or clocks.uptime_s() >= _until(member)


def _until(member: MemberFolder) -> float:
    return float((member.read("stop.json") or {}).get("callback_until_s", 0))


def _end(leader: int) -> None:
    """Its client leads a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _say(log: int, words: str) -> None:
    # A full disk keeps neither the callback nor the stop.
    with contextlib.suppress(OSError):
        os.write(log, b"[rpm] abort callback %s\n" % words.encode())
