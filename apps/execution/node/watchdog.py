"""Ends a leased member when its lease ends, whatever has become of its supervisor.

Every leased member has one, as a process of its own. The supervisor does the same by `enforce`,
and each of the two starts the other again, so that killing or stopping one prolongs nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Callable

from apps.execution.node import clocks, files, leases, processes, state_files
from apps.execution.node.detached_process import detach
from apps.execution.node.results import note_exit
from apps.execution.node.runtime_kinds import runtime_of
from apps.execution.node.runtimes import TaskRuntime
from apps.execution.node.state_files import MemberFolder

# A sleeping machine stops the clock by which processes sleep, so they look this often.
CHECK_EVERY_S = 0.5
KILL_STEP_S = 0.1
# How long a supervisor may take to write down an end before it counts as stopped itself.
SETTLE_S = 3.0
NICENESS = -15

Revive = Callable[[MemberFolder, dict[str, Any]], object]


def ensure_watchdog(member: MemberFolder, config: dict[str, Any], revive: Revive) -> None:
    """Start the member's watchdog, if it has a lease and no watchdog lives.

    Args:
        revive: gives a member whose supervisor died a new one.
    """
    if not member.has("lease.json"):
        return
    lock = files.take_lock(member.path("watching"), wait=False)
    if lock is None:
        return
    detach(member.home, lambda: _guard(member, config, revive), keep=(lock,))
    os.close(lock)


def enforce(member: MemberFolder, runtime: TaskRuntime) -> float:
    """End the member if its lease is nearly over.

    Returns:
        Seconds until the lease has to be checked again.
    """
    lease = leases.read(member)
    if lease is None:
        return CHECK_EVERY_S
    now = clocks.uptime_s()
    if now < lease.term_at_s and not leases.is_over(member):
        return min(lease.term_at_s - now, CHECK_EVERY_S)
    if leases.mark_over(member):
        runtime.signal_directly(signal.SIGTERM)
    if now >= lease.kill_at_s:
        runtime.kill()
        return KILL_STEP_S
    return min(lease.kill_at_s - now, CHECK_EVERY_S)


def _guard(member: MemberFolder, config: dict[str, Any], revive: Revive) -> None:
    # Tasks may keep the node busy; the process that ends them must not wait for them.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    runtime = runtime_of(member, config)
    gone_at: float | None = None
    while not state_files.is_done(member):
        wait_s = enforce(member, runtime)
        if member.has("starting") and not member.is_supervised():
            revive(member, config)
        if not leases.is_over(member) or not runtime.is_known_dead():
            gone_at = None
        elif gone_at is None:
            gone_at = clocks.uptime_s()
        elif clocks.uptime_s() - gone_at > SETTLE_S:
            _settle(member, config)
        time.sleep(wait_s)


def _settle(member: MemberFolder, config: dict[str, Any]) -> None:
    """Store the result that a stopped supervisor has not stored, and end the supervisor."""
    note_exit(member, config, None, "")
    supervisor = state_files.supervisor_of(member)
    if supervisor is not None:
        processes.send(
            supervisor, signal.SIGKILL, lambda pid: state_files.supervisor_of(member) == pid
        )
