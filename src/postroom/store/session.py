"""Runs statements on one connection of a database, whichever it is.

SQLAlchemy writes the SQL, once for each dialect; building and compiling a statement takes many times as long as
running it. So a statement that is run often is a constant, made by `prepared`, with `bindparam` where a value goes.
A `Session` then hands its text to the driver itself (`sqlite3`, `psycopg`). `octets` is a function that both have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

from sqlalchemy import ARRAY, Boolean, ColumnElement, Function, Integer, Table, bindparam
from sqlalchemy.engine import Dialect as Compiler
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import ClauseElement, Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.visitors import traverse
from sqlalchemy.types import NullType

T = TypeVar("T")

Values = Mapping[str, object]

REPLACEMENT = "\ufffd"
"""Stands for U+0000 in a stored text."""


class Dialect(Protocol):
    """What differs between databases.

    Attributes:
        name: `sqlite` or `postgresql`.
        bools: whether the driver gives booleans; SQLite's gives numbers.
        compiler: SQLAlchemy's dialect, with positional parameters.
    """

    name: str
    bools: bool
    compiler: Compiler

    def insert(self, table: Table) -> Any:
        """SQLAlchemy's INSERT of this database, which knows conflicts."""

    def listed(self, values: list[Any]) -> object:
        """The value of a parameter of `among`."""

    def completed(self, statement: ClauseElement, sql: str) -> str:
        """The text `sql` of a statement, with what this database wants said more."""


class Driver(Protocol):
    """A connection of the driver."""

    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> Any:
        """Run a statement; the cursor has `fetchall`, `fetchone` and `rowcount`."""

    def close(self) -> None:
        """End the connection."""

    def executemany(self, sql: str, values: Sequence[Sequence[Any]], /) -> Any:
        """Run a statement once for each of `values`."""


class Compiled:
    """The text of a statement in one dialect.

    Attributes:
        order: names of the parameters.
        fixed: values that are part of the statement.
        lists: positions of the parameters of `among`.
        flags: positions of the booleans in a row, where the driver gives numbers.
    """

    __slots__ = ("fixed", "flags", "listed", "lists", "order", "sql")

    def __init__(self, statement: ClauseElement, dialect: Dialect, keys: Sequence[str]) -> None:
        # Its values come later, also where the compiler writes a list of constants out.
        traverse(statement, {}, {"bindparam": lambda each: setattr(each, "required", False)})
        compiled = cast(
            "SQLCompiler",
            statement.compile(
                dialect=dialect.compiler,
                column_keys=list(keys) or None,
                compile_kwargs={"render_postcompile": True},
            ),
        )
        self.sql = dialect.completed(statement, str(compiled))
        self.order = tuple(compiled.positiontup or ())
        self.fixed = {name: value for name, value in compiled.params.items() if value is not None}
        lists = _lists_of(compiled)
        self.lists = tuple(at for at, name in enumerate(self.order) if name in lists)
        self.listed = dialect.listed
        # `_result_columns` has name, key, objects and type of each column.
        found = compiled._result_columns or ()  # noqa: SLF001 (the compiler tells it nowhere else)
        self.flags = (
            ()
            if dialect.bools
            else tuple(at for at, column in enumerate(found) if isinstance(column[3], Boolean))
        )

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        """The parameters in their order."""
        fixed = self.fixed
        if fixed:
            found: list[Any] = [
                given[name] if name in given else fixed.get(name) for name in self.order
            ]
        else:
            found = [given[name] for name in self.order]
        for at in self.lists:
            found[at] = self.listed([_storable(value) for value in found[at]])
        for at, value in enumerate(found):
            if value.__class__ is str and "\0" in value:
                found[at] = _storable(value)
        return found


def _storable(value: Any) -> Any:
    """`value` as a database keeps it: PostgreSQL takes no U+0000 in a text, and functions of SQLite stop there.

    An agent may send one. In JSON it is an escape, so what an agent said stays exact where that matters.
    """
    return value.replace("\0", REPLACEMENT) if value.__class__ is str else value


class Prepared:
    """A statement that each dialect compiles once."""

    __slots__ = ("_build", "_compiled")

    def __init__(self, build: Callable[[Dialect], ClauseElement]) -> None:
        self._build = build
        self._compiled: dict[tuple[str, ...], Compiled] = {}

    def on(self, dialect: Dialect, keys: Sequence[str] = ()) -> Compiled:
        """Its text; `keys` are the columns that an INSERT or UPDATE without values of its own sets."""
        key = (dialect.name, *keys)
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = Compiled(self._build(dialect), dialect, keys)
        return found


def prepared(statement: ClauseElement) -> Prepared:
    """A statement of both dialects."""
    return Prepared(lambda _: statement)


def insert_new(table: Table) -> Prepared:
    """Inserts a row with a value for each column given; no effect if a unique one is taken."""
    return Prepared(lambda dialect: dialect.insert(table).on_conflict_do_nothing())


def upsert(table: Table, key: Sequence[str], changed: Sequence[str]) -> Prepared:
    """Inserts a row, or sets the columns `changed` of the one with the same `key`."""

    def build(dialect: Dialect) -> ClauseElement:
        new = dialect.insert(table)
        values = {name: new.excluded[name] for name in changed}
        return new.on_conflict_do_update(index_elements=list(key), set_=values)

    return Prepared(build)


class Session:
    """One connection, whose transaction the runner begins and ends (`store.database`)."""

    def __init__(self, dialect: Dialect, driver: Driver) -> None:
        self.dialect = dialect
        self.driver = driver

    def rows(self, statement: Prepared | Executable, **values: object) -> list[Any]:
        """The rows of a selection, a tuple each."""
        compiled, cursor = self._run(statement, values)
        found = cursor.fetchall()
        if compiled.flags:
            return [_with_flags(row, compiled.flags) for row in found]
        return found

    def all(
        self, kind: Callable[..., T], statement: Prepared | Executable, **values: object
    ) -> list[T]:
        """The rows of a selection, each as a `kind` with its fields in the order of the columns."""
        return [kind(*row) for row in self.rows(statement, **values)]

    def first(
        self, kind: Callable[..., T], statement: Prepared | Executable, **values: object
    ) -> T | None:
        """The first row of a selection as a `kind`, or None."""
        compiled, cursor = self._run(statement, values)
        row = cursor.fetchone()
        if row is None:
            return None
        return kind(*(_with_flags(row, compiled.flags) if compiled.flags else row))

    def column(self, statement: Prepared | Executable, **values: object) -> list[Any]:
        """The first column of a selection."""
        return [row[0] for row in self.rows(statement, **values)]

    def scalar(self, statement: Prepared | Executable, **values: object) -> Any:
        """The first column of the first row, None if there is no row."""
        _, cursor = self._run(statement, values)
        row = cursor.fetchone()
        return None if row is None else row[0]

    def run(self, statement: Prepared | Executable, values: Values | None = None) -> int:
        """Run a statement that changes rows; returns how many.

        Args:
            values: of the parameters and, for an INSERT or UPDATE without values of its own, of the columns to set.
        """
        _, cursor = self._run(statement, values or {}, tuple(values or ()))
        return cursor.rowcount

    def run_many(self, statement: Prepared | Executable, rows: Sequence[Values]) -> None:
        """Run a statement once for each of `rows`, which have the same keys."""
        if rows:
            keys = tuple(rows[0])
            compiled = self._compiled(statement, keys)
            self.driver.executemany(compiled.sql, [compiled.values(row) for row in rows])

    def _run(
        self,
        statement: Prepared | Executable,
        values: Values,
        keys: Sequence[str] = (),
    ) -> tuple[Compiled, Any]:
        compiled = self._compiled(statement, keys)
        return compiled, self.driver.execute(compiled.sql, compiled.values(values))

    def _compiled(self, statement: Prepared | Executable, keys: Sequence[str]) -> Compiled:
        if isinstance(statement, Prepared):
            return statement.on(self.dialect, keys)
        return Compiled(cast("ClauseElement", statement), self.dialect, keys)


def _with_flags(row: Sequence[Any], flags: Iterable[int]) -> list[Any]:
    changed = list(row)
    for at in flags:
        changed[at] = bool(changed[at])
    return changed


class _Among(ColumnElement[bool]):
    inherit_cache = False
    # As a Boolean it would be compiled as `... = 1`, which uses no index.
    type: Any = NullType()

    def __init__(self, column: ColumnElement[Any], name: str) -> None:
        self.column = column
        self.name = name


def among(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Whether `column` is one of the values of the parameter `name`.

    They are one parameter, so that their number does not change the statement. Such a statement has no ORDER BY: SQLite
    would read the whole table in that order. Sort what it gives.
    """
    return _Among(column, name)


@compiles(_Among, "sqlite")
def _among_json(element: _Among, compiler: SQLCompiler, **more: Any) -> str:
    given = compiler.process(bindparam(element.name, required=False), **more)
    _lists_of(compiler).add(element.name)
    column = compiler.process(element.column, **more)
    return f"{column} IN (SELECT value FROM json_each({given}))"  # noqa: S608 (compiled SQL)


@compiles(_Among, "postgresql")
def _among_array(element: _Among, compiler: SQLCompiler, **more: Any) -> str:
    given = compiler.process(
        bindparam(element.name, type_=ARRAY(element.column.type), required=False), **more
    )
    _lists_of(compiler).add(element.name)
    return f"{compiler.process(element.column, **more)} = ANY ({given})"


def _lists_of(compiler: SQLCompiler) -> set[str]:
    """The names of the parameters that are lists, as its statement is compiled."""
    found: set[str] = compiler.__dict__.setdefault("postroom_lists", set())
    return found


def values_of(row: Any) -> dict[str, object]:
    """The fields of a row's dataclass, without copies of them as `dataclasses.asdict` makes."""
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


class octets(Function):  # noqa: N801 (it is written like a function of SQL)
    """Bytes of a text."""

    type = Integer()
    inherit_cache = True

    def __init__(self, column: ColumnElement) -> None:
        super().__init__("octet_length", column)


@compiles(octets, "sqlite")
def _octets_sqlite(element: octets, compiler: Any, **options: Any) -> str:
    # `octet_length` came with 3.43.
    inner = compiler.process(element.clauses, **options)
    return f"length(CAST({inner} AS BLOB))"
