"""Files to and from a running task, as tar archives. What a task sends is not trusted.

Nothing of an archive is written outside of its target, nor through a link below it; devices and
other special files are refused, by `tarfile.data_filter` and the checks here.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import tarfile
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

# Of a whole path; systems take 4,096.
PATH_BYTES = 3500
# Names and other words of one member, which tarfile reads into memory.
HEADER_BYTES = 64 * 1024
MOST_LINKS = 100_000


class UnsafeArchive(Exception):
    """The task sent what is not written to this machine."""


class _Member(tarfile.TarInfo):
    """Refuses headers that take memory without a bound, and maps of sparse files."""

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        headers = (
            tarfile.GNUTYPE_LONGNAME,
            tarfile.GNUTYPE_LONGLINK,
            tarfile.XHDTYPE,
            tarfile.XGLTYPE,
            tarfile.SOLARIS_XHDTYPE,
        )
        if self.type in headers and self.size > HEADER_BYTES:
            raise UnsafeArchive(f"a header of {self.size} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise UnsafeArchive("a sparse file")
        return super()._proc_member(archive)  # type: ignore[misc]  # not in its stubs

    def _no_sparse(self, *_: Any) -> None:
        raise UnsafeArchive("a sparse file")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _no_sparse


class PartsFile(io.RawIOBase):
    """Reads what an iterator yields."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._left = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while len(self._left) < size or size < 0:
            part = next(self._parts, b"")
            if not part:
                break
            self._left += part
        content, self._left = self._left[:size], self._left[size:]
        return content


def part_name() -> str:
    """The name of a file that is not whole yet; no other file has it."""
    return f".rpmctl-{secrets.token_hex(8)}"


def has_filter() -> bool:
    """Whether this Python refuses what an archive must not do."""
    return hasattr(tarfile, "data_filter")


def unpack(source: PartsFile, name: str, target: str) -> None:
    """Write the archive of one file or folder, by the rules of `docker cp`.

    Args:
        name: of its first member, below which all others are; `.` is the content of a folder.
        target: a folder, into which it comes, or the path that it gets.

    Raises:
        UnsafeArchive: nothing of what it names is written.
        OSError: it cannot be written here.
        tarfile.TarError: it is no archive, or it was cut.
    """
    with tarfile.open(fileobj=source, mode="r|", tarinfo=_Member) as archive:
        first = archive.next()
        if first is None:
            return
        place = _Place(archive, first, name, target)
        member: tarfile.TarInfo | None = first
        while member is not None:
            place.write(member)
            # tarfile remembers them all.
            archive.members = []  # type: ignore[attr-defined]  # not in its stubs
            member = archive.next()
        place.write_links()


class _Place:
    """Where the members of an archive go."""

    def __init__(
        self, archive: tarfile.TarFile, first: tarfile.TarInfo, name: str, target: str
    ) -> None:
        self._archive = archive
        self._name = name
        self._links: list[tarfile.TarInfo] = []
        is_folder = first.isdir()
        root = target
        if os.path.isdir(target) and name != ".":
            root = os.path.join(target, name)
        elif not is_folder and target.endswith("/"):
            raise NotADirectoryError(f"{target} is no folder.")
        self._file = "" if is_folder else os.path.basename(root)
        folder = root if is_folder else os.path.dirname(root) or "."
        if is_folder:
            os.makedirs(folder, exist_ok=True)
        self._root = os.path.realpath(folder)

    def write(self, member: tarfile.TarInfo) -> None:
        """Files and folders at once, symbolic links at the end: nothing is written through them."""
        member.name = self._own_name(member.name)
        if not member.name:
            return
        if member.islnk():
            member.linkname = self._own_name(member.linkname)
        if not (member.isreg() or member.isdir() or member.islnk() or member.issym()):
            raise UnsafeArchive(f"{member.name} is a special file")
        if member.issym():
            self._check_link(member)
            self._links.append(member)
            return
        self._extract(member)

    def write_links(self) -> None:
        for member in self._links:
            self._extract(member)

    def _own_name(self, name: str) -> str:
        """The name below the root; empty for the root itself."""
        parts = PurePosixPath(name).parts
        if ".." in parts or name.startswith("/") or "\0" in name:
            raise UnsafeArchive(f"{name} is outside of what was asked for")
        expected = PurePosixPath(self._name).parts
        if parts[: len(expected)] != expected:
            raise UnsafeArchive(f"{name} is not what was asked for")
        below = parts[len(expected) :]
        if self._file:
            if below:
                raise UnsafeArchive(f"{name} is not what was asked for")
            return self._file
        return "/".join(below)

    def _check_link(self, member: tarfile.TarInfo) -> None:
        """A link stays below the root: it goes up first, and not further than there."""
        parts = PurePosixPath(member.linkname).parts
        up = 0
        while up < len(parts) and parts[up] == "..":
            up += 1
        depth = len(PurePosixPath(member.name).parts) - 1
        if member.linkname.startswith("/") or up > depth or ".." in parts[up:]:
            raise UnsafeArchive(f"{member.name} links to {member.linkname}, outside of the copy")
        if len(self._links) >= MOST_LINKS:
            raise UnsafeArchive(f"more than {MOST_LINKS} links")

    def _extract(self, member: tarfile.TarInfo) -> None:
        for name in (member.name, *([member.linkname] if member.islnk() else [])):
            self._check_path(name)
        # With the words of the filter, where it refuses.
        if member.isdir():
            self._archive.extract(member, self._root, filter="data")
            return
        # Neither through a link of before, nor into a file that has other names; and whole.
        name = os.path.join(os.path.dirname(member.name), part_name())
        part = os.path.join(self._root, name)
        try:
            self._archive.extract(member.replace(name=name, deep=False), self._root, filter="data")
            os.replace(part, os.path.join(self._root, member.name))
        finally:
            # Two names of one file do not replace one another: then it is still there.
            with contextlib.suppress(OSError):
                os.unlink(part)

    def _check_path(self, name: str) -> None:
        path = os.path.join(self._root, name)
        if len(os.fsencode(path)) > PATH_BYTES:
            raise UnsafeArchive(f"a path of more than {PATH_BYTES} bytes")
        folder = os.path.dirname(path)
        if os.path.realpath(folder) != folder or (os.path.islink(path) and os.path.isdir(path)):
            raise UnsafeArchive(f"{name} is behind a link")


def pack(folder: str, write: Callable[[bytes], None]) -> None:
    """The content of a folder; special files are left out, and owners stay here."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        is_kept = member.isreg() or member.isdir() or member.issym() or member.islnk()
        return member if is_kept else None

    with tarfile.open(fileobj=_Writer(write), mode="w|", format=tarfile.GNU_FORMAT) as archive:
        archive.add(folder, ".", filter=plain)


class _Writer(io.RawIOBase):
    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._write(bytes(content))
        return len(content)
