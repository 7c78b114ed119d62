"""Empty databases for processes that a test starts."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql


@pytest.fixture
def database_url(tmp_path: Path) -> Iterator[str]:
    """The address of an empty database of its own, on the server that this run uses.

    For processes which a test starts; a test that works in its own process asks for `db`.
    """
    with empty_database(tmp_path) as url:
        yield url


@contextmanager
def empty_database(folder: Path) -> Iterator[str]:
    """The same for more than one test; SQLite's file is in the folder."""
    cluster = os.environ.get("DATABASE_URL", "")
    if not cluster.startswith("postgresql://"):
        yield f"sqlite:///{folder / 'rpm.sqlite3'}"
        return
    name = f"rpm_{secrets.token_hex(6)}"
    with psycopg.connect(cluster, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield f"{cluster.rsplit('/', 1)[0]}/{name}"
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
