"""Looks at /proc. A pid alone says little: the kernel gives the numbers out again."""

from __future__ import annotations

import os
import signal

# Stands in the environment of every task of the process runtime, and so of its descendants.
MARK = "RPM_MEMBER"


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is none."""
    fields = _status(pid)
    if fields is None or fields[0] == b"Z":
        return None
    return int(fields[19])


def in_session(leader: int) -> set[int]:
    """The living processes of a session."""
    if leader <= 1:
        return set()
    found = set()
    for pid in _all():
        fields = _status(pid)
        if fields is not None and fields[0] != b"Z" and int(fields[3]) == leader:
            found.add(pid)
    return found


def marked(name: str) -> set[int]:
    """The living processes that carry this member's mark in their first environment."""
    want = b"\0%s=%s\0" % (MARK.encode(), name.encode())
    return {pid for pid in _all() if want in b"\0" + _environment(pid) + b"\0"}


def send(pid: int, number: signal.Signals) -> bool:
    """Signal one process; False when it is gone or not ours."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: int) -> bytes:
    try:
        with open("/proc/%d/environ" % pid, "rb") as source:
            return source.read()
    except OSError:
        return b""


def _status(pid: int) -> list[bytes] | None:
    """The fields of /proc/<pid>/stat from the state on; the name before may hold anything."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as source:
            return source.read().rpartition(b")")[2].split()
    except OSError:
        return None
