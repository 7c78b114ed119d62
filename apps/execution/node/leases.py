"""How long a member may run without hearing more from the control plane.

A leased member is gone when its lease ends, because another node may start its task at that very
moment. Two processes end it, its supervisor and its watchdog, and neither needs the other.
All times are seconds on the boot clock, which goes on while the node sleeps and cannot be set.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from apps.execution.node import clocks, files, state_files
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.state_files import MemberFolder

# It ends before its lease does: SIGTERM this long before, SIGKILL in the middle of it. Of a short
# lease it is a quarter.
AHEAD_S = 5.0
AHEAD_SHARE = 4
WORDS = "its lease was over: the node had not heard of the control plane for too long"
MARK = "lease-over"
LOCK = "lease.lock"
LOCK_LIMIT_S = 1.0


class Lease(NamedTuple):
    """When the member is asked to end, when it is killed, and when it must be gone."""

    term_at_s: float
    kill_at_s: float
    until_s: float


def grant(member: MemberFolder, until_s: float) -> None:
    """Give a member that is not started its lease; there before anything of it runs."""
    files.reserve(member.path(MARK), size=0, times=1)
    # There before the disk can be full.
    files.write_bytes(member.path(LOCK), b"", durable=False)
    _write(member, until_s, durable=True)
    files.reserve(member.path("lease.json"), size=state_files.BLOCK_BYTES, times=1)


def renew(member: MemberFolder, until_s: float) -> None:
    """What the control plane asks for in passing; unknown members are ignored.

    A launch or a stop under way holds the task's lock; this waits for neither.
    """
    # It may be removed just now; and the next exchange brings the renewal again.
    with contextlib.suppress(FileNotFoundError, RequestRefusal):
        lengthen(member, until_s)


def lengthen(member: MemberFolder, until_s: float) -> None:
    """Lengthen a lease, but never one that is over."""
    if not member.has("lease.json"):
        return
    with files.locked(member.path(LOCK), limit_s=LOCK_LIMIT_S):
        lease = read(member)
        if lease is None or is_over(member) or clocks.uptime_s() >= lease.until_s:
            return
        if until_s > lease.until_s:
            _write(member, until_s, durable=False)


def read(member: MemberFolder) -> Lease | None:
    """The member's lease; None when it may run for ever. One that is damaged is over."""
    kept = member.read("lease.json")
    if kept is None:
        return Lease(0, 0, 0) if member.has("lease.json") else None
    return Lease(kept["term_at_s"], kept["kill_at_s"], kept["until_s"])


def is_over(member: MemberFolder) -> bool:
    """Whether the node has begun to end it because of its lease."""
    return member.has(MARK)


def mark_over(member: MemberFolder) -> bool:
    """From here on it ends because of its lease, and no renewal helps. True for the first one."""
    try:
        return member.mark(MARK)
    except OSError:
        # Whatever the disk says, it has to end.
        return False


def _write(member: MemberFolder, until_s: float, *, durable: bool) -> None:
    ahead_s = min(AHEAD_S, max(until_s - clocks.uptime_s(), 0) / AHEAD_SHARE)
    lease = Lease(until_s - ahead_s, until_s - ahead_s / 2, until_s)
    files.write_json(member.path("lease.json"), lease._asdict(), durable=durable)
