"""Rows that are made, or added to where they exist, in one statement for many of them."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from django.db import connection
from django.db.models import Model

ROWS_AT_ONCE = 200


def rows_add(
    table: type[Model],
    rows: Iterable[Sequence[Any]],
    *,
    key: Sequence[str],
    added: Sequence[str] = (),
    highest: Sequence[str] = (),
    condition: str = "",
) -> None:
    """Insert rows; of those whose key exists, add some fields and keep the higher of others.

    Runs that work on the same rows at once never deadlock if they are sorted by key.

    Args:
        rows: values in the order of `key`, `added` and `highest`; no key twice.
        key: the fields of a unique constraint.
        added: fields of whole numbers.
        highest: fields where an empty value is lower than all others.
        condition: that of the constraint, as SQL.
    """
    by_name = {field.name: field for field in table._meta.local_concrete_fields}
    fields = [by_name[name] for name in (*key, *added, *highest)]
    statement = _statement(table, fields, len(key), len(added), condition)
    first, last = len(key), len(key) + len(added)
    before, after = ("%s, " * len(key), ", %s" * len(highest))
    others = [*fields[:first], *fields[last:]]
    waiting = iter(rows)
    while part := list(islice(waiting, ROWS_AT_ONCE)):
        # Numbers are written into the statement: as parameters they take most of the time.
        rows_sql = [f"({before}{', '.join(map(_number, row[first:last]))}{after})" for row in part]
        values = [
            field.get_db_prep_save(value, connection)
            for row in part
            for field, value in zip(others, (*row[:first], *row[last:]), strict=True)
        ]
        with connection.cursor() as cursor:
            cursor.execute(statement.format(rows=", ".join(rows_sql)), values)


def _number(value: int) -> str:
    return str(int(value))


def _statement(
    table: type[Model], fields: Sequence[Any], keys: int, added: int, condition: str
) -> str:
    name = connection.ops.quote_name(table._meta.db_table)
    columns = [str(field.column) for field in fields]
    greatest = "MAX" if connection.vendor == "sqlite" else "GREATEST"
    changes = [f"{one} = {name}.{one} + excluded.{one}" for one in columns[keys : keys + added]]
    changes += [
        # SQLite's MAX of an empty value is empty.
        f"{one} = COALESCE({greatest}({name}.{one}, excluded.{one}), {name}.{one}, excluded.{one})"
        for one in columns[keys + added :]
    ]
    where = f" WHERE {condition}" if condition else ""
    return (
        f"INSERT INTO {name} ({', '.join(columns)}) "  # noqa: S608  # names of our models
        f"VALUES {{rows}} ON CONFLICT ({', '.join(columns[:keys])}){where} "
        f"DO UPDATE SET {', '.join(changes)}"
    )
