"""A folder in memory per member, for what only the task may read or what it tells us.

<tmpfs>/rpm-<our uid>/<installation>-<home>/<task>-<generation>-<rank>/
    checkpoint       the task touches it to say that it has saved its state
    secrets/<NAME>   removed with the container; a boot removes what nobody removed
<tmpfs>/rpm-<our uid>/<installation>-<home>/logins/    see logins.py

No secret is ever on a disk, in an argument or in a variable.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from typing import Any

from apps.execution.node.homes import Attempt
from apps.execution.node.specs import Spec

CANDIDATES = ("/run", "/dev/shm")  # noqa: S108  # the folder below is checked to be ours
# A task of another user goes through, and sees nothing else.
PASSABLE = 0o711
CHECKPOINT_BYTES = 64 * 1024


def folder_of(attempt: Attempt, config: dict[str, Any]) -> str:
    """Where this member's private files are.

    Raises:
        OSError: this machine has no file system in memory.
    """
    return os.path.join(place_of(attempt.home, config), "%s-%d-%d" % attempt.identity)


def place_of(home: str, config: dict[str, Any]) -> str:
    """Where the private files of all members of a home are."""
    digest = hashlib.sha256(home.encode()).hexdigest()[:16]
    return os.path.join(_base(), "%s-%s" % (config["installation"], digest))


def ensure_place(home: str, config: dict[str, Any]) -> None:
    """Make the folder around all private files of a home.

    Raises:
        OSError: not possible here.
    """
    place = place_of(home, config)
    _ensure_base(os.path.dirname(place))
    os.makedirs(place, exist_ok=True)
    os.chmod(place, PASSABLE)


def make(
    attempt: Attempt, spec: Spec, config: dict[str, Any], *, secrets: bool, is_open: bool
) -> str:
    """Make the folder, with the task's secrets if `secrets`; its path.

    Args:
        is_open: the task reaches the folder by its path; else its files are mounted one by one,
            and the folder itself is closed to everybody else on the node.

    Raises:
        OSError: not possible here.
    """
    folder = folder_of(attempt, config)
    ensure_place(attempt.home, config)
    shutil.rmtree(folder, ignore_errors=True)
    owner = _Owner(spec.user)
    os.mkdir(folder, 0o700)
    write(os.path.join(folder, "checkpoint"), b"")
    owner.take(os.path.join(folder, "checkpoint"), 0o600, 0o666)
    # Nothing has been saved yet; whatever touches it brings it to the present.
    os.utime(os.path.join(folder, "checkpoint"), (0, 0))
    if secrets and spec.secrets:
        os.mkdir(os.path.join(folder, "secrets"), 0o700)
        for name, value in spec.secrets.items():
            write(os.path.join(folder, "secrets", name), value.encode())
            owner.take(os.path.join(folder, "secrets", name), 0o400, 0o444)
        owner.take(os.path.join(folder, "secrets"), 0o700, 0o755)
    if is_open:
        owner.take(folder, 0o700, 0o700)
    return folder


def remove(attempt: Attempt, config: dict[str, Any]) -> bool:
    """Remove the folder; False if some of it may be left."""
    try:
        shutil.rmtree(folder_of(attempt, config))
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def checkpointed_wall_s(attempt: Attempt, config: dict[str, Any]) -> float | None:
    """When the task last said that it had saved its state; None when it never did.

    A task that writes more than a word into its file finds it empty again.
    """
    try:
        path = os.path.join(folder_of(attempt, config), "checkpoint")
        status = os.stat(path)
        if status.st_size > CHECKPOINT_BYTES:
            os.truncate(path, 0)
    except OSError:
        return None
    return status.st_mtime or None


class _Owner:
    """Gives files to the task's user; where we may not, everybody in reach may read them."""

    def __init__(self, user: str) -> None:
        self.ids: tuple[int, int] | None = None
        if user and os.geteuid() == 0:
            uid, _, gid = user.partition(":")
            self.ids = (int(uid), int(gid))

    def take(self, path: str, mode: int, mode_for_all: int) -> None:
        os.chmod(path, mode if self.ids is not None else mode_for_all)
        if self.ids is not None:
            os.chown(path, *self.ids)


def _base() -> str:
    for path in CANDIDATES:
        if path in _in_memory() and os.access(path, os.W_OK):
            return os.path.join(path, "rpm-%d" % os.geteuid())
    raise OSError("no writable file system in memory at %s" % " or ".join(CANDIDATES))


def _in_memory() -> set[str]:
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as source:
        rows = (line.split() for line in source)
        return {row[1] for row in rows if row[2] in ("tmpfs", "ramfs")}


def _ensure_base(path: str) -> None:
    """Somebody else may have made it in a folder where everybody may."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, PASSABLE)
    status = os.lstat(path)
    if os.path.islink(path) or status.st_uid != os.geteuid():
        raise PermissionError("%s belongs to somebody else" % path)
    os.chmod(path, PASSABLE)


def write(path: str, content: bytes) -> None:
    """A new file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as target:
        target.write(content)
