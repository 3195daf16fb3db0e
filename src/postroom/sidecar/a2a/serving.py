"""What other agents may ask of this worker by A2A, over the ephemeral path (docs/architecture.md, The ephemeral path).

Who asks is proven by the subject. They see the tasks that they asked this worker for, and nothing of any other; a task
that is another's looks as if there were none. They begin nothing here: only a record on their own subject in this
worker's inbox proves for good who wanted a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NoReturn, Protocol

from postroom.errors import NotFound
from postroom.protocol import subjects
from postroom.sidecar.a2a.asking import listed
from postroom.sidecar.a2a.changes import Changes, Records, until_over
from postroom.sidecar.a2a.methods import WAIT, Methods, Params, no_task
from postroom.sidecar.a2a.params import Listing, history_length, name_param, shortened
from postroom.tasks.log import StoredTask
from postroom_a2a.limits import ConcurrencyLimit
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event

SEQUENCE = "urn:postroom:a2a:sequence:1"
"""Key in the metadata of what is streamed: the sequence of its record, and `after`, that of the one before."""

EACH = 8
"""Calls and streams of one caller that are worked on at a time: of what all callers share, half is for others."""

CANCEL_WAIT = 20.0
"""Seconds that a cancel waits for the end of its task; it is told to it in any case."""


class Ledger(Records, Protocol):
    """What the control plane knows of this worker's tasks."""

    async def get(self, task_id: str) -> StoredTask:
        """A task as it is stored."""
        ...

    async def views(self, role: str, *, open_only: bool, other: str) -> list[dict[str, Any]]:
        """TaskViews without artifacts."""
        ...

    async def snapshot(self, task_id: str, /) -> dict[str, Any]:
        """A task as A2A JSON."""
        ...


class Engine(Protocol):
    """Works on the tasks."""

    async def cancel(self, task: str, by: str, reason: str = "") -> None:
        """End a task."""
        ...


class ServingOperations(Methods):
    """The operations of this worker, for others.

    Args:
        ledger: what is stored of its tasks.
        changes: news of them.
        engine: works on them.
        own: uid of the worker.
    """

    def __init__(self, ledger: Ledger, changes: Changes, engine: Engine, own: str) -> None:
        super().__init__(
            {
                "SendMessage": self._refuse,
                "GetTask": self._get,
                "ListTasks": self._list,
                "CancelTask": self._cancel,
            },
            {"SendStreamingMessage": self._refuse_stream, "SubscribeToTask": self._subscribe},
        )
        self._ledger = ledger
        self._changes = changes
        self._engine = engine
        self._own = own
        self._limit = ConcurrencyLimit(
            EACH, lambda: RpcError(Code.SERVER_BUSY, "you ask too much at once; try again later")
        )

    async def answer(self, call: Call) -> bytes:
        """As `Operations.answer`."""
        with self._limit.slot(call.caller):
            return await super().answer(call)

    async def stream(self, call: Call) -> AsyncGenerator[bytes]:
        """As `Operations.stream`."""
        with self._limit.slot(call.caller):
            async with aclosing(super().stream(call)) as events:
                async for event in events:
                    yield event

    async def _refuse(self, _: Params, call: Call) -> NoReturn:
        raise self._refusal(call)

    async def _refuse_stream(self, _: Params, call: Call) -> AsyncGenerator[dict[str, Any], None]:
        raise self._refusal(call)
        yield {}  # a generator, as streams are

    def _refusal(self, call: Call) -> RpcError:
        inbox = subjects.inbox(self._own, call.caller)
        said = "a task for a worker is stored first: send it to its inbox, then subscribe to it"
        return RpcError(Code.UNSUPPORTED_OPERATION, said, inbox=inbox)

    async def _get(self, params: Params, call: Call) -> dict[str, Any]:
        task, limit = name_param(params, "id"), history_length(params)
        return shortened((await self._found(task, call)).record.task, limit)

    async def _list(self, params: Params, call: Call) -> dict[str, Any]:
        listing = Listing.of(params)
        views = await self._ledger.views("worker", open_only=False, other=call.caller)
        return await listed(views, listing, self._ledger)

    async def _cancel(self, params: Params, call: Call) -> dict[str, Any]:
        task = name_param(params, "id")
        state = (await self._found(task, call)).record.state
        if not state.terminal:
            try:
                async with asyncio.timeout(CANCEL_WAIT):
                    await self._engine.cancel(task, call.caller)
            except TimeoutError:
                return (await self._found(task, call)).record.task
            stored = await self._found(task, call)
            state = stored.record.state
            if state is TaskState.CANCELED:
                return stored.record.task
        raise RpcError(Code.TASK_NOT_CANCELABLE, f"it is {state.value}", taskId=task)

    async def _subscribe(self, params: Params, call: Call) -> AsyncGenerator[dict[str, Any], None]:
        task = name_param(params, "id")
        stored = await self._found(task, call)
        if stored.record.state.terminal:
            said = f"it is {stored.record.state.value}"
            raise RpcError(Code.UNSUPPORTED_OPERATION, said, taskId=task)
        yield numbered({"task": stored.record.task}, 0, stored.sequence)
        follow = self._changes.follow(self._ledger, task, stored.sequence)
        async with aclosing(until_over(follow, WAIT)) as changes:
            async for change in changes:
                if change.event is not None:
                    yield numbered(change.event, change.after, change.sequence)

    async def _found(self, task: str, call: Call) -> StoredTask:
        try:
            stored = await self._ledger.get(task)
        except NotFound as error:
            raise no_task(task) from error
        if stored.record.requester != call.caller:
            raise no_task(task)
        return stored


def numbered(event: Event, after: int, sequence: int) -> Event:
    """An event that says which record it is."""
    ((kind, said),) = event.items()
    number = {SEQUENCE: {"after": after, "sequence": sequence}}
    return {kind: {**said, "metadata": {**said.get("metadata", {}), **number}}}
