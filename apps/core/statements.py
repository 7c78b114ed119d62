"""Statements that Django compiles once in a process, for requests that programs send in thousands.

Building and compiling a query costs Django several times what the database needs to answer it.
The SQL stays Django's own, from the models and selectors that everything else uses; only the values
are new with each call. PostgreSQL plans such a statement once per connection.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
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

    def bind(self, values: Mapping[str, Any], here: BaseDatabaseWrapper) -> Any:
        return self.output_field.get_db_prep_value(values[self.name], here)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A compiled query, and how its rows become values and objects."""

    compiler: Any
    sql: str
    params: tuple[Any, ...]
    converters: dict[int, Any]
    # The columns of the object itself, and what fills in those of related ones.
    start: int
    names: tuple[str, ...]
    populators: Sequence[Any]

    def rows(self, values: Mapping[str, Any]) -> Iterable[Sequence[Any]]:
        here = _connection()
        bound = [
            one.bind(values, here) if isinstance(one, Parameter) else one for one in self.params
        ]
        found = _execute(here, self.sql, bound)
        if not self.converters:
            return found
        # Converters get the connection of the compiler, which belongs to one thread.
        compiler = copy(self.compiler)
        compiler.connection = here
        converted: Iterable[Sequence[Any]] = compiler.apply_converters(found, self.converters)
        return converted


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
        self._compiled: _Compiled | None = None

    def rows(self, **values: Any) -> list[tuple[Any, ...]]:
        """The columns that the query selects."""
        return [tuple(row) for row in (self._compiled or self._compile()).rows(values)]

    def first(self, **values: Any) -> Row | None:
        """The first row as an object, with the related ones that the query selects."""
        known = self._compiled or self._compile()
        for row in known.rows(values):
            model: type[Row] = known.compiler.klass_info["model"]
            own = row[known.start : known.start + len(known.names)]
            found = model.from_db(DEFAULT_DB_ALIAS, known.names, own)
            for related in known.populators:
                related.populate(row, found)
            return found
        return None

    def _compile(self) -> _Compiled:
        compiler: Any = self._build().query.get_compiler(DEFAULT_DB_ALIAS)
        sql, params = _with_texts(*compiler.as_sql())
        if self._lock and connection.features.has_select_for_update:
            sql += f" {self._lock}"
        selected = [column for column, *_ in compiler.select]
        info = compiler.klass_info or {"select_fields": ()}
        own = [selected[index] for index in info["select_fields"]]
        self._compiled = _Compiled(
            compiler,
            sql,
            params,
            converters=compiler.get_converters(selected),
            start=next(iter(info["select_fields"]), 0),
            names=tuple(column.target.attname for column in own),
            populators=_populators(info, compiler.select, DEFAULT_DB_ALIAS),
        )
        return self._compiled


def _connection() -> BaseDatabaseWrapper:
    """Of this thread; each attribute of Django's `connection` looks it up again."""
    return connections[DEFAULT_DB_ALIAS]


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
    here = _connection()
    sql, fields = _inserts.get(type(row)) or _insert_compile(row)
    _execute(here, sql, [one.get_db_prep_save(one.pre_save(row, add=True), here) for one in fields])
    row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS


def _insert_compile(row: Model) -> tuple[str, "list[Field[Any, Any]]"]:
    model = type(row)
    fields = [one for one in model._meta.local_concrete_fields if one is not model._meta.auto_field]
    query = InsertQuery(model)
    query.insert_values(fields, [row])
    [(sql, params)] = query.get_compiler(DEFAULT_DB_ALIAS).as_sql()
    if len(params) != len(fields):
        raise ValueError(f"{model.__name__} has a field whose value is an expression")
    _inserts[model] = sql, fields
    return _inserts[model]


def _execute(here: BaseDatabaseWrapper, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
    open_cursor = getattr(here, "prepared_cursor", here.cursor)
    with open_cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []
