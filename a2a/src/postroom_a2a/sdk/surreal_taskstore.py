"""Tasks of an SDK agent in SurrealDB: the SDK's task store, and its versioned one for a cluster of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

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
from postroom_a2a.errors import LostUpdate
from postroom_a2a.sdk.surreal_rows import ANY, SurrealRows, place_key
from postroom_a2a.sdk.taskstore import (
    RETRY_FOR,
    StoredTasks,
    cursor_of,
    key_of,
    owner_token,
    page_token,
    task_in,
)
from postroom_a2a.surreal import Address

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.server.events.event_queue import Event

DATABASE = "a2a"
"""Where an address names none."""


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
