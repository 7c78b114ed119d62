"""Emptying the database between tests, although it guards some of its tables.

Only a superuser (PostgreSQL) or the owner of the file (SQLite) can do so; the product has no such
function. `flush` creates the guards again, as every `migrate` does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from django.db.backends.base.operations import BaseDatabaseOperations

GUARDS = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE '%_keep_%'"
_flush = BaseDatabaseOperations.execute_sql_flush


def _flush_guarded(operations: Any, statements: list[str]) -> None:
    with _off_guard(operations.connection):
        _flush(operations, statements)


@contextmanager
def _off_guard(connection: Any) -> Iterator[None]:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET session_replication_role = replica")
        else:
            for (name,) in cursor.execute(GUARDS).fetchall():
                cursor.execute(f"DROP TRIGGER {name}")
        yield
        if connection.vendor == "postgresql":
            cursor.execute("SET session_replication_role = DEFAULT")


@pytest.fixture(autouse=True, scope="session")
def flush_guarded_tables() -> Iterator[None]:
    """For every test that commits."""
    with mock.patch.object(BaseDatabaseOperations, "execute_sql_flush", _flush_guarded):
        yield
