"""A page of 50 out of 100,000 messages, tasks and events, against one out of 1,000."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import psycopg

from benchmarks.connection import Connection
from benchmarks.fill import Filling, Traffic, fill
from benchmarks.plane.findings import BEFORE, NOW, Findings
from benchmarks.plane.inside import Watched, watched_room
from benchmarks.plane.sides import Side
from benchmarks.spread import percentile
from postroom.settings import Settings
from postroom.store.ports import TaskRow
from postroom.store.postgres.connection import DIALECT
from postroom.store.postgres.tables import quoted, schema_of
from postroom.store.schema import PROJECTION
from postroom.store.session import Driver, Session
from postroom.store.sqlite import SQLitePlace

T = TypeVar("T")

FEW = 1_000

SHORT = {"SQLite": "lite", "PostgreSQL": "pg"}

FIRST = 10_000_000
"""Sequence of the first row: far past what the post room stores itself meanwhile."""

CALLS = 40

_SCAN = re.compile(r"\bSCAN (\w+)(?! USING)|\bSeq Scan on (\w+)")


class _PostgresFilling:
    """Implements `Filling` without the lock that the post room has."""

    def __init__(self, url: str, org: str) -> None:
        self._driver = psycopg.connect(url, autocommit=True)
        self._driver.execute(f"SET search_path TO {quoted(schema_of(org))}".encode())
        self.session = Session(DIALECT, cast("Driver", psycopg.RawCursor(self._driver)))

    def run(self, work: Callable[[Session], T], *, flush: bool = True) -> T:
        """As `Filling`."""
        del flush
        with self._driver.transaction():
            return work(self.session)

    def close(self) -> None:
        """As `Filling`."""
        self._driver.close()


@dataclass(frozen=True, slots=True)
class _Filled:
    """A running post room with so many rows of each kind.

    Attributes:
        paths: what is asked for, by name.
        connection: to its database.
    """

    watched: Watched
    connection: Filling
    paths: Mapping[str, str]


@contextmanager
def _filled(side: Side, count: int, url: str) -> Generator[_Filled]:
    more = {"POSTROOM_DATABASE_URL": url} if url else {}
    with watched_room(side, more=more) as watched:
        room = watched.room
        workers = [room.address(nick) for nick in ("one", "two")]
        with room.client() as client:
            me = client.status()["me"]["uid"]
        settings = Settings(state=room.state)
        with closing(
            _PostgresFilling(url, settings.org)
            if url
            else SQLitePlace(settings.database).connect(writes=True)
        ) as connection:
            traffic = Traffic(me, workers, first=FIRST, at=time.time() - 10 * count)
            fill(connection, traffic.exchanges(count // 2))
            fill(connection, traffic.tasks(count, changes=0))
            fill(connection, last := list(traffic.tasks(1, changes=count)))
            connection.session.driver.execute("ANALYZE")
            task = next(row.id for row in last if isinstance(row, TaskRow))
            middle = FIRST + 2 * count + count // 2
            before = FIRST + count // 2
            paths = {
                "inbox": "/v1/inbox?limit=50",
                "unread inbox": "/v1/inbox?limit=50&unread=1",
                "chat": f"/v1/chats/one/messages?limit=50&before={before}",
                "tasks": "/v1/tasks?limit=50",
                "tasks of one": f"/v1/tasks?limit=50&worker=one&before={before + count}",
                "tasks by state": "/v1/tasks?limit=50&state=completed",
                "open tasks": "/v1/tasks?limit=50&open=1",
                "events": f"/v1/tasks/{task}/events?limit=50&after={middle}",
            }
            yield _Filled(watched, connection, paths)


@contextmanager
def _servers() -> Generator[dict[str, Callable[[], str]]]:
    """The databases: by name, what gives the address of a new one; "" for SQLite's files."""
    found: dict[str, Callable[[], str]] = {"SQLite": lambda: ""}
    try:
        postgres = importlib.import_module("tests.postgres")
    except ImportError:  # its programs come with the tools of developers alone
        yield found
        return
    with postgres.running_postgres() as server:
        yield found | {"PostgreSQL": server.new_database}


async def pages(found: Findings, side: Side, rounds: int, many: int) -> None:
    """On each database each round asks for each page, of the few and of the many in turns."""
    with _servers() as servers:
        for name, new in servers.items():
            with _filled(side, FEW, new()) as few, _filled(side, many, new()) as lots:
                await _turns(found, name, (few, lots), rounds)
                await _plans(found, name, lots)


async def _turns(found: Findings, database: str, rooms: Sequence[_Filled], rounds: int) -> None:
    """The pages of the few are told as `before`."""
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(_connection(each)) for each in rooms]
        for number in range(rounds + 1):
            for name in rooms[0].paths:
                took: Sequence[list[float]] = [[], []]
                for connection in connections:
                    await connection.open()
                for call in range(CALLS):
                    for at in (0, 1) if call % 2 else (1, 0):
                        begin = time.perf_counter()
                        await connections[at].call("GET", rooms[at].paths[name])
                        took[at].append(1000 * (time.perf_counter() - begin))
                if number:  # the first round warms up
                    for told, values in zip((BEFORE, NOW), took, strict=True):
                        p50 = percentile(values, 0.5)
                        found.keep(f"{SHORT[database]} {name}", told, p50, "ms", "<= 1.3")


async def _plans(found: Findings, database: str, room: _Filled) -> None:
    """Which tables are read whole for a page."""
    tables = {table.name for table in PROJECTION}
    async with _connection(room) as connection:
        for name, path in room.paths.items():
            room.watched.look(trace=True)
            await connection.call("GET", path)
            whole = {
                table
                for plan in _explained(room.connection, room.watched.look()["asked"])
                for table in _scanned(plan)
                if table in tables
            }
            found.keep(f"{SHORT[database]} {name}: whole reads", NOW, len(whole), "")


def _connection(room: _Filled) -> Connection:
    server = room.watched.room.server
    return Connection(server["url"], server["token"])


def _explained(connection: Filling, asked: Sequence[tuple[str, list[Any]]]) -> list[str]:
    """The lines of the plans of these statements."""
    driver = connection.session.driver
    explain = "EXPLAIN" if isinstance(connection, _PostgresFilling) else "EXPLAIN QUERY PLAN"
    return [
        str(row[-1])
        for sql, values in asked
        if sql.lstrip().upper().startswith(("SELECT", "WITH"))
        for row in driver.execute(f"{explain} {sql}", values).fetchall()
    ]


def _scanned(plan: str) -> list[str]:
    return [table for found in _SCAN.findall(plan) for table in found if table]
