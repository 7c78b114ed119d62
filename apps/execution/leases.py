"""Leases: until when a member may run without hearing from the control plane. Pure arithmetic.

A node ends a leased member by itself, so that it can be started elsewhere while that node cannot
be reached. All moments are on the node's boot clock, and wall clocks are never asked: what
is known is what that clock showed when the node last answered, and how much later it is here.
"""

import time
from dataclasses import dataclass
from typing import Final

from apps.execution.container_specs import NodeMoment

# Clocks of two machines drift apart by less than this, and reading them takes less than that.
DRIFT: Final = 1.01
MARGIN_S: Final = 1.0
# A lease is renewed when less than this part of it is left.
RENEWED_AT: Final = 2 / 3


@dataclass(frozen=True, slots=True)
class NodeClock:
    """The node's boot clock showed `uptime_s`, or more, at `read_at` of this process's own clock.

    Args:
        read_at: of `time.monotonic()`.
    """

    boot_id: str
    uptime_s: float
    read_at: float

    def now(self) -> NodeMoment:
        """What it shows now, or less."""
        return NodeMoment(self.boot_id, self.uptime_s + time.monotonic() - self.read_at)


def granted_s(lease_s: float) -> float:
    """Length of a lease, so that after `lease_s` without an answer it is known to be over."""
    return (lease_s - MARGIN_S) / DRIFT


def first_lease(clock: NodeClock, *, lease_s: float, at_least_s: float = 0) -> float:
    """Until when a member that is launched now may run.

    Args:
        at_least_s: planned work on the control plane lasts so long.
    """
    return clock.now().uptime_s + max(granted_s(lease_s), at_least_s)


def renewed_lease(
    until_s: float, clock: NodeClock, *, lease_s: float, at_least_s: float = 0
) -> float | None:
    """Until when it may run on, None where what it has is enough.

    Counted from what the node last showed, not from now: a node that does not answer is granted
    nothing more.
    """
    wanted_s = max(granted_s(lease_s), at_least_s)
    if until_s - clock.uptime_s >= wanted_s * RENEWED_AT:
        return None
    return clock.uptime_s + wanted_s


def is_over(until_s: float, clock: NodeClock, *, at: float) -> bool:
    """Whether the node has certainly ended a member with this lease.

    Args:
        at: now, of `time.monotonic()` of the process that holds `clock`.
    """
    return at - clock.read_at >= seconds_until_over(until_s, clock)


def seconds_until_over(until_s: float, clock: NodeClock) -> float:
    """How long after `clock` was read a lease is certainly over, in seconds of this machine."""
    return max(0.0, until_s - clock.uptime_s) * DRIFT + MARGIN_S
