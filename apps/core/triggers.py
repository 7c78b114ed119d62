"""Triggers that enforce rules in the database itself, for every client.

They are created again after every `migrate`: SQLite drops a table's triggers whenever a migration
rebuilds the table, and rules that live in code stay the only source.
"""

from collections.abc import Mapping, Sequence

from django.db.backends.base.base import BaseDatabaseWrapper


def refuse_updates(
    connection: BaseDatabaseWrapper, *, table: str, columns: Sequence[str], when: str, message: str
) -> None:
    """Refuse every UPDATE of `columns` for which the SQL condition `when` holds.

    Args:
        when: over OLD and NEW; made from constants of the code only.
        message: what the database answers.
    """
    name = f"{table}_guard"
    of = ", ".join(columns)
    if connection.vendor == "postgresql":
        statements = [
            (
                f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ "
                f"BEGIN RAISE EXCEPTION '{message}' USING ERRCODE = 'check_violation'; END $$"
            ),
            (
                f"CREATE OR REPLACE TRIGGER {name} BEFORE UPDATE OF {of} ON {table} "
                f"FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION {name}()"
            ),
        ]
    else:
        statements = [
            f"DROP TRIGGER IF EXISTS {name}",
            (
                f"CREATE TRIGGER {name} BEFORE UPDATE OF {of} ON {table} FOR EACH ROW WHEN {when} "
                f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
            ),
        ]
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def edges_condition(edges: Mapping[str, frozenset[str]]) -> str:
    """The SQL condition of an edge that the table `edges` does not list."""
    pairs = ", ".join(f"'{a}>{b}'" for a in sorted(edges) for b in sorted(edges[a]))
    return f"OLD.state <> NEW.state AND (OLD.state || '>' || NEW.state) NOT IN ({pairs})"


def refuse_row_changes(
    connection: BaseDatabaseWrapper,
    *,
    table: str,
    columns: Sequence[str],
    sealed: str,
    message: str,
) -> None:
    """Let rows of a table be added and sealed once, and nothing else ever happen to them.

    Args:
        columns: all columns but those that sealing fills.
        sealed: the column that is NULL until a row is sealed; no row is born with it.
        message: what the database answers.
    """
    differs = "IS DISTINCT FROM" if connection.vendor == "postgresql" else "IS NOT"
    changed = " OR ".join(f"OLD.{column} {differs} NEW.{column}" for column in columns)
    added = f"NEW.{sealed} IS NOT NULL"
    update = f"OLD.{sealed} IS NOT NULL OR NEW.{sealed} IS NULL OR {changed}"
    if connection.vendor == "sqlite":
        added += f" OR {_exists(table, 'id')}"
        update += f" OR {_exists(table, sealed)}"
    events = {
        f"INSERT ON {table}": added,
        f"UPDATE ON {table}": update,
        f"DELETE ON {table}": "",
    }
    _refuse(connection, table=table, events=events, message=message)


def refuse_decreases(
    connection: BaseDatabaseWrapper, *, table: str, column: str, message: str
) -> None:
    """Refuse to lower a number or to remove its row."""
    events = {
        f"UPDATE ON {table}": f"NEW.{column} < OLD.{column}",
        f"DELETE ON {table}": "",
    }
    if connection.vendor == "sqlite":
        events[f"INSERT ON {table}"] = _exists(table, "id")
    _refuse(connection, table=table, events=events, message=message)


def _exists(table: str, column: str) -> str:
    """A row has this value already: SQLite's REPLACE removes it, and fires no trigger for that."""
    return f"EXISTS (SELECT 1 FROM {table} WHERE {column} = NEW.{column})"  # noqa: S608  # ours


def _refuse(
    connection: BaseDatabaseWrapper, *, table: str, events: Mapping[str, str], message: str
) -> None:
    """Refuse what happens to a row (all of it, or where the condition holds), and TRUNCATE."""
    is_postgres = connection.vendor == "postgresql"
    statements = []
    if is_postgres:
        statements = [
            (
                f"CREATE OR REPLACE FUNCTION {table}_keep() RETURNS trigger LANGUAGE plpgsql AS $$ "
                f"BEGIN RAISE EXCEPTION '{message}' USING ERRCODE = 'check_violation'; END $$"
            ),
            (
                f"CREATE OR REPLACE TRIGGER {table}_keep_truncate BEFORE TRUNCATE ON {table} "
                f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_keep()"
            ),
        ]
    for event, condition in events.items():
        name = f"{table}_keep_{event.split()[0].lower()}"
        if is_postgres:
            when = f"WHEN ({condition}) " if condition else ""
            statements.append(
                f"CREATE OR REPLACE TRIGGER {name} BEFORE {event} "
                f"FOR EACH ROW {when}EXECUTE FUNCTION {table}_keep()"
            )
        else:
            when = f"WHEN {condition} " if condition else ""
            statements += [
                f"DROP TRIGGER IF EXISTS {name}",
                (
                    f"CREATE TRIGGER {name} BEFORE {event} FOR EACH ROW {when}"
                    f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
                ),
            ]
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
