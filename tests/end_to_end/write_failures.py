"""Unexpected errors in the middle of work: the database refuses a write."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg

# The end of every traceback of such an error.
WORDS = "broken for a test"
_POSTGRES = (
    (
        "CREATE OR REPLACE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{WORDS}'; END $$"
    ),
    (
        "CREATE TRIGGER broken BEFORE {event} ON {table} FOR EACH ROW WHEN ({when}) "
        "EXECUTE FUNCTION broken()"
    ),
)
_SQLITE = (
    (
        "CREATE TRIGGER broken BEFORE {event} ON {table} FOR EACH ROW WHEN {when} "
        f"BEGIN SELECT RAISE(ABORT, '{WORDS}'); END"
    ),
)


@contextmanager
def refused_writes(
    url: str, table: str, *, event: str = "INSERT", when: str = "1 = 1"
) -> Iterator[None]:
    """Inside the block, each such write to the table fails."""
    is_postgres = url.startswith("postgresql://")
    for statement in _POSTGRES if is_postgres else _SQLITE:
        _do(url, statement.format(event=event, table=table, when=when))
    try:
        yield
    finally:
        _do(url, f"DROP TRIGGER broken ON {table}" if is_postgres else "DROP TRIGGER broken")


def _do(url: str, statement: str) -> None:
    if url.startswith("postgresql://"):
        with psycopg.connect(url, autocommit=True) as session:
            session.execute(statement.encode())
        return
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as file:
        file.execute(statement)
