"""SQLite by its own backup interface: a consistent copy out, and one transaction in."""

import sqlite3
from contextlib import closing
from pathlib import Path

from django.db import connection

from rpm.backups.errors import BackupFailed

NAME = "database.sqlite3"


def dump(folder: Path) -> str:
    """Write one consistent state of the database; the answer is the part's name."""
    with (
        closing(sqlite3.connect(_path(), timeout=20)) as source,
        closing(sqlite3.connect(folder / NAME)) as target,
    ):
        source.backup(target)
    return NAME


def check_alone() -> None:
    """Raises BackupFailed while other processes have the database open."""
    connection.close()
    with closing(sqlite3.connect(_path(), timeout=2, isolation_level=None)) as alone:
        try:
            _lock(alone)
        except sqlite3.OperationalError as error:
            words = "Other processes use the database: stop web, workers and beat first."
            raise BackupFailed(words) from error


def restore(folder: Path, *, afterwards: list[str]) -> None:
    """Put the copy in place of everything in the database, changed by the statements, or do
    nothing.
    """
    connection.close()
    with (
        closing(sqlite3.connect(folder / NAME)) as source,
        closing(sqlite3.connect(_path(), timeout=20)) as target,
    ):
        damage = source.execute("PRAGMA integrity_check").fetchone()[0]
        if damage != "ok":
            raise BackupFailed(f"The copy in the backup is damaged: {damage}.")
        try:
            for statement in afterwards:
                source.execute(statement)
            source.commit()
            # All pages in one transaction of the target: if it is killed, the old content stays.
            source.backup(target)
        except sqlite3.Error as error:
            raise BackupFailed(f"The database is as it was before: {error}.") from error


def _lock(database: sqlite3.Connection) -> None:
    """Whether no other process has it open: in WAL mode that needs exclusive mode and a read."""
    database.execute("PRAGMA locking_mode=EXCLUSIVE")
    database.execute("BEGIN EXCLUSIVE")
    database.execute("ROLLBACK")


def _path() -> str:
    return str(connection.settings_dict["NAME"])
