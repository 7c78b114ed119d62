"""Direct queries to the database of an installation, without the product."""

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

# One value, for a statement and what stands for each `%s` in it.
Ask = Callable[..., Any]


@contextmanager
def asking(url: str) -> Iterator[Ask]:
    """PostgreSQL or SQLite; the values are ids."""
    if url.startswith("postgresql://"):
        with psycopg.connect(url, autocommit=True) as session:

            def ask(statement: str, *ids: str) -> Any:
                cursor = session.execute(statement.encode(), ids)
                row = cursor.fetchone() if cursor.description else None
                return row[0] if row else None

            yield ask
        return
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as session_of_file:

        def ask_file(statement: str, *ids: str) -> Any:
            # SQLite keeps ids without dashes.
            values = [uuid.UUID(one).hex for one in ids]
            row = session_of_file.execute(statement.replace("%s", "?"), values).fetchone()
            return row[0] if row else None

        yield ask_file
