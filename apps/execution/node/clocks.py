"""The node's clocks. Deadlines use the uptime, which no administrator and no NTP daemon moves."""

from __future__ import annotations

import time


def uptime_s() -> float:
    """Seconds since the node booted, time asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall_s() -> float:
    """Seconds since the epoch by the node's own clock, which may be wrong."""
    return time.time()


def boot_id() -> str:
    """The kernel's name for this boot; another value means that nothing of before still runs."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
        return source.read().strip()
