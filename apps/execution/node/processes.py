"""Processes as /proc shows them. A pid alone says little: the kernel reuses the numbers.

A process itself sets where its arguments and variables are and how long they are, gigabytes of
zeros if it likes, and on old kernels it can block their reader for ever. So they are read only for
processes whose user the kernel names as the right one, and never without a bound.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Callable, Iterator

# Stands in the environment of every task of the process runtime, and so of its descendants.
MARK = "RPM_MEMBER"
# What of its arguments and variables is looked at. A client's name is among its first arguments;
# all variables of a program fit unless its limit of the stack was raised.
ARGUMENT_BYTES = 128 * 1024
VARIABLE_BYTES = 2 * 1024 * 1024
# A launch brings 1024 at most.
MOST_VARIABLES = 10_000
# Any living one of them shows the variables.
MOST_THREADS = 16
# A helper holds a few locks and pipes.
MOST_FILES = 1000
# Enough of the kernel's own words to hold the user ids.
STATUS_BYTES = 4096


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is none."""
    fields = _status(pid)
    if fields is None or _is_over(fields):
        return None
    return int(fields[19])


def birth_ticks(pid: int) -> int | None:
    """Like `start_ticks`, also of one that has ended and whose parent has not heard of it."""
    fields = _status(pid)
    return None if fields is None else int(fields[19])


def in_session(leader: int) -> set[int]:
    """The living processes of a session."""
    return {pid for pid in _all() if is_in_session(pid, leader)}


def is_in_session(pid: int, leader: int) -> bool:
    """Whether the process lives and belongs to the session."""
    fields = _status(pid) if leader > 1 else None
    return fields is not None and not _is_over(fields) and int(fields[3]) == leader


def marked(name: str, *, owner: int | None, mark: str = MARK) -> set[int]:
    """The living processes of a user that carry this mark in their first environment.

    Args:
        owner: the user whose processes count; None where the user is unknown.
    """
    return {pid for pid in _all() if is_marked(pid, name, owner=owner, mark=mark)}


def is_marked(pid: int, name: str, *, owner: int | None, mark: str = MARK) -> bool:
    """Whether the process carries the mark, and is of this user."""
    if owner is not None and _users(pid)[:1] != [owner]:
        return False
    want = b"\0%s=%s\0" % (mark.encode(), name.encode())
    return want in b"\0" + _variables(pid) + b"\0"


def files_of_ours(folder: str) -> set[str]:
    """What below the folder is open in processes of the helper, also where it has been removed.

    No task has such a process: its user is another one, or its mount namespace.
    """
    own = [os.geteuid()] * 4
    prefix, found = folder + "/", set()
    for pid in _all():
        if _users(pid) == own and _mounts(pid) == _mounts(os.getpid()):
            paths = (path for path in _open_files(pid) if path.startswith(prefix))
            found |= {path[len(prefix) :] for path in paths}
    return found


def _mounts(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink("/proc/%d/ns/mnt" % pid)
    return ""


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/%d/fd" % pid)[:MOST_FILES]:
            with contextlib.suppress(OSError):
                yield os.readlink("/proc/%d/fd/%s" % (pid, name))


def _variables(pid: int) -> bytes:
    """The environment; by another thread where the first one has ended and shows none."""
    content = _read(pid, "environ", VARIABLE_BYTES)
    fields = None if content else _status(pid)
    if fields is None or fields[0] != b"Z":
        return content
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return b""
    others = (thread for thread in threads[:MOST_THREADS] if int(thread) != pid)
    found = (_read(pid, "task/%s/environ" % thread, VARIABLE_BYTES) for thread in others)
    return next((content for content in found if content), b"")


def marked_inside(name: str, *, first: int, mark: str) -> set[int]:
    """The marked processes of the PID namespace that this process is in."""
    namespace = _pid_namespace(first)
    if not namespace or namespace == _pid_namespace(os.getpid()):
        return set()
    inside = (pid for pid in _all() if _pid_namespace(pid) == namespace)
    return {pid for pid in inside if is_marked(pid, name, owner=None, mark=mark)}


def _pid_namespace(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink("/proc/%d/ns/pid" % pid)
    return ""


def environment_of(pid: int, *, owner: int) -> dict[bytes, bytes]:
    """The variables that a process of this user began with; empty when it is gone.

    Any user's process can carry a member's mark, and variables must not reach another user.
    Empty as well where they are more than a program is ever started with.
    """
    if _users(pid)[:1] != [owner]:
        return {}
    content = _read(pid, "environ", VARIABLE_BYTES + 1)
    if len(content) > VARIABLE_BYTES or content.count(b"\0") > MOST_VARIABLES:
        return {}
    pairs = (entry.partition(b"=") for entry in content.split(b"\0"))
    return {name: value for name, _, value in pairs if name}


def clients(tool: str, name: str) -> set[int]:
    """Our own processes that are making the container of this name."""
    return {pid for pid in _all() if is_client(pid, tool, name)}


def is_client(pid: int, tool: str, name: str) -> bool:
    """Whether this is one of them."""
    option = b"--name=%s" % name.encode()
    # All four: a program that another user starts with our rights has arguments of that user.
    own = [os.geteuid()] * 4
    if _users(pid) != own:
        return False
    words = _read(pid, "cmdline", ARGUMENT_BYTES)
    return b"\0%s\0" % option in words and _is_run_of(tool, words.split(b"\0", 3)[:3])


def _is_run_of(tool: str, words: list[bytes]) -> bool:
    """`podman run`, or `/bin/sh /usr/local/bin/podman run` where it is a script.

    Args:
        words: the first three.
    """
    at = words.index(b"run") if b"run" in words else 0
    return at > 0 and os.path.basename(words[at - 1]) == tool.encode()


def send(pid: int, number: signal.Signals, is_meant: Callable[[int], bool]) -> bool:
    """Signal one process; False when it is gone, not ours, or not the one that is meant.

    Args:
        is_meant: looks at the process of this number while no other process can take its place.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError), _held(pid) as descriptor:
        if is_meant(pid):
            if descriptor is None:
                os.kill(pid, number)
            else:
                signal.pidfd_send_signal(descriptor, number)
            return True
    return False


def kill_group(leader: int, is_meant: Callable[[int], bool]) -> None:
    """SIGKILL to the process that is meant and, where it leads a group, to all of that."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if is_meant(leader):
            os.killpg(leader, signal.SIGKILL)
    send(leader, signal.SIGKILL, is_meant)


@contextlib.contextmanager
def _held(pid: int) -> Iterator[int | None]:
    """A descriptor of the process, which means no other one later; None on an old kernel.

    Raises:
        ProcessLookupError: there is none.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (OSError, AttributeError):
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(pid: int, name: str, most: int) -> bytes:
    """The first bytes; in one read, which tells no less than there is."""
    try:
        with open("/proc/%d/%s" % (pid, name), "rb", buffering=0) as source:
            return source.read(most) or b""
    except OSError:
        return b""


def _users(pid: int) -> list[int]:
    """Real, effective, saved and file system's user by the kernel's word; empty when it is gone."""
    line = _read(pid, "status", STATUS_BYTES).partition(b"\nUid:")[2].partition(b"\n")[0]
    return [int(word) for word in line.split()]


def _is_over(fields: list[bytes]) -> bool:
    """Whether nothing of it works: where only the first thread has ended, the state says so too."""
    return fields[0] in (b"Z", b"X") and int(fields[17]) <= 1


def _status(pid: int) -> list[bytes] | None:
    """The fields of /proc/<pid>/stat from the state on; the name before may hold anything."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as source:
            return source.read().rpartition(b")")[2].split()
    except OSError:
        return None
