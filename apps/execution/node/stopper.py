"""Ends a task in its own process: callback, SIGTERM, grace period, SIGKILL, until it is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Any

from apps.execution.node import callbacks, clocks, files, state_files
from apps.execution.node.crash_points import crash_point
from apps.execution.node.detached_process import detach
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.runtime_kinds import runtime_of
from apps.execution.node.state_files import MemberFolder, is_done

STEP_S = 0.05
KILL_AGAIN_S = 10.0


def ensure_stopper(member: MemberFolder, config: dict[str, Any]) -> None:
    """Start the process that ends the attempt, unless one is at it."""
    lock = files.take_lock(member.path("stopping"), wait=False)
    if lock is None:
        return
    detach(member.home, lambda: _end(member, config), keep=(lock,))
    os.close(lock)


def _end(member: MemberFolder, config: dict[str, Any]) -> None:
    runtime = runtime_of(member, config)
    is_asked = False
    crash_point("node.stop.begun")
    # Whatever is wrong with the callback, the task ends.
    with contextlib.suppress(OSError, RequestRefusal, subprocess.SubprocessError):
        callbacks.run(member, runtime)
    _end_callback(member)
    while not is_done(member) and clocks.uptime_s() < _deadline(member):
        # What is still being made has no process to ask, and its client may hang.
        is_asked = is_asked or (not runtime.is_being_made() and runtime.send(signal.SIGTERM))
        crash_point("node.stop.terminated")
        time.sleep(STEP_S)
    while not is_done(member):
        runtime.kill()
        crash_point("node.stop.killed")
        _await_exit(member, until=clocks.uptime_s() + KILL_AGAIN_S)


def _end_callback(member: MemberFolder) -> None:
    """The grace period begins when the callback has ended, which may be before its time."""
    if not member.has(callbacks.MARK):
        return
    # Otherwise it has its whole time.
    with (
        contextlib.suppress(OSError, RequestRefusal),
        files.locked(state_files.task_lock(member.home, member.identity.task_id)),
    ):
        stop = member.read("stop.json")
        now = clocks.uptime_s()
        if stop is None or stop["callback_until_s"] <= now:
            return
        stop["callback_until_s"] = now
        stop["deadline_uptime_s"] = min(stop["deadline_uptime_s"], now + stop["grace_s"])
        member.write("stop.json", stop)


def _deadline(member: MemberFolder) -> float:
    return float((member.read("stop.json") or {}).get("deadline_uptime_s", 0))


def _await_exit(member: MemberFolder, *, until: float) -> None:
    while not is_done(member) and clocks.uptime_s() < until:
        time.sleep(STEP_S)
