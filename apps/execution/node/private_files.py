"""Files that only the task may read, in memory, one folder per member; and its checkpoint file.

<tmpfs>/rpm-<our uid>/<installation>-<home>/<task>-<generation>-<rank>/
    checkpoint       of a plain process: it touches it to say that it has saved its state; that of
                     a container is in the member's folder on disk, for it could fill the memory
    secrets/<NAME>   removed with the container, or by a boot
<tmpfs>/rpm-<our uid>/<installation>-<home>/logins/    see registry_login.py

No secret is ever on a disk, in an argument or in a variable.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Any

from apps.execution.node import clocks, task_files
from apps.execution.node.specs import Spec
from apps.execution.node.state_files import MemberFolder

CANDIDATES = ("/run", "/dev/shm")  # noqa: S108  # the folder below is checked to be ours
# A task of another user goes through, and sees nothing else.
PASSABLE = 0o711
CHECKPOINT = "checkpoint"
CHECKPOINT_BYTES = 64 * 1024


def folder_of(member: MemberFolder, config: dict[str, Any]) -> str:
    """Where this member's private files are.

    Raises:
        OSError: this machine has no file system in memory.
    """
    return os.path.join(private_root(member.home, config), "%s-%d-%d" % member.identity)


def private_root(home: str, config: dict[str, Any]) -> str:
    """Where the private files of all members of a home are."""
    digest = hashlib.sha256(home.encode()).hexdigest()[:16]
    return os.path.join(_base(), "%s-%s" % (config["installation"], digest))


def ensure_private_root(home: str, config: dict[str, Any]) -> None:
    """Make the folder around all private files of a home.

    Raises:
        OSError: not possible here, or another user has put one in its place.
    """
    root = private_root(home, config)
    task_files.ensure_folder(os.path.dirname(root), PASSABLE)
    task_files.ensure_folder(root, PASSABLE)


def make(
    member: MemberFolder, spec: Spec, config: dict[str, Any], *, secrets: bool, is_open: bool
) -> str:
    """Make the folder, with the task's secrets if `secrets`; its path.

    Args:
        is_open: the task reaches the folder by its path; else its files are mounted one by one,
            and the folder itself is closed to all other users of the node.

    Raises:
        OSError: not possible here.
    """
    folder = folder_of(member, config)
    ensure_private_root(member.home, config)
    task_files.remove(folder)
    ids = ids_of(spec.user)
    task_files.ensure_folder(folder, 0o700)
    folder_of_file = folder if is_open else member.folder
    task_files.remove(os.path.join(folder_of_file, CHECKPOINT))
    with task_files.opened_folder(folder_of_file) as made:
        # Nothing has been saved yet; whatever touches it brings it to the present.
        task_files.make_file(made, CHECKPOINT, b"", 0o600 if ids else 0o666, ids, mtime=0)
    if secrets and spec.secrets:
        inner = os.path.join(folder, "secrets")
        task_files.ensure_folder(inner, 0o700)
        with task_files.opened_folder(inner) as made:
            for name, value in spec.secrets.items():
                task_files.make_file(made, name, value.encode(), 0o400 if ids else 0o444, ids)
            task_files.give(made, 0o700 if ids else 0o755, ids)
    if is_open:
        # Last of all: from here on everything in it is the task's to replace.
        task_files.ensure_folder(folder, 0o700, ids)
    return folder


def remove(member: MemberFolder, config: dict[str, Any]) -> bool:
    """Remove the folder; False if some of it may be left."""
    try:
        task_files.remove(folder_of(member, config))
    except OSError:
        return False
    return True


def checkpointed_wall_s(member: MemberFolder, config: dict[str, Any]) -> float | None:
    """When the task last said that it had saved its state; None when it never did.

    A task that writes more than a word into its file finds it empty again, and one that dates it
    ahead has saved its state now. What it put in the file's place says nothing.
    """
    for root in _checkpoint_folders(member, config):
        with contextlib.suppress(OSError):
            return _touched_at(root, _owner(member))
    return None


def takes_too_much(member: MemberFolder, config: dict[str, Any]) -> bool:
    """Whether the checkpoint file takes much more space than it may have.

    A lease of the task (`F_SETLEASE`) keeps a file from being opened, but not from being looked at.
    """
    for root in _checkpoint_folders(member, config):
        with (
            contextlib.suppress(OSError),
            task_files.opened_folder(root) as folder,
            task_files.opened_file(
                folder, CHECKPOINT, owner=_owner(member), flags=os.O_PATH
            ) as file,
        ):
            return task_files.takes_too_much(os.fstat(file), CHECKPOINT_BYTES)
    return False


def _checkpoint_folders(member: MemberFolder, config: dict[str, Any]) -> tuple[str, str]:
    """The second is that of plain processes, and of what an earlier release launched."""
    return member.folder, folder_of(member, config)


def _owner(member: MemberFolder) -> int:
    ids = ids_of((member.read("spec.json") or {}).get("user", ""))
    return ids[0] if ids else os.geteuid()


def _touched_at(root: str, owner: int) -> float | None:
    with (
        task_files.opened_folder(root) as folder,
        task_files.opened_file(folder, CHECKPOINT, owner=owner, flags=os.O_RDWR) as file,
    ):
        if task_files.is_beyond(os.fstat(file), CHECKPOINT_BYTES):
            os.ftruncate(file, 0)
        if os.fstat(file).st_mtime > clocks.wall_s():
            os.utime(file)
        saved_at = os.fstat(file).st_mtime
    return saved_at if saved_at > 0 else None


def ids_of(user: str) -> tuple[int, int] | None:
    """The user and group that files of a task are given to; None where we cannot give any."""
    if not user or os.geteuid() != 0:
        return None
    uid, _, gid = user.partition(":")
    return int(uid), int(gid)


def _base() -> str:
    for path in CANDIDATES:
        if path in _in_memory() and os.access(path, os.W_OK):
            return os.path.join(path, "rpm-%d" % os.geteuid())
    raise OSError("no writable file system in memory at %s" % " or ".join(CANDIDATES))


def _in_memory() -> set[str]:
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as source:
        rows = (line.split() for line in source)
        return {row[1] for row in rows if row[2] in ("tmpfs", "ramfs")}
