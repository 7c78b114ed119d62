"""Detached processes: what happens to a connection does not reach them."""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from typing import Callable

CRASHES_BYTES = 256 * 1024


def detach(home: str, work: Callable[[], None], *, keep: tuple[int, ...]) -> None:
    """Run `work` in a detached process: own session, no terminal, no pipes.

    Args:
        keep: descriptors that stay open there; every other lock and pipe is let go.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        _leave_the_channel(keep)
        work()
    except BaseException:  # noqa: BLE001  # the last frame of this process: whatever it was, note it
        _note_crash(home)
    finally:
        os._exit(0)


def _leave_the_channel(keep: tuple[int, ...]) -> None:
    """Close the connection's pipes: sshd waits for every process that holds one."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            # The descriptor of the listing itself is closed by now.
            with contextlib.suppress(OSError):
                os.close(int(name))
    os.chdir("/")
    os.umask(0o077)


def _note_crash(home: str) -> None:
    """Keep the trace where `probe` finds it: no connection is left to report it."""
    path = os.path.join(home, "crashes.log")
    with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as target:
        if target.tell() > CRASHES_BYTES:
            target.truncate(0)
        traceback.print_exc(file=target)
