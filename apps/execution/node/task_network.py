"""The network of a task, which a program that is for nothing else enters."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Callable

# From linux/sched.h.
NEW_NETWORK, NEW_USER = 0x40000000, 0x10000000


def enter(pid: int, is_meant: Callable[[], bool]) -> None:
    """Move this program into the network of a process, for good.

    Args:
        is_meant: whether the process is still the task's, asked when another can no longer be
            entered in its place.

    Raises:
        OSError: the process has ended, or its network cannot be entered.
    """
    network = os.open("/proc/%d/ns/net" % pid, os.O_RDONLY | os.O_CLOEXEC)
    user = os.open("/proc/%d/ns/user" % pid, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not is_meant():
            raise ProcessLookupError("the task has ended")
        if os.path.samestat(os.fstat(network), os.stat("/proc/self/ns/net")):
            return
        try:
            _enter(network, NEW_NETWORK)
        except PermissionError:
            # Of a container without root: its user has rights only in the container's own users.
            _enter(user, NEW_USER)
            _enter(network, NEW_NETWORK)
    finally:
        os.close(network)
        os.close(user)


def _enter(descriptor: int, kind: int) -> None:
    if hasattr(os, "setns"):
        os.setns(descriptor, kind)
        return
    # Before Python 3.12.
    ctypes = import_module("ctypes")
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, kind):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
