"""Live A2A requests of other agents to this worker (docs/architecture.md, The ephemeral path).

The subject proves the sender. It sees the tasks that it asked this worker for; to it, any other does not exist. It
cannot begin a task here: only a record on its own subject in this worker's inbox proves the requester for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import NoReturn, Protocol

from postroom.errors import Conflict, NotFound
from postroom.protocol import subjects
from postroom.sidecar.a2a.changes import Records, TaskChange, TaskChanges, numbered
from postroom.tasks.log import StoredTask
from postroom_a2a.json_operations import JsonOperations
from postroom_a2a.limits import ConcurrencyLimit
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.service import TaskPage, TaskQuery, TaskVersion
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


class ServedTasks:
    """The tasks of this worker, for others; implements `postroom_a2a.service.TaskService`."""

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
        """As `TaskService.get`."""
        stored = await self._task_client.get(task)
        if stored.record.requester != requester:
            raise NotFound("there is no such task")
        return TaskVersion(stored.record.task, stored.sequence)

    async def wait(self, _task: str, requester: str, _seconds: float) -> NoReturn:
        """Refuse."""
        raise self._refusal(requester)

    async def list(self, query: TaskQuery, requester: str) -> TaskPage:
        """As `TaskService.list`."""
        return await self._task_client.page("worker", requester, query)

    async def cancel(self, task: str, requester: str) -> Task:
        """As `TaskService.cancel`."""
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
        """As `Operations.answer`."""
        with self._each.slot(call.caller):
            return await super().answer(call)

    async def stream(self, call: Call) -> AsyncGenerator[bytes]:
        """As `Operations.stream`."""
        with self._each.slot(call.caller):
            async with aclosing(super().stream(call)) as events:
                async for event in events:
                    yield event
