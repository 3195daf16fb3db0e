"""The rows of one organisation in the accounts of an installation, on a connection of SQLite's.

Every connection has for each table of accounts a temporary view of that name with the organisation's own rows, and
temporary triggers at the table itself. So no statement has to remember whose rows it may see:

    SELECT                 reads the view
    INSERT UPDATE DELETE   name the table (`SQLiteDialect.completed` writes its schema); the triggers refuse a row that
                           is, or becomes, another organisation's, and pass over one that was

PostgreSQL does the same by views alone (`postgres.tables`). SQLite's would take no upsert and count no row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from sqlalchemy import Delete, Insert, Table, Update
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import ClauseElement

from postroom.store.schema import ACCOUNTS, SHARED, OwnOrg

_NAMES = frozenset(table.name for table in ACCOUNTS)
_CHANGE = re.compile(r"(INSERT INTO|UPDATE|DELETE FROM) ")

REFUSED = "a row of another organisation"


@compiles(OwnOrg, "sqlite")
def _own_org(*_: Any, **__: Any) -> str:
    return "(SELECT org FROM own_org)"


def naming_tables(statement: ClauseElement, sql: str) -> str:
    """The text of a statement that changes rows of accounts, with the schema of its table."""
    if isinstance(statement, Insert | Update | Delete):
        table = statement.table
        if isinstance(table, Table) and table.name in _NAMES and table.schema is None:
            return _CHANGE.sub(rf"\1 {SHARED}.", sql, count=1)
    return sql


@cache
def own_rows(org: str) -> tuple[str, ...]:
    """The statements that make the views and triggers of `org` on a connection with the tables of accounts."""
    return tuple(_statements("'" + org.replace("'", "''") + "'"))


def _statements(org: str) -> Iterator[str]:
    yield f"CREATE TEMP VIEW own_org AS SELECT {org} AS org"
    for table in ACCOUNTS:
        columns = ", ".join(column.name for column in table.columns)
        # The plus keeps an index on `org` out of the plans: each organisation has few rows, its keys are unique.
        yield (
            f"CREATE TEMP VIEW {table.name} AS SELECT {columns}"  # noqa: S608 (our own names)
            f" FROM {SHARED}.{table.name} WHERE +org = {org}"
        )
        own, new = f"OLD.org IS {org}", f"NEW.org IS {org}"
        for when, wrong, does in (
            ("INSERT", f"NOT {new}", f"ABORT, '{REFUSED}'"),
            ("UPDATE", f"NOT {own}", "IGNORE"),
            ("UPDATE", f"{own} AND NOT {new}", f"ABORT, '{REFUSED}'"),
            ("DELETE", f"NOT {own}", "IGNORE"),
        ):
            yield (
                f"CREATE TEMP TRIGGER {table.name}_{when}_{does[:5]} BEFORE {when}"
                f" ON {SHARED}.{table.name} WHEN {wrong} BEGIN SELECT RAISE({does}); END"
            )
