"""Makes, verifies, removes and restores backups."""

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from django.conf import settings
from django.db import connection

from apps.core.resealer import bound_note
from rpm.backups import postgres, sqlite
from rpm.backups.archive import part_of, read_archive, write_archive
from rpm.backups.errors import BackupFailed, path_refused
from rpm.backups.keys import StagedKeys, changed_variables, collect
from rpm.backups.manifest import Manifest, check_fits, describe

DATABASES: dict[str, ModuleType] = {"postgresql": postgres, "sqlite": sqlite}
# A database with rows in one of these is in use.
DATA_TABLES = ("accounts_user", "nodes_node", "policies_pool", "tasks_task")
_EVENT = (
    "INSERT INTO events_event (at, kind, object_type, object_id, data) "
    "SELECT CURRENT_TIMESTAMP, 'installation.restored', 'installation', '1',"
)


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What was restored; `warnings` are sentences for the administrator."""

    manifest: Manifest
    keys: tuple[Path, ...]
    # Those of them that replaced another file, which is kept.
    replaced: frozenset[Path]
    warnings: tuple[str, ...]


def backup_make(target: Path, *, passphrase: str = "") -> Manifest:
    """Write database and keys of this installation into one file.

    Raises:
        BackupFailed: with what is missing or failed; no file is left then.
    """
    if not is_folder(target.parent):
        raise BackupFailed(f"There is no folder {target.parent}.")
    if os.path.lexists(target):
        raise BackupFailed(f"{target} exists already: a backup replaces no file. Name another.")
    with _private_folder(target.parent) as name:
        folder = Path(name)
        names = [_database().dump(folder)]
        keys, elsewhere = collect(folder)
        parts = [part_of(folder, name) for name in names + keys]
        manifest = describe(parts, elsewhere=elsewhere)
        write_archive(target, folder, manifest, passphrase=passphrase)
    return manifest


def backup_verify(source: Path, *, passphrase: str = "") -> Manifest:
    """Read a backup to its end, compare every checksum, and say what it holds.

    Raises:
        BackupFailed: it could not be restored by this installation.
    """
    try:
        source.open("rb").close()
    except OSError as error:
        raise path_refused(source, "be read", error) from error
    # A folder of backups may be readable only.
    parent = source.parent if os.access(source.parent, os.W_OK) else settings.HOME.path
    with _private_folder(parent) as name:
        manifest = read_archive(source, Path(name), passphrase=passphrase)
    check_fits(manifest)
    return manifest


def is_folder(path: Path) -> bool:
    """Whether there is such a folder.

    Raises:
        BackupFailed: the account may not look into the folder above it.
    """
    try:
        return path.is_dir()
    except PermissionError as error:
        raise path_refused(path.parent, "be written to", error) from error


def backups_prune(newest: Path, *, keep: int) -> list[Path]:
    """Remove older files next to `newest` whose names differ from its in digits only.

    Args:
        keep: how many stay, the newest included.

    Returns:
        What was removed.
    """
    shape = re.compile(re.sub(r"\d+", r"\\d+", re.escape(newest.name)))
    found = [
        path
        for path in newest.parent.iterdir()
        if shape.fullmatch(path.name) and path.is_file() and not path.is_symlink()
    ]
    found.sort(key=lambda path: (path == newest, path.stat().st_mtime), reverse=True)
    for path in found[keep:]:
        path.unlink()
    return found[keep:]


def backup_restore(
    source: Path, *, passphrase: str = "", is_replacing: bool = False
) -> RestoreResult:
    """Put the content of a backup in place of this installation's, wholly or not at all.

    Nodes may have run tasks since the backup: the database is marked as restored, so that
    nothing on them that it does not know is killed before an administrator confirms it.

    Raises:
        BackupFailed: nothing was changed.
    """
    with _private_folder(settings.HOME.path) as name:
        folder = Path(name)
        manifest = read_archive(source, folder, passphrase=passphrase)
        check_fits(manifest)
        if not is_replacing and not _is_empty():
            raise BackupFailed(
                "The database is in use: --replace throws away what is in it, for good."
            )
        _database().check_alone()
        keys = StagedKeys(folder, manifest)
        replaced = frozenset(keys.replaced())
        try:
            _database().restore(folder, afterwards=_afterwards(manifest))
            placed = keys.put()
            # The next upgrade takes over sealed values of an earlier version in the backup.
            bound_note(is_done=manifest.are_seals_bound)
        finally:
            keys.discard()
    return RestoreResult(manifest, tuple(placed), replaced, tuple(_warnings(manifest)))


def _private_folder(parent: Path) -> "tempfile.TemporaryDirectory[str]":
    """Mode 0700, where there is space for the whole: /tmp is often small."""
    try:
        return tempfile.TemporaryDirectory(prefix=".rpm-backup-", dir=parent)
    except OSError as error:
        raise path_refused(parent, "be written to", error) from error


def _database() -> ModuleType:
    return DATABASES[connection.vendor]


def _is_empty() -> bool:
    with connection.cursor() as cursor:
        there = set(connection.introspection.table_names(cursor))
        for table in DATA_TABLES:
            if table in there:
                cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {table})")  # noqa: S608  # constants
                if cursor.fetchone()[0]:
                    return False
    return True


def _afterwards(manifest: Manifest) -> list[str]:
    """SQL that both databases understand; the values are of this program, not of a user."""
    made_at = manifest.made_at.isoformat()
    event = f'{{"made_at": "{made_at}", "version": "{manifest.version}"}}'
    return [
        # A confirmation in the backup is older than this restore, so it does not count.
        (
            "UPDATE nodes_installation SET restored_at = CURRENT_TIMESTAMP, "
            "restore_confirmed_at = NULL"
        ),
        # The workers that served the nodes when the backup was made are gone.
        "UPDATE nodes_node SET served_by = '', served_until = NULL",
        f"{_EVENT} '{event}' FROM nodes_installation",
    ]


def _warnings(manifest: Manifest) -> list[str]:
    warnings = [
        f"{variable} is not the key of the backup: set the one it was made with."
        for variable in changed_variables(manifest)
    ]
    if manifest.elsewhere:
        paths = ", ".join(manifest.elsewhere)
        warnings.append(f"These keys of nodes are not in the backup: {paths}.")
    if manifest.home != str(settings.HOME.path):
        warnings.append(
            f"The backup was made in {manifest.home}: RPM still looks for keys of nodes there."
        )
    return warnings
