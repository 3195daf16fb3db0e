"""The rows of tasks in SurrealDB: a revision each, and a key with the order of lists.

The engine reads an index forwards alone, so the key sorts the last changed task first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from a2a import types
from postroom_a2a.errors import Conflict, LostUpdate, RequestTimeout
from postroom_a2a.surreal import Address, Away, Connection, Thrown, open_connection

T = TypeVar("T")

TABLE, EVENTS = "a2a_tasks", "a2a_task_events"

_COLUMNS = {
    "revision": "int",
    "payload": "bytes",
    "final": "bool",
    "context": "string",
    "state": "int",
    "place": "string",
}
_MADE = ";\n".join(
    [
        f"DEFINE TABLE IF NOT EXISTS {TABLE} SCHEMAFULL PERMISSIONS NONE",
        *(
            f"DEFINE FIELD IF NOT EXISTS {name} ON {TABLE} TYPE {kind}"
            for name, kind in _COLUMNS.items()
        ),
        f"DEFINE INDEX IF NOT EXISTS {TABLE}_place ON {TABLE} FIELDS place",
        f"DEFINE TABLE IF NOT EXISTS {EVENTS} SCHEMAFULL PERMISSIONS NONE",
        f"DEFINE FIELD IF NOT EXISTS place ON {EVENTS} TYPE string",
        f"DEFINE FIELD IF NOT EXISTS payload ON {EVENTS} TYPE bytes",
        f"DEFINE INDEX IF NOT EXISTS {EVENTS}_place ON {EVENTS} FIELDS place",
    ]
)

_STALE = "stale"
FIRST = 1_000_000_000
"""Of the numbers of a task's events, so that all have as many digits."""

_WRITE = f"""BEGIN;
LET $found = (SELECT revision, final FROM $record);
LET $is = IF array::len($found) = 0 {{ 0 }} ELSE {{ $found[0].revision }};
IF $revision = -1 AND $is = 0 {{ THROW '{_STALE}' }};
IF $revision != -1 AND $is != $revision {{ THROW '{_STALE}' }};
IF $is > 0 AND $found[0].final {{ THROW '{_STALE}' }};
UPSERT $record CONTENT $row RETURN NONE;
UPDATE $record SET revision = $is + 1 RETURN NONE;
FOR $one IN $events {{
    CREATE {EVENTS} CONTENT {{ place: $one.place + <string> ($is + {FIRST}), payload: $one.payload }}
        RETURN NONE;
}};
COMMIT;"""  # noqa: S608 (our own names)

ANY = -1
"""In place of a revision: whatever it is, if the task has not ended."""


@dataclass(frozen=True, slots=True)
class Row:
    """A stored task; `value` is the task in protobuf."""

    key: str
    value: bytes
    revision: int


class SurrealRows:
    """The tasks of one database. Implements `taskstore.Entries`.

    A thread of its own waits for the database; `close` ends it.
    """

    def __init__(self, connection: Connection, threads: ThreadPoolExecutor) -> None:
        self._connection = connection
        self._threads = threads

    @classmethod
    async def open(cls, address: Address, database: str) -> SurrealRows:
        """Open the database, and make the tables if they are not there.

        Raises:
            Conflict: the tables there are those of a post room.
            As `surreal.open_connection`.
        """
        threads = ThreadPoolExecutor(1, "surreal-tasks")
        loop = asyncio.get_running_loop()
        try:
            connection = await loop.run_in_executor(threads, open_connection, address, database)
            await loop.run_in_executor(threads, _prepare, connection)
        except BaseException:
            threads.shutdown(wait=False)
            raise
        return cls(connection, threads)

    async def close(self) -> None:
        """Finish the running calls and end the connection."""
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._connection.close)

    async def create(self, key: str, value: bytes, *, ttl: float = 0.0) -> int:
        """Store a new task; returns its revision. `ttl` has no effect: rows stay until they are deleted.

        Raises:
            LostUpdate: there is one.
        """
        del ttl
        return await self.write(key, value, 0)

    async def update(self, key: str, value: bytes, revision: int, *, ttl: float = 0.0) -> int:
        """Replace a task of that revision; returns the new one.

        Raises:
            LostUpdate: it has another revision, or has ended, or is not there.
        """
        del ttl
        return await self.write(key, value, revision)

    async def write(self, key: str, value: bytes, revision: int, event: bytes | None = None) -> int:
        """Store a task: a new one (0), in place of that revision, or of any (`ANY`); and an event with it.

        Raises:
            LostUpdate: as `create` and `update`.
            RequestTimeout: the server went away; whether it was stored is not known.
        """
        task = types.Task.FromString(value)
        events = [] if event is None else [{"place": f"{key}/", "payload": event}]
        values = {
            "record": _record(key),
            "row": _row(key, task, value),
            "revision": revision,
            "events": events,
        }

        def run(connection: Connection) -> int:
            connection.run(_WRITE, values)
            return revision + 1 if revision >= 0 else _read(connection, key).revision

        try:
            return await self._run(run)
        except Thrown as error:
            raise LostUpdate(f"another writer changed {key!r}, or it has ended") from error

    async def get(self, key: str, *, fresh: bool = True) -> Row | None:
        """The task at `key`."""
        del fresh  # it always is
        return await self._run(lambda connection: _find(connection, key))

    async def purge(self, key: str) -> None:
        """Delete a task and its events; a missing one is no error."""
        low, high = f"{key}/", f"{key}0"
        text = (
            f"BEGIN; DELETE $record; DELETE {EVENTS} WHERE place > $low AND place < $high; COMMIT;"
        )
        values = {"record": _record(key), "low": low, "high": high}
        await self._run(lambda connection: connection.run(text, values))

    async def events(self, key: str) -> list[bytes]:
        """The events of a task, in their order."""
        text = f"SELECT payload, place FROM {EVENTS} WHERE place > $low AND place < $high ORDER BY place"  # noqa: S608
        values = {"low": f"{key}/", "high": f"{key}0"}
        rows = await self._run(lambda connection: connection.rows(text, values))
        return [row["payload"] for row in rows]

    async def page(
        self, low: str, high: str, wanted: Mapping[str, Any], size: int, past: str
    ) -> tuple[list[bytes], int]:
        """The first tasks between two keys of the order, and the number of all; `past` is where the page begins."""
        only = "".join(f" AND {name} = ${name}" for name in wanted)
        where = f"FROM {TABLE} WITH INDEX {TABLE}_place WHERE place > $low AND place < $high{only}"
        count = f"SELECT count() {where} GROUP ALL"
        listed = f"SELECT payload, place {where} ORDER BY place LIMIT {size}"

        def run(connection: Connection) -> tuple[list[bytes], int]:
            total = connection.rows(count, {**wanted, "low": low, "high": high})
            rows = connection.rows(listed, {**wanted, "low": past or low, "high": high})
            return [row["payload"] for row in rows], total[0]["count"] if total else 0

        return await self._run(run)

    async def _run(self, work: Callable[[Connection], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, work, self._connection)
        except Away as error:
            raise RequestTimeout(error.message, remedy=error.remedy) from error


def place_key(owner: str, stated: bool, at: int, task: str) -> str:
    """A key of an owner's tasks: the last changed first, then those with a later id; those without an instant last.

    Args:
        at: nanoseconds since the epoch.
    """
    name = task.encode("utf-8", "surrogatepass").hex().translate(_DIGITS)
    return f"{owner}/{0 if stated else 1}{2**64 - at:020d}{name}g"


_DIGITS = str.maketrans("0123456789abcdef", "fedcba9876543210")


def _prepare(connection: Connection) -> None:
    connection.run(_MADE)
    fields = connection.run(f"INFO FOR TABLE {TABLE}")[0]["fields"]
    if "requested_seq" in fields:
        raise Conflict(
            f"{connection.shown} has the tasks of a post room", remedy="name another database"
        )


def _row(key: str, task: types.Task, value: bytes) -> dict[str, Any]:
    from postroom_a2a.sdk.taskstore import FINAL

    stated = task.status.HasField("timestamp")
    at = task.status.timestamp.ToNanoseconds() if stated else 0
    owner = key.partition(".")[0]
    return {
        "revision": 1,
        "payload": value,
        "final": task.status.state in FINAL,
        "context": task.context_id.replace("\0", "\ufffd"),
        "state": int(task.status.state),
        "place": place_key(owner, stated, at, task.id),
    }


def _record(key: str) -> Any:
    from surrealdb import RecordID

    return RecordID(TABLE, key)


def _find(connection: Connection, key: str) -> Row | None:
    found = connection.rows("SELECT payload, revision FROM $record", {"record": _record(key)})
    return Row(key, found[0]["payload"], found[0]["revision"]) if found else None


def _read(connection: Connection, key: str) -> Row:
    found = _find(connection, key)
    if found is None:
        raise LostUpdate(f"{key!r} was deleted meanwhile")
    return found
