"""Time bounds of tests: each bound is multiplied by how much slower this machine is.

A bound says how long a test waits, never how fast the product is. On a slow or busy machine the
same test waits longer and stays green.
"""

import os
import subprocess
import sys
import time
from functools import cache

# What `_probe` takes on a quiet machine with cores of 2018.
QUIET_S = 0.15
PROBES = 5
MOST = 20.0


def scale_timeout(seconds: float) -> float:
    """So long may take here what takes at most `seconds` on a quiet machine.

    Ask again in every turn of a loop: load comes and goes.
    """
    return seconds * min(max(1.0, _slowness() * 1.5, 1 + _load_factor()), MOST)


def scale_timeout_ms(seconds: float) -> float:
    """The same for Playwright, which counts milliseconds."""
    return 1000 * scale_timeout(seconds)


def _load_factor() -> float:
    """How many processes want each processor, in the last minute."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


@cache
def _slowness() -> float:
    """How much slower this machine starts programs and computes than a quiet one; once."""
    began = time.perf_counter()
    for _ in range(PROBES):
        subprocess.run([sys.executable, "-ISc", "sum(range(10**5))"], check=True)
    return (time.perf_counter() - began) / QUIET_S
