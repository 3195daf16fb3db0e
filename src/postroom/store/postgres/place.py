"""The state of an organisation in PostgreSQL: its schema, and the one of identities.

Each has its own version. `identity` is there for all organisations, so the first one that a newer Postroom opens
changes it. A view holds on to the columns that it shows, so views are dropped before such a change and made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection, Table, text

from postroom.errors import Conflict
from postroom.store.ports import Place
from postroom.store.postgres import tables
from postroom.store.postgres.connection import Address, PostgresConnection
from postroom.store.postgres.tables import (
    ORGS,
    SHARED_TABLES,
    VIEWED,
    enter,
    quoted,
    schema_of,
)
from postroom.store.schema import REVISION, SET_ASIDE, SHARED, metadata

T = TypeVar("T")

IDENTITY, OWN = "identity", "projection"
"""The parts: what all organisations share, and what each has for itself."""

_LOCK = 0x706F7374726F6F6D
"""Of whoever changes `identity`: two organisations may be opened at the same time."""


# A migration says INTEGER and TEXT, which are right for SQLite.
_OTHER_TYPES = text("""
SELECT table_name, column_name,
    CASE data_type WHEN 'integer' THEN 'BIGINT' ELSE 'TEXT COLLATE "C"' END
FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
WHERE table_schema = current_schema AND table_type = 'BASE TABLE'
    AND table_name NOT IN ('alembic_version', 'orgs')
    AND (data_type = 'integer' OR data_type = 'text' AND collation_name IS DISTINCT FROM 'C')
""")


class PostgresPlace(Place):
    """Implements `ports.Place`."""

    shared = False
    inline = False
    forgets = True
    kept = None  # a copy is the person's to make

    def __init__(self, address: Address, org: str) -> None:
        self.address = address
        self.org = org
        self.schema = schema_of(org)
        self.parts: Mapping[str, Sequence[Table]] = {
            IDENTITY: [table for table in metadata.sorted_tables if table.name in SHARED_TABLES],
            OWN: [table for table in metadata.sorted_tables if table.name not in SHARED_TABLES],
        }
        # The one that has the lock also changes tables.
        self._writer = PostgresConnection(address, org, writes=True)

    def connect(self, *, writes: bool, timeout: float | None = None) -> PostgresConnection:
        del timeout  # another post room is refused, and nobody else holds locks
        return self._writer if writes else PostgresConnection(self.address, self.org, writes=False)

    def close(self) -> None:
        self._writer.close()

    def after(self) -> None:
        """As `ports.Place`."""

    def before(self) -> None:
        """As `ports.Place`: make the schemas, and take away what would hold up a change of `identity`."""
        self._writer.alter(SHARED, self._prepare)

    def alter(self, part: str, work: Callable[[Connection], T]) -> T:
        if part == IDENTITY:
            return self._writer.alter(SHARED, lambda c: _with_types(c, work))
        return self._writer.alter(self.schema, lambda c: self._with_views(c, work))

    def create(self, connection: Connection, part: str) -> None:
        made = tables.shared_tables() if part == IDENTITY else tables.org_tables()
        schema = SHARED if part == IDENTITY else self.schema
        if _has_tables(connection, schema):
            raise Conflict(
                f"the schema {schema!r} of the database holds tables that are not Postroom's",
                remedy="name a database of its own in database.url",
            )
        for statement in made:
            connection.exec_driver_sql(statement)

    def set_aside(self, at: float) -> None:
        """Keep what the removed organisation has under a name that none can have, so that another may take its own.

        Args:
            at: epoch seconds.
        """
        self._writer.alter(SHARED, lambda connection: self._set_aside(connection, int(at)))

    def _prepare(self, connection: Connection) -> None:
        for schema in (SHARED, self.schema):
            if not _exists(connection, schema):
                connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        if _has_table(connection, "alembic_version"):
            found = connection.exec_driver_sql("SELECT version_num FROM alembic_version")
            if found.scalar_one() < REVISION:
                for schema in connection.exec_driver_sql(f"SELECT schema FROM {ORGS}").scalars():  # noqa: S608 (our own names)
                    _drop_views(connection, schema)

    def _with_views(self, connection: Connection, work: Callable[[Connection], T]) -> T:
        done = _with_types(connection, work)
        if not _has_table(connection, "memberships"):
            for statement in tables.views(self.org):
                connection.exec_driver_sql(statement)
            connection.execute(
                text(f"INSERT INTO {SHARED}.{ORGS} VALUES (:org, :schema) ON CONFLICT DO NOTHING"),  # noqa: S608
                {"org": self.org, "schema": self.schema},
            )
        return done

    def _set_aside(self, connection: Connection, at: int) -> None:
        kept = f"{self.org}{SET_ASIDE}{at}"
        if not _exists(connection, self.schema):
            return
        _drop_views(connection, self.schema)
        connection.exec_driver_sql(
            f"ALTER SCHEMA {quoted(self.schema)} RENAME TO {quoted(schema_of(kept))}"
        )
        for table in sorted(SHARED_TABLES):
            connection.execute(
                text(f"UPDATE {table} SET org = :kept WHERE org = :org"),  # noqa: S608
                {"kept": kept, "org": self.org},
            )
        connection.execute(
            text(f"UPDATE {ORGS} SET schema = :schema WHERE org = :kept"),  # noqa: S608
            {"schema": schema_of(kept), "kept": kept},
        )
        enter(connection, schema_of(kept))
        for statement in tables.views(kept):
            connection.exec_driver_sql(statement)


def _with_types(connection: Connection, work: Callable[[Connection], T]) -> T:
    """Run `work` alone, and give the columns that it added the types of `tables`."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    done = work(connection)
    for table, column, kind in connection.execute(_OTHER_TYPES).all():
        connection.exec_driver_sql(
            f"ALTER TABLE {quoted(table)} ALTER COLUMN {quoted(column)} TYPE {kind}"
        )
    return done


def _exists(connection: Connection, schema: str) -> bool:
    found = text("SELECT 1 FROM pg_namespace WHERE nspname = :schema")
    return connection.execute(found, {"schema": schema}).scalar() is not None


def _has_table(connection: Connection, name: str) -> bool:
    """Whether the present schema has that table or view."""
    return (
        connection.execute(text("SELECT to_regclass(:name)"), {"name": name}).scalar() is not None
    )


def _has_tables(connection: Connection, schema: str) -> bool:
    found = text("SELECT 1 FROM pg_class WHERE relnamespace = CAST(:schema AS regnamespace)")
    return connection.execute(found, {"schema": quoted(schema)}).scalar() is not None


def _drop_views(connection: Connection, schema: str) -> None:
    for table in sorted(VIEWED):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {quoted(schema)}.{table}")
