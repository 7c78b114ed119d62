"""Ends a task in its own process: callback, SIGTERM, grace period, SIGKILL, until it is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Any

from apps.execution.node import callbacks, clocks, files, homes
from apps.execution.node.crashing import crash_point
from apps.execution.node.detaching import detach
from apps.execution.node.errors import Refusal
from apps.execution.node.homes import Attempt, is_done
from apps.execution.node.kinds import runtime_of

STEP_S = 0.05
KILL_AGAIN_S = 10.0


def ensure_stopper(attempt: Attempt, config: dict[str, Any]) -> None:
    """Start the process that ends the attempt, unless one is at it."""
    lock = files.take_lock(attempt.path("stopping"), wait=False)
    if lock is None:
        return
    detach(attempt.home, lambda: _end(attempt, config), keep=(lock,))
    os.close(lock)


def _end(attempt: Attempt, config: dict[str, Any]) -> None:
    runtime = runtime_of(attempt, config)
    is_asked = False
    crash_point("node.stop.begun")
    # Whatever is wrong with the callback, the task ends.
    with contextlib.suppress(OSError, Refusal, subprocess.SubprocessError):
        callbacks.run(attempt, runtime)
    _end_callback(attempt)
    while not is_done(attempt) and clocks.uptime_s() < _deadline(attempt):
        # The runtime may still be creating it; ask until somebody hears.
        is_asked = is_asked or runtime.send(signal.SIGTERM)
        crash_point("node.stop.terminated")
        time.sleep(STEP_S)
    while not is_done(attempt):
        runtime.send(signal.SIGKILL)
        crash_point("node.stop.killed")
        _await_exit(attempt, until=clocks.uptime_s() + KILL_AGAIN_S)


def _end_callback(attempt: Attempt) -> None:
    """The grace period begins when the callback has ended, which may be before its time."""
    if not attempt.has(callbacks.MARK):
        return
    with files.locked(homes.task_lock(attempt.home, attempt.identity.task_id)):
        stop = attempt.read("stop.json")
        now = clocks.uptime_s()
        if stop is None or stop["callback_until_s"] <= now:
            return
        stop["callback_until_s"] = now
        stop["deadline_uptime_s"] = min(stop["deadline_uptime_s"], now + stop["grace_s"])
        with contextlib.suppress(OSError):
            attempt.write("stop.json", stop)


def _deadline(attempt: Attempt) -> float:
    return float((attempt.read("stop.json") or {}).get("deadline_uptime_s", 0))


def _await_exit(attempt: Attempt, *, until: float) -> None:
    while not is_done(attempt) and clocks.uptime_s() < until:
        time.sleep(STEP_S)
