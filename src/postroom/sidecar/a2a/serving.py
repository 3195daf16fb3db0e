"""Live A2A over NATS (docs/architecture.md, The ephemeral path): what others ask of this worker, and callers of others.

The subject proves the sender. It sees the tasks that it asked this worker for; to it, any other does not exist. It
cannot begin a task here: only a record on its own subject in this worker's inbox proves the requester for good.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import NoReturn, Protocol

from postroom.errors import Conflict, NotFound
from postroom.protocol import subjects
from postroom.protocol.intervals import CALL_BEAT
from postroom.sidecar.a2a.changes import Records, TaskChange, TaskChanges, numbered
from postroom.tasks.log import StoredTask
from postroom_a2a.binding.frames import Flow
from postroom_a2a.bounds import ConcurrencyLimit
from postroom_a2a.json_operations import JsonOperations
from postroom_a2a.live.calling import CoreCaller
from postroom_a2a.live.serving import CoreServer
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import Frame
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.service import TaskPage, TaskQuery, TaskService, TaskVersion
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Message, Task

EACH = 8
"""Calls and streams of one caller at a time: half of those of all callers."""

CANCEL_WAIT = 20.0
"""Seconds that a cancel waits for the end of its task, which it reaches in any case."""


class StoredTasks(Records, Protocol):
    """This worker's tasks, as the control plane has them."""

    async def get(self, task_id: str) -> StoredTask:
        """A task as it is stored."""
        ...

    async def page(self, role: str, other: str, query: TaskQuery, /) -> TaskPage:
        """A page of the tasks that this worker runs, for that requester."""
        ...


class Engine(Protocol):
    """Works on the tasks."""

    async def cancel(self, task: str, by: str, reason: str = "") -> None:
        """End a task."""
        ...


class ServedTasks(TaskService):
    """The tasks of this worker, for others."""

    def __init__(
        self, task_client: StoredTasks, changes: TaskChanges, engine: Engine, own: str
    ) -> None:
        self._task_client = task_client
        self._changes = changes
        self._engine = engine
        self._own = own

    async def submit(self, _message: Message, requester: str, *, follow: bool) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        raise self._refusal(requester)

    async def answer(self, _task: str, _message: Message, requester: str) -> NoReturn:
        """Refuse."""
        raise self._refusal(requester)

    def _refusal(self, requester: str) -> RpcError:
        inbox = subjects.inbox(self._own, requester)
        said = "a task for a worker is stored first: send it to its inbox, then subscribe to it"
        return RpcError(Code.UNSUPPORTED_OPERATION, said, inbox=inbox)

    async def get(self, task: str, requester: str) -> TaskVersion:
        stored = await self._task_client.get(task)
        if stored.record.requester != requester:
            raise NotFound("there is no such task")
        return TaskVersion(stored.record.task, stored.sequence)

    async def wait(self, _task: str, requester: str, _seconds: float) -> NoReturn:
        """Refuse."""
        raise self._refusal(requester)

    async def list(self, query: TaskQuery, requester: str) -> TaskPage:
        return await self._task_client.page("worker", requester, query)

    async def cancel(self, task: str, requester: str) -> Task:
        state = (await self.get(task, requester)).state
        if not state.terminal:
            try:
                async with asyncio.timeout(CANCEL_WAIT):
                    await self._engine.cancel(task, requester)
            except TimeoutError:
                return (await self.get(task, requester)).task
            version = await self.get(task, requester)
            state = version.state
            if state is TaskState.CANCELED:
                return version.task
        raise Conflict(f"it is {state.value}")

    async def follow(
        self, task: str, _requester: str, after: int
    ) -> AsyncGenerator[TaskChange, None]:
        """As `TaskService.follow`; each event has the sequence of its record."""
        async with aclosing(self._changes.follow(self._task_client, task, after)) as changes:
            async for change in changes:
                event = change.event and numbered(change.event, change.after, change.sequence)
                yield replace(change, event=event)


class ServingOperations(JsonOperations):
    """The operations of this worker, for others."""

    def __init__(self, tasks: ServedTasks) -> None:
        super().__init__(tasks)
        self._each = ConcurrencyLimit(
            EACH, lambda: RpcError(Code.SERVER_BUSY, "you ask too much at once; try again later")
        )

    async def answer(self, call: Call) -> bytes:
        with self._each.slot(call.caller):
            return await super().answer(call)

    async def stream(self, call: Call) -> AsyncGenerator[bytes]:
        with self._each.slot(call.caller):
            async with aclosing(super().stream(call)) as events:
                async for event in events:
                    yield event


CONCURRENCY = 16
"""Calls at a time; the answer to a further one is that the worker is busy."""

MAX_REQUEST = 64 * 1024
"""Bytes of a call. A larger one is dropped unread, which saves the time to parse it: no valid call is so large."""

FLOW = Flow(window=8, beat=CALL_BEAT)
"""Flow control of a stream: at most so many frames, each a message of the bus, lie unread."""

RATE = 200
"""Calls of one caller in a second; further ones are dropped unread: even refusals would take all of the time."""

DRAIN = 1.0
"""Seconds for calls to end when the worker is stopped."""


def rpc_server(mailbox: Mailbox, own: str, operations: Operations) -> CoreServer:
    """The server of the worker's `rpc` subject; it answers only callers with a reply subject of their own."""
    return CoreServer(
        mailbox.connection,
        subjects.rpc(own, "*"),
        operations,
        queue=own,
        concurrency=CONCURRENCY,
        admit=admission(own),
        drain=DRAIN,
        inbox=lambda caller: f"_I.{own}.{caller}",
        within=mailbox,
    )


def admission(own: str) -> Callable[[Frame], str | None]:
    """A function that gives a frame's caller; None if the frame is too large, one too many, or would be answered to
    another agent.
    """
    heard: Counter[str] = Counter()
    second = 0

    def admit(frame: Frame) -> str | None:
        nonlocal second
        if (now := int(time.monotonic())) != second:
            second = now
            heard.clear()
        heard[frame.subject] += 1
        if heard[frame.subject] > RATE or len(frame.data) > MAX_REQUEST:
            return None
        if not subjects.accepts_rpc(own, frame.subject, frame.reply):
            return None
        return subjects.sender_of(frame.subject)

    return admit


def rpc_caller(mailbox: Mailbox, own: str, worker: str) -> CoreCaller:
    """The caller of another worker's `rpc` subject."""
    subject = subjects.rpc(worker, own).removesuffix(f".{own}")
    return CoreCaller(mailbox.connection, subject, within=mailbox, sender=own, flow=FLOW)
