"""Tasks of an SDK agent in a KV bucket, for any number of replicas (docs/binding.md, Task store).

A write must know the last state, whichever replica saved it. So two writers cannot overwrite each other, and none
overwrites a task that has ended.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
from bisect import insort
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from a2a.server.owner_resolver import OwnerResolver, resolve_user_scope
from a2a.server.tasks.task_store import TaskStore
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import ListTasksCursor, decode_list_tasks_cursor, encode_list_tasks_cursor
from google.protobuf.message import DecodeError

from a2a import types
from postroom_a2a.errors import (
    BusDisconnected,
    Conflict,
    LostUpdate,
    MessageTooLarge,
    NoResponders,
    ProtocolViolation,
    RequestTimeout,
)
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.kv import Bucket, BucketEntry, BucketSettings
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import Connection
from postroom_a2a.retry import Backoff

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext

BUCKET = "A2A_TASKS"

KEEP = 7 * 86_400.0
"""Seconds that the store keeps an ended task by default."""

MAX_KNOWN = 65_536
"""Tasks whose last revision a store remembers."""

FINAL = frozenset(
    {
        types.TaskState.TASK_STATE_COMPLETED,
        types.TaskState.TASK_STATE_FAILED,
        types.TaskState.TASK_STATE_CANCELED,
        types.TaskState.TASK_STATE_REJECTED,
    }
)

_RESTING = FINAL | {
    types.TaskState.TASK_STATE_INPUT_REQUIRED,
    types.TaskState.TASK_STATE_AUTH_REQUIRED,
}
"""States in which no agent works on a task."""

RETRY_FOR = 30.0
"""Seconds of retries for a save while JetStream cannot be reached (nats-server restarts)."""

_PLAIN = re.compile(r"[-A-Za-z0-9_]{1,128}")

_Place = tuple[bool, int, str]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    """A store's knowledge of a task; `doubt` has the payloads of saves with an unknown end."""

    revision: int
    final: bool
    writing: bool
    doubt: frozenset[bytes] = frozenset()


class Entry(Protocol):
    """A stored task in protobuf."""

    @property
    def key(self) -> str:
        """Where it is."""

    @property
    def value(self) -> bytes:
        """The task."""

    @property
    def revision(self) -> int:
        """Of the last write."""


class Entries(Protocol):
    """Where tasks are stored; a bucket is one."""

    async def create(self, key: str, value: bytes, *, ttl: float = 0.0) -> int:
        """Store a new entry; returns its revision, raises LostUpdate if there is one."""

    async def update(self, key: str, value: bytes, revision: int, *, ttl: float = 0.0) -> int:
        """Replace the entry of that revision; returns the new one, raises LostUpdate if it has another."""

    async def get(self, key: str, *, fresh: bool = True) -> Entry | None:
        """The entry at `key`."""

    async def purge(self, key: str) -> None:
        """Delete it."""


class StoredTasks(TaskStore):
    """The SDK's task store on what keeps revisions, but for its lists.

    The first `save` of a task that this store has not read creates it; a further one replaces the state that the store
    wrote or read last. So of two replicas that work on one task, one gets `LostUpdate`.

    Args:
        owner: gives the owner of a call's task; a caller sees only tasks of its owner.
        keep: seconds that an ended task stays, if the bucket can expire keys; 0 for no expiry.
        retry_for: seconds of retries for a save while JetStream cannot be reached.
    """

    def __init__(
        self,
        entries: Entries,
        *,
        owner: OwnerResolver = resolve_user_scope,
        keep: float = KEEP,
        retry_for: float = RETRY_FOR,
    ) -> None:
        self._entries = entries
        self._owner = owner
        self._keep = keep
        self._retry_for = retry_for
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def save(self, task: types.Task, context: ServerCallContext) -> None:
        """Save a task.

        Raises:
            LostUpdate: another writer changed the task since this store wrote or read it.
            Conflict: the task has ended, and this is another state.
            MessageTooLarge: the task does not fit into one message.
            RequestTimeout, BusDisconnected, NoResponders: JetStream could not be reached for `retry_for` seconds.
            As `Bucket.put`.
        """
        key = self._key(task.id, context)
        payload = task.SerializeToString(deterministic=True)
        state = task.status.state
        known = self._known.get(key)
        if known is not None and known.final:
            entry = await self._entries.get(key, fresh=True)
            if entry is None or entry.value != payload:
                raise Conflict(f"the task {task.id} has ended and cannot change any more")
            return
        ttl = self._keep if state in FINAL else 0.0
        try:
            revision = await self._persist(key, payload, known, ttl)
        except LostUpdate as error:
            self._known.pop(key, None)
            raise LostUpdate(f"another writer changed the task {task.id}") from error
        except MessageTooLarge as error:
            raise MessageTooLarge(
                f"the task {task.id} is too large to be kept: {error.message}",
                remedy="keep large content elsewhere, or raise max_payload of nats-server",
            ) from error
        self._remember(key, _Known(revision, state in FINAL, writing=state not in _RESTING))

    async def _persist(self, key: str, payload: bytes, known: _Known | None, ttl: float) -> int:
        """Write, with retries for a time while JetStream cannot be reached."""
        loop = asyncio.get_running_loop()
        give_up, backoff = loop.time() + self._retry_for, Backoff(0.1, 4.0)
        while True:
            try:
                return await self._write(key, payload, known, ttl)
            except (RequestTimeout, BusDisconnected, NoResponders):
                before, doubt = (known.revision, known.doubt) if known else (0, frozenset())
                known = _Known(before, final=False, writing=True, doubt=doubt | {payload})
                self._remember(key, known)
                pause = backoff.next()
                if loop.time() + pause >= give_up:
                    raise
            await asyncio.sleep(pause)

    async def _write(self, key: str, payload: bytes, known: _Known | None, ttl: float) -> int:
        if known is None:
            return await self._entries.create(key, payload, ttl=ttl)
        try:
            return await self._entries.update(key, payload, known.revision, ttl=ttl)
        except LostUpdate:
            entry = await self._entries.get(key, fresh=True) if known.doubt else None
            if entry is None or entry.value not in known.doubt:
                raise
            return await self._entries.update(key, payload, entry.revision, ttl=ttl)

    async def get(self, task_id: str, context: ServerCallContext) -> types.Task | None:
        """The task; None if the caller's owner has none of that id.

        Raises:
            ProtocolViolation: the stored value is not a task.
            As `Bucket.get`.
        """
        key = self._key(task_id, context)
        entry = await self._entries.get(key, fresh=True)
        if entry is None:
            self._known.pop(key, None)
            return None
        task = task_in(entry)
        known = self._known.get(key)
        # A writer must go on from its own last write: reading in between must not hide another writer.
        if known is None or not known.writing:
            self._remember(key, _Known(entry.revision, task.status.state in FINAL, writing=False))
        return task

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Remove a task; a missing one is no error.

        Raises:
            As `Bucket.put`.
        """
        key = self._key(task_id, context)
        self._known.pop(key, None)
        if await self._entries.get(key, fresh=True) is not None:
            await self._entries.purge(key)

    def _key(self, task_id: str, context: ServerCallContext) -> str:
        return key_of(self._owner(context), task_id)

    def _remember(self, key: str, known: _Known) -> None:
        self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


class KvTaskStore(StoredTasks):
    """The SDK's task store on one bucket; the rules of a save and the arguments are those of `StoredTasks`."""

    def __init__(
        self,
        bucket: Bucket,
        *,
        owner: OwnerResolver = resolve_user_scope,
        keep: float = KEEP,
        retry_for: float = RETRY_FOR,
    ) -> None:
        super().__init__(bucket, owner=owner, keep=keep, retry_for=retry_for)
        self._bucket = bucket

    @classmethod
    async def open(
        cls,
        connection: Connection | JetStream,
        *,
        bucket: str = BUCKET,
        settings: BucketSettings | None = None,
        owner: OwnerResolver = resolve_user_scope,
        keep: float = KEEP,
        retry_for: float = RETRY_FOR,
    ) -> KvTaskStore:
        """A store in the bucket of that name; a missing bucket is made.

        Args:
            bucket: agents that must not see each other's tasks need one each.

        Raises:
            As `Bucket.open`.
        """
        js = connection if isinstance(connection, JetStream) else JetStream(Mailbox(connection))
        opened = await Bucket.open(js, bucket, settings or BucketSettings(key_ttl=True))
        return cls(opened, owner=owner, keep=keep, retry_for=retry_for)

    async def list(
        self, params: types.ListTasksRequest, context: ServerCallContext
    ) -> types.ListTasksResponse:
        """A page of the owner's tasks, the last changed first; this reads every task of the owner.

        Raises:
            InvalidParamsError: the page token is not one of ours.
            As `Bucket.watch`.
        """
        after = cursor_of(params.page_token)
        size = params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
        page: list[tuple[_Place, bytes]] = []
        total = rest = 0
        filter_ = f"{owner_token(self._owner(context))}.*"
        async with aclosing(self._bucket.watch(filter_)) as entries:
            async for entry in entries:
                if entry is None:
                    break
                task = None if entry.deleted else _listed(entry)
                if task is None or not _wanted(task, params):
                    continue
                total += 1
                place = _place(task)
                if after is None or place < after:
                    rest += 1
                    insort(page, (place, entry.value))
                    del page[:-size]  # the last of them are the first of the list
        tasks = [types.Task.FromString(payload) for _, payload in reversed(page)]
        return types.ListTasksResponse(
            tasks=tasks,
            next_page_token=page_token(tasks[-1]) if rest > size else "",
            total_size=total,
            page_size=size,
        )


def key_of(owner: str, task: str) -> str:
    """The key of an owner's task."""
    return f"{owner_token(owner)}.{owner_token(task)}"


def owner_token(value: str) -> str:
    """An owner or an id as one token of a key; different values give different tokens."""
    if _PLAIN.fullmatch(value):
        return value
    if len(said := value.encode("utf-8", "surrogatepass")) > 96:
        return f"=={hashlib.sha256(said).hexdigest()}"
    return f"={base64.urlsafe_b64encode(said).decode().rstrip('=')}"


def task_in(entry: Entry) -> types.Task:
    """The task in an entry; a ProtocolViolation if it is none."""
    try:
        return types.Task.FromString(entry.value)
    except DecodeError as error:
        raise ProtocolViolation(f"the value of {entry.key!r} is not a task") from error


def _listed(entry: BucketEntry) -> types.Task | None:
    try:
        return task_in(entry)
    except ProtocolViolation as error:
        _log.warning("left out of a list of tasks: %s", error)
        return None


def _wanted(task: types.Task, params: types.ListTasksRequest) -> bool:
    if params.context_id and task.context_id != params.context_id:
        return False
    if params.status and task.status.state != params.status:
        return False
    if not params.HasField("status_timestamp_after"):
        return True
    since = params.status_timestamp_after.ToNanoseconds()
    stated, at, _ = _place(task)
    return stated and at >= since


def _place(task: types.Task) -> _Place:
    """The sort key of a task in a list, in the order of the SDK's stores."""
    stated = task.status.HasField("timestamp")
    return stated, task.status.timestamp.ToNanoseconds() if stated else 0, task.id


def cursor_of(page_token: str) -> _Place | None:
    """The place after which a page begins; None for the first."""
    if not page_token:
        return None
    cursor = decode_list_tasks_cursor(page_token)
    if cursor is None:
        raise InvalidParamsError(f"Invalid page token: {page_token}")
    return cursor.sort_key()


def page_token(last: types.Task) -> str:
    """The token of the page after the one that ends with `last`."""
    stated, at, task_id = _place(last)
    return encode_list_tasks_cursor(ListTasksCursor(at if stated else None, task_id))
