"""An owner of the database who tampers with it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

Tampering = Callable[[str], None]

TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name LIKE 'events_%'"


@contextmanager
def without_triggers() -> Iterator[None]:
    """As a superuser who switches off what guards the tables."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET session_replication_role = replica")
            yield
            cursor.execute("SET session_replication_role = DEFAULT")
        else:
            known = cursor.execute(TRIGGERS).fetchall()
            for name, _ in known:
                cursor.execute(f"DROP TRIGGER {name}")
            yield
            for _, sql in known:
                cursor.execute(sql)


@pytest.fixture
def tamper() -> Tampering:
    """Run a statement as an owner of the database could."""

    def run(statement: str) -> None:
        with without_triggers(), connection.cursor() as cursor:
            cursor.execute(statement)

    return run
