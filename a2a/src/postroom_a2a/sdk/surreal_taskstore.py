"""Tasks of an SDK agent in SurrealDB: the SDK's task store, and its versioned one for a cluster of replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from a2a.server.cluster.task_store import (
    ConcurrentTaskModificationError,
    StoredTask,
    VersionedTaskStore,
)
from a2a.server.cluster.version import TaskVersion
from a2a.server.owner_resolver import OwnerResolver, resolve_user_scope
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.proto_utils import to_stream_response

from a2a import types
from postroom_a2a.errors import Conflict, LostUpdate, RequestTimeout
from postroom_a2a.sdk.taskstore import (
    RETRY_FOR,
    StoredTasks,
    cursor_of,
    key_of,
    owner_token,
    page_token,
    task_in,
)
from postroom_a2a.surreal import Address, Away, Connection, Thrown, open_connection

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.server.events.event_queue import Event


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


DATABASE = "a2a"
"""Where an address names none."""


# ── stores ────────────────────────────────────────────────────────────────────────────────────────


class SurrealTaskStore(StoredTasks):
    """The SDK's task store in SurrealDB; it saves by the rules of `StoredTasks`, and lists from an index.

    Any number of replicas share a server; the embedded engine takes one process. Tasks stay until they are deleted.
    """

    def __init__(
        self,
        rows: SurrealRows,
        *,
        owner: OwnerResolver = resolve_user_scope,
        retry_for: float = RETRY_FOR,
    ) -> None:
        super().__init__(rows, owner=owner, keep=0.0, retry_for=retry_for)
        self._rows = rows

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        password: str = "",
        owner: OwnerResolver = resolve_user_scope,
        retry_for: float = RETRY_FOR,
    ) -> Self:
        """A store in the database at `url` (`surrealdb+file:///FOLDER`, `surrealdb+wss://USER@HOST/NAMESPACE/DATABASE`,
        `surrealdb+mem://`).

        Args:
            password: of the user, where `url` has none.

        Raises:
            InvalidInput: `url` is no such address, or could be read on its way.
            As `SurrealRows.open`.
        """
        address = Address.parse(url).with_password(password)
        rows = await SurrealRows.open(address, address.database or DATABASE)
        return cls(rows, owner=owner, retry_for=retry_for)

    @property
    def versioned(self) -> SurrealVersionedTaskStore:
        """The same tasks by the SDK's versioned interface."""
        return SurrealVersionedTaskStore(self._rows, owner=self._owner)

    async def list(
        self, params: types.ListTasksRequest, context: ServerCallContext
    ) -> types.ListTasksResponse:
        """A page of the owner's tasks, the last changed first.

        Raises:
            InvalidParamsError: the page token is not one of ours.
        """
        return await _list(self._rows, owner_token(self._owner(context)), params)

    async def close(self) -> None:
        """End the connection; the store is of no use after."""
        await self._rows.close()


class SurrealVersionedTaskStore(VersionedTaskStore):
    """The SDK's versioned task store in SurrealDB; events are stored with the task that they made."""

    def __init__(self, rows: SurrealRows, *, owner: OwnerResolver = resolve_user_scope) -> None:
        self._rows = rows
        self._owner = owner

    async def save(
        self,
        task: types.Task,
        *,
        event: Event | None = None,
        prev: types.Task | None = None,
        prev_version: TaskVersion,
        context: ServerCallContext,
    ) -> TaskVersion:
        """As `VersionedTaskStore`; nothing is written over a task that has ended.

        Raises:
            ConcurrentTaskModificationError: the stored task has another version, or has ended.
        """
        del prev
        canceled = task.status.state == types.TaskState.TASK_STATE_CANCELED
        before = 0 if prev_version.is_missing else prev_version._value  # noqa: SLF001 (it has no other way)
        said = None if event is None else to_stream_response(event).SerializeToString()
        try:
            revision = await self._rows.write(
                self._key(task.id, context),
                task.SerializeToString(deterministic=True),
                ANY if canceled else int(before),
                said,
            )
        except LostUpdate as error:
            raise ConcurrentTaskModificationError(task.id) from error
        return TaskVersion(revision)

    async def get(self, task_id: str, context: ServerCallContext) -> StoredTask | None:
        """As `VersionedTaskStore`."""
        found = await self._rows.get(self._key(task_id, context))
        return None if found is None else StoredTask(task_in(found), TaskVersion(found.revision))

    async def list(
        self, params: types.ListTasksRequest, context: ServerCallContext
    ) -> types.ListTasksResponse:
        """As `SurrealTaskStore.list`."""
        return await _list(self._rows, owner_token(self._owner(context)), params)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """As `VersionedTaskStore`."""
        await self._rows.purge(self._key(task_id, context))

    async def events(
        self, task_id: str, context: ServerCallContext
    ) -> Sequence[types.StreamResponse]:
        """The events that were saved with a task, in their order."""
        found = await self._rows.events(self._key(task_id, context))
        return [types.StreamResponse.FromString(each) for each in found]

    def _key(self, task_id: str, context: ServerCallContext) -> str:
        return key_of(self._owner(context), task_id)


async def _list(
    rows: SurrealRows, owner: str, params: types.ListTasksRequest
) -> types.ListTasksResponse:
    after = cursor_of(params.page_token)
    size = params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
    wanted: dict[str, object] = {}
    if params.context_id:
        wanted["context"] = params.context_id.replace("\0", "\ufffd")
    if params.status:
        wanted["state"] = int(params.status)
    high = f"{owner}0"
    if params.HasField("status_timestamp_after"):
        since = params.status_timestamp_after.ToNanoseconds()
        high = place_key(owner, True, since, "") + "g"
    past = "" if after is None else place_key(owner, *after)
    found, total = await rows.page(f"{owner}/", high, wanted, size + 1, past)
    tasks = [types.Task.FromString(each) for each in found[:size]]
    return types.ListTasksResponse(
        tasks=tasks,
        next_page_token=page_token(tasks[-1]) if len(found) > size else "",
        total_size=total,
        page_size=size,
    )
