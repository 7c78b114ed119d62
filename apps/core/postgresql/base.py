"""Django's backend for PostgreSQL, with connections that do not wait for ever.

The server ends a statement that takes too long (`statement_timeout`), and the kernel a connection
whose other end is gone (keepalives). What remains is a server or a network device that accepts
data and never answers: psycopg waits for it without a bound.
"""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, TypeVar

import psycopg
import psycopg.sql
from django.db.backends.postgresql import base, operations
from django.db.backends.utils import CursorWrapper
from psycopg.abc import Buffer, PQGen
from psycopg.errors import IdleInTransactionSessionTimeout, _WaitTimeout
from psycopg.types.datetime import TimestamptzLoader

T = TypeVar("T")


class MomentLoader(TimestamptzLoader):
    """Reads what the server writes of a moment with the parser of `datetime` itself.

    That of psycopg is Python where Django extends it, and was a third of the time of large pages.
    """

    # Django replaces loaders of another time zone than the connection's.
    timezone = UTC

    def load(self, data: Buffer) -> datetime:
        try:
            return datetime.fromisoformat(str(data, "ascii"))
        except ValueError:
            # Infinity and years before Christ, for which psycopg has its errors.
            return super().load(data)


class BoundedConnection(psycopg.Connection[Any]):
    """Gives up, and closes itself, where no answer comes for `silent_most_s`."""

    silent_most_s: float | None = None

    @classmethod
    def connect(  # type: ignore[override]  # psycopg takes any keyword
        cls, conninfo: str = "", *, silent_most_s: float | None = None, **options: Any
    ) -> "BoundedConnection":
        made = super().connect(conninfo, **options)
        made.silent_most_s = silent_most_s
        made.adapters.register_loader("timestamptz", MomentLoader)
        return made

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        try:
            return super().wait(gen, interval, timeout or self.silent_most_s)
        except _WaitTimeout as error:
            if timeout is not None:
                raise
            # Its response may still arrive, and would be read as that of the next statement.
            self.pgconn.finish()
            raise psycopg.OperationalError(
                f"the database has not answered for {self.silent_most_s:.0f} s"
            ) from error
        except IdleInTransactionSessionTimeout as error:
            # An internal error to psycopg: to callers the connection is gone like any other.
            raise psycopg.OperationalError(str(error)) from error


class DatabaseOperations(operations.DatabaseOperations):
    def last_executed_query(self, cursor: Any, sql: str, params: Any) -> str:
        """For logs of queries: of a prepared statement psycopg keeps only its name."""
        found: str | None = super().last_executed_query(cursor, sql, params)
        return found or sql


class DatabaseWrapper(base.DatabaseWrapper):
    ops_class = DatabaseOperations
    # Django makes its connections by `Database.connect`, and finds classes of errors there.
    Database = SimpleNamespace(  # type: ignore[assignment]  # as a module
        **vars(psycopg) | {"connect": BoundedConnection.connect}
    )

    def __init__(self, settings_dict: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(settings_dict, *args, **kwargs)
        if settings_dict["OPTIONS"].get("pool"):
            settings_dict["OPTIONS"]["pool"]["connection_class"] = BoundedConnection

    def literal(self, value: str) -> str:
        """The text as a constant of SQL."""
        self.ensure_connection()
        return psycopg.sql.Literal(value).as_string(self.connection)

    def prepared_cursor(self) -> CursorWrapper:
        """A cursor whose statements the server plans once per connection.

        Django's own cursors write the values into the SQL, so that every statement is a new one.
        """
        self.close_if_health_check_failed()
        self.ensure_connection()
        with self.wrap_database_errors:
            self.connection.prepare_threshold = 0
            found: CursorWrapper = self._prepare_cursor(psycopg.Cursor(self.connection))  # type: ignore[attr-defined]  # not in the stubs
            return found
