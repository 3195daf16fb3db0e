"""Live A2A with other workers: calls, and the changes of a task as the other worker streams them.

Such a stream is quick and proves nothing: frames may be lost, and the other worker may send anything. So it only feeds
`TaskChanges`, which reads gaps and the end of a task from the log. If the other worker does not answer or is killed,
the control plane's changes go on where the stream stopped.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from postroom.errors import InvalidInput, NoResponders, PostroomError, ProtocolViolation
from postroom.observe import get_logger
from postroom.protocol.intervals import CALL_SILENCE
from postroom.protocol.limits import MAX_TASK_VALUES, TASK_DEPTH
from postroom.sidecar.a2a.changes import SEQUENCE, Records, TaskChange, TaskChanges
from postroom_a2a.binding.frames import Request, Response
from postroom_a2a.json_operations import VERSION
from postroom_a2a.live.calling import Caller
from postroom_a2a.operations import Call
from postroom_a2a.rpc import RpcError
from postroom_a2a.strict_json import TooMuch, check, dumps
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, state_of

PEERS = 64
"""Agents whose answers can be received at a time."""

MOST_NESTED = TASK_DEPTH + 8
"""Nested objects and arrays in an answer, which contains a task."""

MOST_INSIDE = 2 * MAX_TASK_VALUES
"""Values in an answer. Each takes up to a hundred times its bytes in memory; larger tasks can be read from the log."""

_log = get_logger(__name__)

NewCaller = Callable[[str], Caller]
"""Makes a caller for the agent with that uid."""


class LivePeers:
    """Live calls to other agents, whose streams feed `changes`."""

    def __init__(self, caller: NewCaller, changes: TaskChanges, own: str) -> None:
        self._own = own
        self._new = caller
        self._changes = changes
        self._callers: OrderedDict[str, Caller] = OrderedDict()

    async def close(self) -> None:
        """Close all callers."""
        while self._callers:
            await self._callers.popitem()[1].close()

    async def call(self, worker: str, call: Call) -> Any:
        """The result of a call.

        Raises:
            RpcError: the agent's answer, or the agent does not run.
        """
        caller = await self._caller(worker)
        try:
            response = await caller.call(_request(call), timeout=CALL_SILENCE)
        except NoResponders as error:
            raise _unserved(worker) from error
        return _result(response)

    async def stream(self, worker: str, call: Call) -> AsyncGenerator[Any, None]:
        """The results of a call that streams. Raises as `call`."""
        caller = await self._caller(worker)
        try:
            async with aclosing(caller.stream(_request(call), timeout=CALL_SILENCE)) as responses:
                async for response in responses:
                    yield _result(response)
        except NoResponders as error:
            raise _unserved(worker) from error

    async def follow(
        self, records: Records, task: str, after: int, worker: str
    ) -> AsyncGenerator[TaskChange, None]:
        """As `TaskChanges.follow`, sooner while another worker streams the task."""
        if worker == self._own:
            async with aclosing(self._changes.follow(records, task, after)) as changes:
                async for change in changes:
                    yield change
            return
        feeding = asyncio.create_task(self._feed(task, worker))
        try:
            async with aclosing(self._changes.follow(records, task, after)) as changes:
                async for change in changes:
                    yield change
        finally:
            feeding.cancel()
            await asyncio.wait({feeding})
            if not feeding.cancelled() and (failure := feeding.exception()):
                _log.error("following task %s failed", task, exc_info=failure)

    async def _feed(self, task: str, worker: str) -> None:
        call = Call(None, "SubscribeToTask", {"id": task})
        begun = False
        try:
            async with aclosing(self.stream(worker, call)) as results:
                async for result in results:
                    if not begun:
                        self._changes.look(task)  # the stream lacks the changes before its begin
                        begun = True
                    if (change := _change(result, task)) is not None:
                        self._changes.put(task, change)
        except (RpcError, PostroomError) as error:
            _log.info("no live stream of task %s, its changes come from the log: %s", task, error)
        self._changes.look(task)  # the stream lacks the changes from now on

    async def _caller(self, worker: str) -> Caller:
        caller = self._callers.pop(worker, None) or self._new(worker)
        self._callers[worker] = caller
        if len(self._callers) > PEERS:
            await self._callers.popitem(last=False)[1].close()
        return caller


def _request(call: Call) -> Request:
    version = {"A2A-Version": VERSION, **call.parameters}
    return Request(secrets.token_hex(8), call.method, call.params, parameters=version)


def _result(response: Response) -> Any:
    if response.error is not None:
        raise response.error
    # A deeper answer could be read here but not written again.
    try:
        check(dumps(response.result), MOST_NESTED, MOST_INSIDE)
    except (TooMuch, RecursionError) as error:
        raise ProtocolViolation("the peer's answer has too much in it") from error
    return response.result


def _unserved(worker: str) -> RpcError:
    return RpcError.of(NoResponders(f"nobody serves {worker} at the moment"))


def _change(result: Any, task: str) -> TaskChange | None:
    """The change of `task` in a frame; None for the task itself, with which a stream begins."""
    match result:
        case dict() if len(result) != 1:
            pass
        case {"task": _}:
            return None
        case {
            "statusUpdate": {"taskId": about, "metadata": dict(metadata), "status": dict(status)}
        }:
            if about == task:
                return _numbered(result, metadata, _state(status))
        case {"artifactUpdate": {"taskId": about, "metadata": dict(metadata), "artifact": dict()}}:
            if about == task:
                return _numbered(result, metadata, TaskState.WORKING)
    raise ProtocolViolation("the peer streams something that is not a change of the task")


def _numbered(event: Event, metadata: dict[str, Any], state: TaskState) -> TaskChange:
    match metadata.get(SEQUENCE):
        case {"after": int(after), "sequence": int(sequence)} if 0 <= after < sequence < 2**53:
            return TaskChange(after, sequence, state, _bare(event), proven=False)
    raise ProtocolViolation("the peer streams a change without a number")


def _state(status: dict[str, Any]) -> TaskState:
    try:
        return state_of({"status": status})
    except InvalidInput as error:
        raise ProtocolViolation(str(error)) from error


def _bare(event: Event) -> Event:
    """The event as it is stored: without its number."""
    ((kind, said),) = event.items()
    metadata = {name: value for name, value in said["metadata"].items() if name != SEQUENCE}
    kept = {name: value for name, value in said.items() if name != "metadata"}
    return {kind: {**kept, "metadata": metadata} if metadata else kept}
