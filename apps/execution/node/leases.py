"""How long a member may run without hearing more from the control plane.

A leased member is gone when its lease ends, because another node may start its task at that very
moment. Two processes see to it, its supervisor and its watchdog, and neither needs the other.
All times are seconds on the boot clock, which goes on while the node sleeps and which nobody sets.
"""

from __future__ import annotations

from typing import NamedTuple

from apps.execution.node import clocks, files, homes
from apps.execution.node.homes import Attempt

# It ends before its lease does: SIGTERM this long before, SIGKILL in the middle of it. Of a short
# lease it is a quarter.
AHEAD_S = 5.0
AHEAD_SHARE = 4
WORDS = "its lease was over: the node had not heard of the control plane for too long"
MARK = "lease-over"


class Lease(NamedTuple):
    """When the member is asked to end, when it is killed, and when it must be gone."""

    term_at_s: float
    kill_at_s: float
    until_s: float


def grant(attempt: Attempt, until_s: float) -> None:
    """Give a member that is not started its lease; there before anything of it runs."""
    files.reserve(attempt.path(MARK), size=0, times=1)
    _write(attempt, until_s, durable=True)
    files.reserve(attempt.path("lease.json"), size=homes.BLOCK_BYTES, times=1)


def renew(attempt: Attempt, until_s: float) -> None:
    """What the control plane asks for in passing; unknown members are ignored."""
    if attempt.has("lease.json"):
        with files.locked(homes.task_lock(attempt.home, attempt.identity.task_id)):
            lengthen(attempt, until_s)


def lengthen(attempt: Attempt, until_s: float) -> None:
    """Never shorten a lease, and give none anew once it was over. Under the task's lock."""
    lease = read(attempt)
    if lease is None or is_over(attempt) or clocks.uptime_s() >= lease.until_s:
        return
    if until_s > lease.until_s:
        _write(attempt, until_s, durable=False)


def read(attempt: Attempt) -> Lease | None:
    """The member's lease; None when it may run for ever. One that is damaged is over."""
    kept = attempt.read("lease.json")
    if kept is None:
        return Lease(0, 0, 0) if attempt.has("lease.json") else None
    return Lease(kept["term_at_s"], kept["kill_at_s"], kept["until_s"])


def is_over(attempt: Attempt) -> bool:
    """Whether the node has begun to end it because of its lease."""
    return attempt.has(MARK)


def mark_over(attempt: Attempt) -> bool:
    """From here on it ends because of its lease, and no renewal helps. True for the first one."""
    try:
        return attempt.mark(MARK)
    except OSError:
        # Whatever the disk says, it has to end.
        return False


def _write(attempt: Attempt, until_s: float, *, durable: bool) -> None:
    ahead_s = min(AHEAD_S, max(until_s - clocks.uptime_s(), 0) / AHEAD_SHARE)
    lease = Lease(until_s - ahead_s, until_s - ahead_s / 2, until_s)
    files.write_json(attempt.path("lease.json"), lease._asdict(), durable=durable)
