"""Triggers that keep rules in the database itself, whoever writes to it.

They are made anew after every `migrate`: SQLite drops a table's triggers whenever a migration
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
