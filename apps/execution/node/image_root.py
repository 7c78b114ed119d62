"""Looks at the file system of an image before podman does, which trusts it.

podman 4 joins a path of an image to its root as text, and is root of the node: a link in the image
leads to the node's own files, and a working directory is made there and given to the task's user.
It also reads the image's user names while it holds a lock, and waits for ever for a pipe. So podman
gets a working directory that is there and has no link in it, and only images whose user names are
in plain files. docker resolves such paths within the root of the container.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Any, Iterator, NamedTuple

from apps.execution.node import request_fields
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.images import LocalImage
from apps.execution.node.runtimes import run_tool
from apps.execution.node.specs import Spec

# podman reads them as a whole.
ACCOUNT_FILES = ("/etc/passwd", "/etc/group")
ACCOUNT_BYTES = 4 * 1024 * 1024
# The kernel's own bounds: links on a path, and its length with what they add.
MOST_LINKS = 40
PATH_CHARS = 4096
_PASSED = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ImagePath(NamedTuple):
    """What a path of an image leads to: its path without links, and what it is.

    `mode` is 0 where the runtime mounts a volume.
    """

    path: str
    mode: int
    size: int


def working_dir_in(image: LocalImage, spec: Spec, config: dict[str, Any]) -> str:
    """Where the task starts, as a path without links, in an image that podman may start.

    Raises:
        RequestRefusal: podman may not start it.
    """
    field = "working_dir" if spec.working_dir else "WORKDIR"
    wanted = spec.working_dir or image.working_dir or "/"
    # podman without root mounts no image, and has no more rights than the node's account.
    if os.geteuid() != 0:
        return wanted
    with _mounted(image.image_id, config) as root:
        for path in request_fields.KERNELS_OWN:
            _check_folder(root, path)
        for path in ACCOUNT_FILES:
            _check_account_file(root, path)
        found = find(root, wanted, tuple(volume.target for volume in spec.volumes))
    if found is None or not (found.mode == 0 or stat.S_ISDIR(found.mode)):
        raise request_fields.refuse(field, "%.80r is no folder of the image" % wanted)
    # Checked again, for a link can lead to the kernel's folders.
    return request_fields.working_dir({field: found.path}, field)


def find(root: int, path: str, volumes: tuple[str, ...] = ()) -> ImagePath | None:
    """What a path leads to in the image at an open folder; None: to nothing.

    Raises:
        RequestRefusal: it cannot be followed to its end, as podman might by rules of its own.
    """
    walk = _Walk(root)
    try:
        return walk.find(path, volumes)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        raise request_fields.refuse(path, "cannot be followed in the image") from None
    finally:
        os.close(walk.folder)


class _Walk:
    """Goes from folder to folder of an image, and reads links instead of following them.

    What is in an image does not change, so `..` leads back to where it came from.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self.folder = os.open(".", _PASSED, dir_fd=root)
        self.status = os.fstat(self.folder)
        self.done: list[str] = []
        self.todo: list[str] = []
        self.links = 0

    def find(self, path: str, volumes: tuple[str, ...]) -> ImagePath | None:
        self.todo = _parts(path)
        for _ in range(PATH_CHARS):
            if not self.todo:
                return ImagePath(_joined(self.done), self.status.st_mode, self.status.st_size)
            path = _joined([*self.done, *self.todo])
            is_plain = ".." not in self.todo
            if is_plain and any(_is_below(path, volume) for volume in volumes):
                return ImagePath(path, 0, 0)
            try:
                self._step(self.todo.pop(0))
            except FileNotFoundError:
                # The runtime makes the folders around a volume.
                is_around = is_plain and any(_is_below(volume, path) for volume in volumes)
                return ImagePath(path, 0, 0) if is_around else None
        raise OSError("a path of too many parts")

    def _step(self, name: str) -> None:
        if name == "..":
            self._leave()
        else:
            self._enter(name)

    def _leave(self) -> None:
        # The root is its own parent.
        if self.done:
            self.done.pop()
            self._replace(os.open("..", _PASSED, dir_fd=self.folder))

    def _enter(self, name: str) -> None:
        status = os.stat(name, dir_fd=self.folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            self._follow(os.readlink(name, dir_fd=self.folder))
            return
        if self.todo or stat.S_ISDIR(status.st_mode):
            self._replace(os.open(name, _PASSED, dir_fd=self.folder))
        self.done.append(name)
        self.status = status

    def _follow(self, target: str) -> None:
        self.links += 1
        if self.links > MOST_LINKS or len(target) + len(_joined(self.todo)) > PATH_CHARS:
            raise OSError("a circle of links, or a path that is too long")
        if target.startswith("/"):
            self.done = []
            self._replace(os.open(".", _PASSED, dir_fd=self.root))
        self.status = os.fstat(self.folder)
        self.todo = _parts(target) + self.todo

    def _replace(self, folder: int) -> None:
        os.close(self.folder)
        self.folder = folder
        self.status = os.fstat(folder)


def _check_folder(root: int, path: str) -> None:
    """In /dev the runtime makes links, and one in its place it follows out of the root."""
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(path.lstrip("/"), dir_fd=root, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            raise request_fields.refuse(path, "no folder")


def _check_account_file(root: int, path: str) -> None:
    found = find(root, path)
    if found is not None and not stat.S_ISREG(found.mode):
        raise request_fields.refuse(path, "no plain file")
    if found is not None and found.size > ACCOUNT_BYTES:
        raise request_fields.refuse(path, "longer than %d bytes" % ACCOUNT_BYTES)


@contextlib.contextmanager
def _mounted(image_id: str, config: dict[str, Any]) -> Iterator[int]:
    """The image's file system as an open folder, read-only; podman counts who has it mounted."""
    done = run_tool(["podman", "image", "mount", "--", image_id], config)
    if done.returncode != 0:
        raise RequestRefusal("start_failed", done.stderr.decode(errors="replace").strip())
    try:
        root = os.open(os.fsdecode(done.stdout.strip()), _PASSED)
        try:
            yield root
        finally:
            os.close(root)
    finally:
        run_tool(["podman", "image", "umount", "--", image_id], config)


def _is_below(path: str, folder: str) -> bool:
    return ("%s/" % path.rstrip("/")).startswith("%s/" % folder.rstrip("/"))


def _joined(parts: list[str]) -> str:
    return "/" + "/".join(parts)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
