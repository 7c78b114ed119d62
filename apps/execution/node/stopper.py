"""Ends a task in its own process: SIGTERM, the grace period, SIGKILL, until it is gone."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from apps.execution.node import clocks, files
from apps.execution.node.homes import Attempt
from apps.execution.node.supervisor import detach, runtime_of

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
    while not _is_over(attempt) and clocks.uptime_s() < _deadline(attempt):
        # The runtime may still be creating it; ask until somebody hears.
        is_asked = is_asked or runtime.send(signal.SIGTERM)
        time.sleep(STEP_S)
    while not _is_over(attempt):
        runtime.send(signal.SIGKILL)
        _await_exit(attempt, until=clocks.uptime_s() + KILL_AGAIN_S)


def _is_over(attempt: Attempt) -> bool:
    """Whether it ended; an attempt whose result was fetched has no files any more."""
    return attempt.has("exit.json") or not attempt.exists()


def _deadline(attempt: Attempt) -> float:
    return float((attempt.read("stop.json") or {}).get("deadline_uptime_s", 0))


def _await_exit(attempt: Attempt, *, until: float) -> None:
    while not _is_over(attempt) and clocks.uptime_s() < until:
        time.sleep(STEP_S)
