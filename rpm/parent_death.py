"""Processes that end with the one that started them, even where that one was killed."""

import ctypes
import os
import signal
import sys

LIBC = ctypes.CDLL(None)
# From linux/prctl.h: the signal that a process gets when its parent ends.
PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """Called in the child, for `parent` that started it; on Linux only.

    Args:
        number: the signal that ends it.
    """
    if sys.platform != "linux":
        return
    LIBC.prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        # It was gone before the line above.
        os.kill(os.getpid(), number)
