"""Ends a leased member when its lease ends, whatever has become of its supervisor.

A process of its own beside every leased member. The supervisor does the same by `enforce`, and each
of the two starts the other again, so that killing or stopping one of them prolongs nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Callable

from apps.execution.node import clocks, files, homes, leases, processes
from apps.execution.node.detaching import detach
from apps.execution.node.homes import Attempt
from apps.execution.node.kinds import runtime_of
from apps.execution.node.results import note_exit
from apps.execution.node.runtimes import Runtime

# A sleeping machine stops the clock by which processes sleep, so they look this often.
LOOK_S = 0.5
KILL_STEP_S = 0.1
# How long a supervisor may take to write down an end before it counts as stopped itself.
SETTLE_S = 3.0
NICENESS = -15

Revive = Callable[[Attempt, dict[str, Any]], object]


def ensure_watchdog(attempt: Attempt, config: dict[str, Any], revive: Revive) -> None:
    """Start the member's watchdog, if it has a lease and no watchdog lives.

    Args:
        revive: gives a member whose supervisor died a new one.
    """
    if not attempt.has("lease.json"):
        return
    lock = files.take_lock(attempt.path("watching"), wait=False)
    if lock is None:
        return
    detach(attempt.home, lambda: _guard(attempt, config, revive), keep=(lock,))
    os.close(lock)


def enforce(attempt: Attempt, runtime: Runtime) -> float:
    """End the member if its lease is nearly over.

    Returns:
        Seconds until somebody has to look again.
    """
    lease = leases.read(attempt)
    if lease is None:
        return LOOK_S
    now = clocks.uptime_s()
    if now < lease.term_at_s and not leases.is_over(attempt):
        return min(lease.term_at_s - now, LOOK_S)
    if leases.mark_over(attempt):
        runtime.signal_directly(signal.SIGTERM)
    if now >= lease.kill_at_s:
        runtime.kill()
        return KILL_STEP_S
    return min(lease.kill_at_s - now, LOOK_S)


def _guard(attempt: Attempt, config: dict[str, Any], revive: Revive) -> None:
    # Tasks may keep the node busy; who ends them must not stand in line behind them.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    runtime = runtime_of(attempt, config)
    gone_at: float | None = None
    while not homes.is_done(attempt):
        wait_s = enforce(attempt, runtime)
        if attempt.has("starting") and not attempt.is_supervised():
            revive(attempt, config)
        if not leases.is_over(attempt) or not runtime.is_known_dead():
            gone_at = None
        elif gone_at is None:
            gone_at = clocks.uptime_s()
        elif clocks.uptime_s() - gone_at > SETTLE_S:
            _settle(attempt, config)
        time.sleep(wait_s)


def _settle(attempt: Attempt, config: dict[str, Any]) -> None:
    """Write down the end that a stopped supervisor keeps to itself, and end the supervisor."""
    note_exit(attempt, config, None, "")
    supervisor = homes.supervisor_of(attempt)
    if supervisor is not None:
        processes.send(supervisor, signal.SIGKILL)
