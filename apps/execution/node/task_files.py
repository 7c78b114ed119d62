"""The only way to files in places where a task can write: by descriptors, never by a path again.

The helper is root on most nodes, and a task replaces what it may: a file by a symbolic or a hard
link, a pipe that blocks its reader, a folder nested a hundred thousand deep. So nothing
below a folder of a task is opened, changed or removed but relative to an open folder, without
following a link and without waiting; and what was opened is looked at before it is used.
`tests/execution/node/test_task_files.py` names the modules that may use files in any other way.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from typing import Iterator

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# To pass through, which is all that many folders allow.
_PASSED = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# A path with more symbolic links than that leads in a circle; the kernel's own number.
MOST_LINKS = 40
# Of folders in folders: who goes on making them while they are removed has to wait.
MOST_MOVED = 1_000_000
# In `st_blocks`, whatever the file system's own are.
BLOCK_BYTES = 512
# What a file system may round a file up to: a huge page of one in memory.
ROUNDED_BYTES = 2 * 1024 * 1024


@contextlib.contextmanager
def opened_folder(path: str) -> Iterator[int]:
    """The folder at an absolute path, as a descriptor.

    A symbolic link on the path is followed only where only root or the helper can have made it.

    Raises:
        OSError: there is none, or a link on the path is another user's.
    """
    descriptor = _walk(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_below(folder: int, name: str) -> Iterator[int]:
    """The folder of this name in an open one, and no link to another.

    Raises:
        OSError: there is none.
    """
    descriptor = os.open(name, _FOLDER, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_file(folder: int, name: str, *, owner: int, flags: int = os.O_RDONLY) -> Iterator[int]:
    """A file in an open folder, looked at: a regular one of this user, without a second name.

    Raises:
        OSError: it is not there, or something else.
    """
    descriptor = os.open(name, flags | _FILE, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner or status.st_nlink != 1:
            raise PermissionError(errno.EPERM, "not a file of the task alone", name)
        yield descriptor
    finally:
        os.close(descriptor)


def read_end(path: str, *, owner: int, most: int) -> bytes:
    """The last `most` bytes of a file whose folder a task can write to.

    Raises:
        OSError: as `opened_folder` and `opened_file`.
    """
    parent, name = os.path.split(path)
    with opened_folder(parent) as folder, opened_file(folder, name, owner=owner) as descriptor:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, most, max(0, size - most))


def is_beyond(status: os.stat_result, most: int) -> bool:
    """Whether a file is longer than so many bytes, or takes much more space than such a file.

    By `fallocate` a task takes space behind the end of a file, which does not get longer by that.
    File systems take some there by themselves: XFS as much again while a file grows. So twice as
    much is no offence, and what they round up to.
    """
    return status.st_size > most or takes_too_much(status, most)


def takes_too_much(status: os.stat_result, most: int) -> bool:
    """Whether a file takes much more space than one of so many bytes, whatever its length."""
    return status.st_blocks * BLOCK_BYTES > 2 * most + ROUNDED_BYTES


def names_in(path: str) -> list[str]:
    """What is in the folder.

    Raises:
        OSError: as `opened_folder`.
    """
    with opened_folder(path) as folder:
        return sorted(os.listdir(folder))


def ensure_folder(path: str, mode: int, ids: tuple[int, int] | None = None) -> None:
    """A folder at this path, ours or given to `ids` (user and group), with this mode.

    Raises:
        PermissionError: another user's file or folder is there.
        OSError: not possible here.
    """
    parent, name = os.path.split(path)
    with opened_folder(parent) as folder:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
        owners = {os.geteuid(), ids[0] if ids else os.geteuid()}
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=folder)
        except NotADirectoryError:
            raise PermissionError(errno.EPERM, "another user's file is there", path) from None
        try:
            if os.fstat(descriptor).st_uid not in owners:
                raise PermissionError(errno.EPERM, "belongs to another user", path)
            give(descriptor, mode, ids)
        finally:
            os.close(descriptor)


def make_folder(path: str, ids: tuple[int, int] | None) -> bool:
    """A new folder at this path, of `ids` alone; False where it is there: what is in it stays.

    Where another user may rename what is in the folder around it, a name can stand for another
    folder from one call to the next, so none that is found by it is given away: the user's own
    rights make the folder there, as they could without us. All file systems do that alike; many
    networks' do not rename without replacing, which would be the other way.

    Raises:
        OSError: not possible here; nothing is left.
    """
    parent, name = os.path.split(path)
    with opened_folder(parent) as folder:
        is_ours = _is_closed(folder)
        try:
            with as_user(None if is_ours else ids):
                os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            return False
        if ids is not None and is_ours:
            _give_new(folder, name, ids)
    return True


def _is_closed(folder: int) -> bool:
    """Whether only root and we can rename what we make in an open folder."""
    status = os.fstat(folder)
    is_open = bool(status.st_mode & 0o022) and not status.st_mode & stat.S_ISVTX
    return status.st_uid in {0, os.geteuid()} and not is_open


def _give_new(folder: int, name: str, ids: tuple[int, int]) -> None:
    """Give away a folder that we have just made, and no other that has its name meanwhile."""
    with opened_below(folder, name) as made:
        try:
            if os.fstat(made).st_uid != os.geteuid() or not _is_empty(made):
                raise PermissionError(errno.EPERM, "another folder is in its place", name)
            give(made, 0o700, ids)
        except OSError:
            # Only what is empty goes.
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=folder)
            raise


def remove_empty(path: str) -> None:
    """Remove a folder that has nothing in it.

    Raises:
        OSError: as `opened_folder`, or it is no such folder.
    """
    parent, name = os.path.split(path)
    with opened_folder(parent) as folder:
        os.rmdir(name, dir_fd=folder)


def is_owned(path: str, ids: tuple[int, int] | None) -> bool:
    """Whether this is a folder of that user; None: ours.

    Raises:
        OSError: as `opened_folder`, or there is nothing.
    """
    parent, name = os.path.split(path)
    with opened_folder(parent) as folder:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == (ids[0] if ids else os.geteuid())


def holds_anything(path: str) -> bool:
    """Whether something is in the folder, however much.

    Raises:
        OSError: as `opened_folder` and `opened_below`.
    """
    parent, name = os.path.split(path)
    with (
        opened_folder(parent) as folder,
        opened_below(folder, name) as inner,
    ):
        return not _is_empty(inner)


def _is_empty(folder: int) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is None


def make_file(
    folder: int,
    name: str,
    content: bytes,
    mode: int = 0o600,
    ids: tuple[int, int] | None = None,
    *,
    mtime: float | None = None,
) -> None:
    """A new file in an open folder, given to `ids` once it is written.

    Raises:
        OSError: something of this name is there, or no space.
    """
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=folder)
    with open(descriptor, "wb") as target:
        target.write(content)
        target.flush()
        if mtime is not None:
            os.utime(descriptor, (mtime, mtime))
        give(descriptor, mode, ids)


def give(descriptor: int, mode: int, ids: tuple[int, int] | None) -> None:
    """Set the mode, and the owner where there is one to set."""
    os.fchmod(descriptor, mode)
    if ids is not None:
        os.fchown(descriptor, *ids)


def remove(path: str) -> None:
    """Remove what has this name, with all that is in it; nothing there is fine.

    Raises:
        OSError: some of it may be left.
    """
    parent, name = os.path.split(path)
    with contextlib.suppress(FileNotFoundError), opened_folder(parent) as folder:
        if _is_unlinked(folder, name):
            return
        with opened_below(folder, name) as top:
            _empty(top)
        os.rmdir(name, dir_fd=folder)


def _empty(top: int) -> None:
    """What lies deeper is moved up first: however deep it is, two folders are open at a time."""
    own, moved = secrets.token_hex(16), 0
    while names := os.listdir(top):
        for name in names:
            if _is_unlinked(top, name):
                continue
            with opened_below(top, name) as folder:
                for inner in os.listdir(folder):
                    if not _is_unlinked(folder, inner):
                        moved += 1
                        os.rename(inner, "%s-%d" % (own, moved), src_dir_fd=folder, dst_dir_fd=top)
            if moved > MOST_MOVED:
                raise OSError(errno.ENOTEMPTY, "a process goes on making folders there")
            os.rmdir(name, dir_fd=top)


def _is_unlinked(folder: int, name: str) -> bool:
    """Whether it is gone; False for a folder."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return False
        raise
    return True


@contextlib.contextmanager
def as_user(ids: tuple[int, int] | None) -> Iterator[None]:
    """With no more rights to files than this user and group have; None: our own.

    For processes with one thread.
    """
    if ids is None or os.geteuid() != 0:
        yield
        return
    groups, own_group = os.getgroups(), os.getegid()
    os.setgroups([])
    os.setegid(ids[1])
    os.seteuid(ids[0])
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(own_group)
        os.setgroups(groups)


def _walk(path: str) -> int:
    """Open an absolute path part by part."""
    if not os.path.isabs(path):
        raise OSError(errno.EINVAL, "not an absolute path", path)
    parts, links = _parts(path), 0
    folder = os.open("/", _PASSED)
    try:
        while parts:
            name = parts.pop(0)
            target = _link(folder, name)
            if target is None:
                folder = _replaced(folder, os.open(name, _PASSED, dir_fd=folder))
                continue
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if os.path.isabs(target):
                folder = _replaced(folder, os.open("/", _PASSED))
            parts = _parts(target) + parts
        return os.open(".", _FOLDER, dir_fd=folder)
    finally:
        os.close(folder)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _replaced(old: int, new: int) -> int:
    os.close(old)
    return new


def _link(folder: int, name: str) -> str | None:
    """Where a symbolic link leads to that only root or we can have put there; None: no link."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        return None
    if status.st_uid not in {0, os.geteuid()} or not _is_closed(folder):
        raise PermissionError(errno.ELOOP, "a symbolic link of another user", name)
    return os.readlink(name, dir_fd=folder)
