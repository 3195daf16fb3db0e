"""The tables of `store.schema` as PostgreSQL has them.

    identity     agents, workers, memberships, keys, cards, credentials of all organisations; a row has its `org`
    org_<name>   everything else of one organisation, and for each table of `identity` a view of its own rows

Every connection of an organisation has the latter as its search path, so that statements name no schema. The views
take inserts, updates and deletes, give a new row its organisation, and refuse one of another (CHECK OPTION). So no
statement has to remember whose rows it may see.

Texts have the collation "C", as in SQLite: a prefix is then a range of an index, whatever the database's own is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    DefaultClause,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    false,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import TEXT
from sqlalchemy.dialects.postgresql.psycopg import dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable

from postroom.store.schema import ACCOUNTS, SHARED, OwnOrg, metadata, orgs
from postroom.store.search import INDEXES

ORGS = orgs.name

VIEWED = frozenset(table.name for table in ACCOUNTS)
SHARED_TABLES = VIEWED | {ORGS}
"""Tables whose keys are unique over all organisations; blobs are each organisation's own."""

_LONGEST = 63
"""Bytes of a name in PostgreSQL; a longer one would be cut without a word."""

_COMPILER = dialect()
_TEXT = TEXT(collation="C")


def schema_of(org: str) -> str:
    """Name of the schema of an organisation."""
    plain = f"org_{org}"
    if len(plain) <= _LONGEST:
        return plain
    # No name of an organisation has a tilde, so this is the schema of no other.
    return f"{plain[:42]}~{hashlib.sha256(org.encode()).hexdigest()[:20]}"


def quoted(name: str) -> str:
    """`name` as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """`value` as a text in a statement that takes no parameters."""
    return "'" + value.replace("'", "''") + "'"


def enter(connection: Connection, schema: str) -> None:
    """Let the statements of the present transaction mean the tables of `schema`."""
    connection.exec_driver_sql(f"SET LOCAL search_path TO {quoted(schema)}")


def shared_tables() -> Iterator[str]:
    """The statements that make the tables of `identity`, in the present schema."""
    yield from _created(shared=True)


def org_tables() -> Iterator[str]:
    """The statements that make the tables of an organisation, in the present schema."""
    yield from _created(shared=False)
    # Who writes to whom is no chance: without it a page of a chat with few messages would be looked for in all.
    yield "CREATE STATISTICS st_messages_pair (mcv, dependencies) ON sender, recipient FROM messages"
    for index in INDEXES:
        yield from index.tables(_COMPILER.name)


def views(org: str) -> Iterator[str]:
    """The statements that make the views of an organisation, in the present schema."""
    for table in metadata.sorted_tables:
        if table.name in VIEWED:
            names = [*(column.name for column in table.columns if column.name != "org"), "org"]
            yield (
                f"CREATE VIEW {table.name} AS SELECT {', '.join(map(quoted, names))}"  # noqa: S608 (our own names)
                f" FROM {SHARED}.{table.name} WHERE org = {literal(org)} WITH LOCAL CHECK OPTION"
            )
            yield f"ALTER VIEW {table.name} ALTER COLUMN org SET DEFAULT {literal(org)}"


def _created(*, shared: bool) -> Iterator[str]:
    tables = MetaData(naming_convention=metadata.naming_convention)
    for table in metadata.sorted_tables:
        made = _translated(table, tables)
        if (table.name in SHARED_TABLES) is shared:
            yield str(CreateTable(made).compile(dialect=_COMPILER))
            for index in sorted(made.indexes, key=lambda one: str(one.name)):
                yield str(CreateIndex(index).compile(dialect=_COMPILER))


def _translated(table: Table, tables: MetaData) -> Table:
    """`table` with the types and the indexes that PostgreSQL has."""
    made = table.to_metadata(tables)
    for column in made.columns:
        column.autoincrement = False  # numbers come from the log
        if isinstance(column.type, Text):
            column.type = _TEXT
        elif isinstance(column.type, Integer):
            column.type = BigInteger()
        elif isinstance(column.type, Boolean) and isinstance(column.server_default, DefaultClause):
            column.server_default = DefaultClause(
                false() if str(column.server_default.arg) == "0" else true()
            )
    made.indexes.clear()
    for index in table.indexes:
        where = index.dialect_options["sqlite"]["where"]
        Index(
            index.name,
            *(made.columns[column.name] for column in index.columns),
            unique=index.unique,
            postgresql_where=None if where is None else text(_condition(table, str(where))),
        )
    if table.name in VIEWED and not any("org" in index.columns for index in made.indexes):
        Index(f"ix_{table.name}_org", made.columns.org)
    return made


@compiles(OwnOrg, "postgresql")
def _own_org(*_: Any, **__: Any) -> str:
    return "DEFAULT"  # of the view


def _condition(table: Table, where: str) -> str:
    """The condition of a partial index: there a boolean is a number for SQLite."""
    for column in table.columns:
        if isinstance(column.type, Boolean):
            where = re.sub(rf"\b{column.name} = 0\b", f"{column.name} = false", where)
    return where
