"""Statements that Django compiles once in a process, for requests that programs send in thousands.

Building and compiling a query costs Django several times what the database needs to answer it.
The SQL stays Django's own, from the models and selectors that everything else uses; only the values
are new with each call. PostgreSQL plans such a statement once per connection.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Generic, TypeVar

from django.db import connection
from django.db.models import Expression, Field, Model, QuerySet
from django.db.models.query import get_related_populators
from django.db.models.sql import InsertQuery

Row = TypeVar("Row", bound=Model)
# The stubs are those of another version of Django.
_populators: Callable[..., Any] = get_related_populators


class Parameter(Expression):
    """A value that each call of a `Statement` gives by this name."""

    def __init__(self, name: str, field: "Field[Any, Any]") -> None:
        super().__init__(output_field=field)
        self.name = name

    def as_sql(self, *_: Any, **__: Any) -> tuple[str, tuple[Any, ...]]:
        return "%s", (self,)

    def bind(self, values: Mapping[str, Any]) -> Any:
        return self.output_field.get_db_prep_value(values[self.name], connection)


class Statement(Generic[Row]):
    """A query that is compiled with its first call.

    Args:
        build: makes the query, with a `Parameter` for every value that differs between calls;
            all other values, such as the time, would stay those of the first call.
        lock: how rows are locked, as a clause of SQL; databases without such locks ignore it.
    """

    def __init__(self, build: Callable[[], "QuerySet[Row, Any]"], *, lock: str = "") -> None:
        self._build = build
        self._lock = lock
        self._compiled: tuple[Any, str, tuple[Any, ...]] | None = None

    def rows(self, **values: Any) -> list[tuple[Any, ...]]:
        """The columns that the query selects."""
        return list(self._rows(values)[1])

    def first(self, **values: Any) -> Row | None:
        """The first row as an object, with the related ones that the query selects."""
        compiler, rows = self._rows(values)
        for row in rows:
            info = compiler.klass_info
            start, end = info["select_fields"][0], info["select_fields"][-1] + 1
            names = [column[0].target.attname for column in compiler.select[start:end]]
            found: Row = info["model"].from_db(connection.alias, names, row[start:end])
            for related in _populators(info, compiler.select, connection.alias):
                related.populate(row, found)
            return found
        return None

    def _rows(self, values: Mapping[str, Any]) -> tuple[Any, Iterator[tuple[Any, ...]]]:
        kept, sql, params = self._compiled or self._compile()
        bound = [one.bind(values) if isinstance(one, Parameter) else one for one in params]
        # Converters of columns ask the compiler for the connection of their thread.
        compiler = copy(kept)
        compiler.connection = connection
        return compiler, compiler.results_iter([_execute(sql, bound)], tuple_expected=True)

    def _compile(self) -> tuple[Any, str, tuple[Any, ...]]:
        compiler = self._build().query.get_compiler(connection.alias)
        sql, params = _with_texts(*compiler.as_sql())
        if self._lock and connection.features.has_select_for_update:
            sql += f" {self._lock}"
        self._compiled = compiler, sql, params
        return self._compiled


def _with_texts(sql: str, params: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """The SQL with its constant texts, such as states, in it.

    A plan for any value cannot use an index of the rows with one value.
    """
    quote = getattr(connection, "literal", None)
    if quote is None:
        return sql, tuple(params)
    texts = [quote(str(one)).replace("%", "%%") if isinstance(one, str) else "%s" for one in params]
    kept = tuple(one for one in params if not isinstance(one, str))
    return sql.replace("%%", "%%%%") % tuple(texts), kept


_inserts: dict[type[Model], tuple[str, "list[Field[Any, Any]]"]] = {}


def row_insert(row: Model) -> None:
    """Store a new row, without signals; a key that the database makes does not come back."""
    sql, fields = _inserts.get(type(row)) or _insert_compile(row)
    _execute(sql, [one.get_db_prep_save(one.pre_save(row, add=True), connection) for one in fields])
    row._state.adding, row._state.db = False, connection.alias


def _insert_compile(row: Model) -> tuple[str, "list[Field[Any, Any]]"]:
    model = type(row)
    fields = [one for one in model._meta.local_concrete_fields if one is not model._meta.auto_field]
    query = InsertQuery(model)
    query.insert_values(fields, [row])
    [(sql, params)] = query.get_compiler(connection.alias).as_sql()
    if len(params) != len(fields):
        raise ValueError(f"{model.__name__} has a field whose value is an expression")
    _inserts[model] = sql, fields
    return _inserts[model]


def _execute(sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
    open_cursor = getattr(connection, "prepared_cursor", connection.cursor)
    with open_cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []
