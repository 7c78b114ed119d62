"""Small files that survive a crash, and locks that end with the process that holds them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from typing import Any, Iterator

from apps.execution.node.errors import RequestRefusal

# Behind the name of a file: space set aside for it while there was some.
RESERVED = ".reserved"
# A lock is held while something is decided, never while something starts: who waits longer for one
# gives up, and asks again.
LOCK_LIMIT_S = 20.0
LOCK_STEP_S = 0.01
# What the kernel says of a file that a power cut or the disk has damaged.
DAMAGES = (errno.EIO, errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.EUCLEAN)


def reserve(path: str, *, size: int, times: int) -> None:
    """Set space aside so that `path` can be written on a full disk, again and again.

    Args:
        size: bytes that its content never exceeds.
        times: 2 where the file is not there yet and will be replaced.
    """
    for suffix in (RESERVED, RESERVED + RESERVED)[:times]:
        descriptor = os.open(path + suffix, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if size:
                os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)


def write_json(path: str, content: dict[str, Any], *, durable: bool) -> None:
    """Replace `path` in one step; readers see the old or the new content, never half of it.

    Args:
        durable: also survive a power cut. Needed for what a later boot has to know: fences,
            results, and that a member was there; the rest is worthless then.
    """
    plain = json.dumps(content, sort_keys=True).encode()
    if os.path.exists(path + RESERVED):
        _write_into_reserved(path, plain, durable=durable)
    else:
        write_bytes(path, plain, durable=durable)


def write_bytes(path: str, content: bytes, *, durable: bool) -> None:
    """Like `write_json`, for any content. Only the owner can read the file."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as target:
        target.write(content)
        target.flush()
        if durable:
            os.fsync(descriptor)
    os.rename(temporary, path)
    if durable:
        sync_folder(os.path.dirname(path))


def _write_into_reserved(path: str, content: bytes, *, durable: bool) -> None:
    """Write into the reserved space and put it in place; the old file is the next reserve."""
    reserved, next_reserved = path + RESERVED, path + RESERVED + RESERVED
    descriptor = os.open(reserved, os.O_WRONLY | os.O_CLOEXEC)
    try:
        _overwrite(descriptor, content, durable=durable)
    finally:
        os.close(descriptor)
    if os.path.exists(path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(next_reserved)
        os.link(path, next_reserved)
    os.rename(reserved, path)
    with contextlib.suppress(FileNotFoundError):
        os.rename(next_reserved, reserved)
    if durable:
        sync_folder(os.path.dirname(path))


def _overwrite(descriptor: int, content: bytes, *, durable: bool) -> None:
    """Blanks behind the content: the file keeps its space, and JSON does not mind."""
    size = os.fstat(descriptor).st_size
    os.pwrite(descriptor, content.ljust(size), 0)
    if durable:
        os.fsync(descriptor)


def write_json_once(path: str, content: dict[str, Any]) -> bool:
    """Write a durable file unless it exists; False when it does."""
    reserved = take_lock(path + RESERVED, wait=True)
    if reserved is None:
        raise OSError(errno.EAGAIN, "another process holds it", path)
    try:
        if os.path.exists(path):
            return False
        _overwrite(reserved, json.dumps(content, sort_keys=True).encode(), durable=True)
        os.rename(path + RESERVED, path)
    finally:
        os.close(reserved)
    sync_folder(os.path.dirname(path))
    return True


def sync_folder(path: str) -> None:
    """Make a rename or a new entry in the folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: str) -> dict[str, Any] | None:
    """The content; None when there is no such file, or a power cut or the disk has damaged it.

    A caller that has to distinguish them checks whether the file exists.
    """
    try:
        with open(path, "rb") as source:
            content = json.loads(source.read(), parse_constant=_refuse_constant)
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    except OSError as error:
        if error.errno not in DAMAGES:
            raise
        return None
    return content if isinstance(content, dict) else None


def _refuse_constant(name: str) -> float:
    raise ValueError("%s is no JSON" % name)


def take_lock(path: str, *, wait: bool, limit_s: float = LOCK_LIMIT_S) -> int | None:
    """Lock `path` and return the descriptor that holds the lock; None when it is taken.

    Args:
        wait: for `limit_s` at most.

    The lock belongs to the open file, so a forked child keeps it after the parent has gone, and
    it ends when the last process that holds it dies, however it dies.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + limit_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait or time.monotonic() > until:
                os.close(descriptor)
                return None
            time.sleep(LOCK_STEP_S)
        else:
            return descriptor


@contextlib.contextmanager
def locked(path: str, *, limit_s: float = LOCK_LIMIT_S) -> Iterator[None]:
    """Hold the lock on `path`, waiting for it.

    Raises:
        RequestRefusal: code `late`, another process has held it for too long.
    """
    descriptor = take_lock(path, wait=True, limit_s=limit_s)
    if descriptor is None:
        raise RequestRefusal("late", "%s has been held for %d s" % (path, limit_s))
    try:
        yield
    finally:
        os.close(descriptor)


def is_locked(path: str) -> bool:
    """Whether a living process holds the lock on `path`."""
    if not os.path.exists(path):
        return False
    descriptor = take_lock(path, wait=False)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False
