"""The file of a backup: a tar archive with the manifest first, sealed where a passphrase is given.

It is written under a temporary name and renamed, so that a file with its name is always whole.
"""

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path
from typing import IO, BinaryIO, cast

from msgspec import json

from rpm.backups.errors import BackupFailed, path_refused
from rpm.backups.manifest import (
    MANIFEST,
    MANIFEST_BYTES,
    BackupPart,
    Manifest,
    path_below,
    read_manifest,
)
from rpm.backups.sealed_streams import SealingWriter, UnsealingReader, is_sealed

BLOCK_BYTES = 1024 * 1024


def part_of(folder: Path, name: str) -> BackupPart:
    """What the manifest says of the file `name` below `folder`."""
    path = folder / name
    with path.open("rb") as content:
        digest = file_digest(content, "sha256").hexdigest()
    return BackupPart(name, path.stat().st_size, digest)


def write_archive(target: Path, folder: Path, manifest: Manifest, *, passphrase: str) -> None:
    """Put the manifest and its parts, found below `folder`, into one file of mode 0600.

    Raises:
        BackupFailed: the file cannot be written.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as plain:
            with _seal_stream(plain, passphrase) as stream:
                _write(stream, folder, manifest)
            plain.flush()
            os.fsync(plain.fileno())
        temporary.rename(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise path_refused(target, "be written", error) from error
    finally:
        temporary.unlink(missing_ok=True)


def read_archive(source: Path, folder: Path, *, passphrase: str) -> Manifest:
    """Unpack into `folder`, which must be empty and private, and compare every checksum.

    Raises:
        BackupFailed: it is no backup, not a whole one, or not unlocked by the passphrase.
    """
    try:
        with source.open("rb") as plain, _open_source(plain, passphrase) as stream:
            return _read(stream, folder)
    except OSError as error:
        raise path_refused(source, "be read", error) from error
    except (tarfile.TarError, EOFError) as error:
        raise BackupFailed(f"{source} is no backup, or not a whole one: {error}.") from error


@contextmanager
def _seal_stream(plain: BinaryIO, passphrase: str) -> Iterator[BinaryIO]:
    if not passphrase:
        yield plain
        return
    writer = SealingWriter(plain, passphrase)
    yield cast(BinaryIO, writer)
    # Not after a failure: a cut archive must not look like a whole one.
    writer.close()


@contextmanager
def _open_source(plain: BinaryIO, passphrase: str) -> Iterator[BinaryIO]:
    if not is_sealed(plain):
        yield plain
        return
    if not passphrase:
        raise BackupFailed("The backup is sealed: name the file of its passphrase.")
    reader = UnsealingReader(plain, passphrase)
    yield cast(BinaryIO, io.BufferedReader(reader, BLOCK_BYTES))


def _write(stream: BinaryIO, folder: Path, manifest: Manifest) -> None:
    with tarfile.open(mode="w|", fileobj=stream, format=tarfile.PAX_FORMAT) as archive:
        content = json.encode(manifest)
        archive.addfile(_entry(MANIFEST, len(content)), io.BytesIO(content))
        for part in manifest.parts:
            with (folder / part.name).open("rb") as source:
                archive.addfile(_entry(part.name, part.size), source)


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry


def _read(stream: BinaryIO, folder: Path) -> Manifest:
    counted = _Counted(stream)
    with tarfile.open(mode="r|", fileobj=cast(BinaryIO, counted)) as archive:
        manifest = read_manifest(_content(archive, MANIFEST).read(MANIFEST_BYTES))
        for part in manifest.parts:
            _unpack(archive, part, folder)
        # Where the last part ends, with the end of an archive behind it, in whole records.
        wanted = -(-(archive.offset + 2 * tarfile.BLOCKSIZE) // tarfile.RECORDSIZE)
    # To the end: behind the last part a cut or changed stream would go unseen.
    while counted.read(BLOCK_BYTES):
        pass
    if counted.bytes_read != wanted * tarfile.RECORDSIZE:
        raise BackupFailed("The backup is cut, or data follows its end.")
    return manifest


class _Counted:
    """Counts what is read of a stream."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.bytes_read = 0

    def read(self, size: int) -> bytes:
        content = self._stream.read(size)
        self.bytes_read += len(content)
        return content


def _unpack(archive: tarfile.TarFile, part: BackupPart, folder: Path) -> None:
    target = path_below(folder, part.name)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = _content(archive, part.name)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        while block := content.read(BLOCK_BYTES):
            file.write(block)
    if part_of(folder, part.name) != part:
        raise BackupFailed(f"The checksum of {part.name} in the backup is wrong.")


def _content(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """The content of the next file, which must be this one."""
    entry = archive.next()
    content = None
    if entry is not None and entry.name == name:
        content = archive.extractfile(entry)
    if content is None:
        raise BackupFailed(f"This is no backup of RPM: {name} is not where it should be.")
    return content


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems know no such thing.
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
