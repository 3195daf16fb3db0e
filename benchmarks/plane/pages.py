"""A page of 50 out of 100,000 messages, tasks and events, against one out of 1,000."""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass

from benchmarks.connection import Connection
from benchmarks.fill import Traffic, fill
from benchmarks.plane.findings import BEFORE, NOW, Findings
from benchmarks.plane.inside import Watched, watched_room
from benchmarks.plane.sides import Side
from benchmarks.spread import percentile
from postroom.settings import Settings
from postroom.store.database import Place
from postroom.store.schema import PROJECTION
from postroom.store.sqlite import SQLitePlace
from postroom.store.tasks import TaskRow

FEW = 1_000

FIRST = 10_000_000
"""Sequence of the first row: far past what the post room stores itself meanwhile."""

CALLS = 40

_SCAN = re.compile(r"\bSCAN (\w+)(?! USING)")


@dataclass(frozen=True, slots=True)
class _Filled:
    """A running post room with so many rows of each kind.

    Attributes:
        paths: what is asked for, by name.
    """

    watched: Watched
    place: Place
    paths: Mapping[str, str]


@contextmanager
def _filled(side: Side, count: int) -> Generator[_Filled]:
    with watched_room(side) as watched:
        room = watched.room
        workers = [room.address(nick) for nick in ("one", "two")]
        with room.client() as client:
            me = client.status()["me"]["uid"]
        place = SQLitePlace(Settings(state=room.state).database)
        with closing(place.connect(writes=True)) as connection:
            traffic = Traffic(me, workers, first=FIRST, at=time.time() - 10 * count)
            fill(connection, traffic.exchanges(count // 2))
            fill(connection, traffic.tasks(count, changes=0))
            fill(connection, last := list(traffic.tasks(1, changes=count)))
        task = next(row.id for row in last if isinstance(row, TaskRow))
        middle = FIRST + 2 * count + count // 2
        paths = {
            "inbox": "/v1/inbox?limit=50",
            "unread inbox": "/v1/inbox?limit=50&unread=1",
            "chat": f"/v1/chats/one/messages?limit=50&before={FIRST + count // 2}",
            "tasks": "/v1/tasks?limit=50",
            "tasks of one": f"/v1/tasks?limit=50&worker=one&before={FIRST + count + count // 2}",
            "tasks by state": "/v1/tasks?limit=50&state=completed",
            "open tasks": "/v1/tasks?limit=50&open=1",
            "events": f"/v1/tasks/{task}/events?limit=50&after={middle}",
        }
        yield _Filled(watched, place, paths)


async def pages(found: Findings, side: Side, rounds: int, many: int) -> None:
    """Each round asks for each page, of the few and of the many in turns; the few are told as `before`."""
    with _filled(side, FEW) as few, _filled(side, many) as lots:
        async with AsyncExitStack() as stack:
            connections = []
            for each in (few, lots):
                server = each.watched.room.server
                connection = Connection(server["url"], server["token"])
                connections.append(await stack.enter_async_context(connection))
            for number in range(rounds + 1):
                for name in few.paths:
                    took: Sequence[list[float]] = [[], []]
                    for call in range(CALLS):
                        for at in (0, 1) if call % 2 else (1, 0):
                            begin = time.perf_counter()
                            path = (few, lots)[at].paths[name]
                            await connections[at].call("GET", path)
                            took[at].append(1000 * (time.perf_counter() - begin))
                    if number:  # the first round warms up
                        for told, values in zip((BEFORE, NOW), took, strict=True):
                            p50 = percentile(values, 0.5)
                            found.keep(f"{name}, 1 k and more", told, p50, "ms", "<= 1.3")
            for name, path in lots.paths.items():
                lots.watched.look(trace=True)
                await connections[1].call("GET", path)
                scans = _scans(lots.place, lots.watched.look()["asked"])
                found.keep(f"{name}: tables read whole", NOW, len(scans), "")


def _scans(place: Place, asked: Sequence[str]) -> list[str]:
    """The tables of the projection that SQLite reads without an index for one of these statements."""
    tables = {table.name for table in PROJECTION}
    with closing(place.connect(writes=False)) as connection:
        plans = [
            row[3]
            for sql in asked
            if sql.lstrip().upper().startswith(("SELECT", "WITH"))
            for row in connection.session.driver.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
        ]
    return [found[1] for plan in plans if (found := _SCAN.search(plan)) and found[1] in tables]
