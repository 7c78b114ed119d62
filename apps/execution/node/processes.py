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
    return {pid for pid in _all() if want in b"\0" + _read(pid, "environ") + b"\0"}


def environment_of(pid: int, *, owner: int) -> dict[bytes, bytes]:
    """The variables that a process of this user began with; empty when it is gone.

    Anybody's process can carry a member's mark, and nobody's variables are for another user.
    """
    status = _read(pid, "status").partition(b"\nUid:")[2].split()
    if not status or int(status[0]) != owner:
        return {}
    pairs = (entry.partition(b"=") for entry in _read(pid, "environ").split(b"\0"))
    return {name: value for name, _, value in pairs if name}


def clients(tool: str, name: str) -> set[int]:
    """Our own processes that are making the container of this name."""
    option = b"--name=%s" % name.encode()
    found = set()
    for pid in _all():
        words = _read(pid, "cmdline").split(b"\0")
        if option in words and _is_run_of(tool, words) and _is_own(pid):
            found.add(pid)
    return found


def _is_run_of(tool: str, words: list[bytes]) -> bool:
    """`podman run`, or `/bin/sh /usr/local/bin/podman run` where it is a script."""
    at = words.index(b"run") if b"run" in words[:3] else 0
    return at > 0 and os.path.basename(words[at - 1]) == tool.encode()


def send(pid: int, number: signal.Signals) -> bool:
    """Signal one process; False when it is gone or not ours."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as source:
            return source.read()
    except OSError:
        return b""


def _is_own(pid: int) -> bool:
    try:
        return os.stat("/proc/%d" % pid).st_uid == os.geteuid()
    except OSError:
        return False


def _status(pid: int) -> list[bytes] | None:
    """The fields of /proc/<pid>/stat from the state on; the name before may hold anything."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as source:
            return source.read().rpartition(b")")[2].split()
    except OSError:
        return None
