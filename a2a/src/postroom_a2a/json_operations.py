"""The operations of A2A 1.0 in JSON over any `TaskService`: no SDK, no protobuf."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Any

from postroom_a2a.bounds import ConcurrencyLimit
from postroom_a2a.ecma_json import dumps
from postroom_a2a.errors import (
    Conflict,
    EnvironmentFault,
    NotFound,
    PostroomError,
    RequestTimeout,
)
from postroom_a2a.operations import LAST_EVENT, Call, Numbered, Operations
from postroom_a2a.params import (
    camel,
    check_message,
    history_length,
    name_param,
    query_of,
    shortened,
)
from postroom_a2a.push_operations import PUSH, PushOperations, config_in
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.service import PushConfig, PushConfigs, TaskChange, TaskService
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Message, Task, new_task, state_of, whole_answer
from postroom_a2a.times import parse_time

VERSION = "1.0"

STREAMS = 32
"""Open streams of one agent's operations at a time."""

WAIT = 3600.0
"""Seconds that a call or a stream waits for its task; then it ends with the task's present state."""

REPEATED = "urn:postroom:a2a:repeated:1"
"""Key in the metadata of an answer to a message that was there before: true."""

BEGINNING = frozenset({"SendMessage", "SendStreamingMessage"})
STREAMING = frozenset({"SendStreamingMessage", "SubscribeToTask"})
UNSUPPORTED = frozenset({"GetExtendedAgentCard"})
"""Methods of A2A 1.0 without an implementation here: no card states a capability for them."""

Params = dict[str, Any]
Single = Callable[[Params, Call], Awaitable[Any]]
Events = AsyncGenerator[tuple[int, dict[str, Any]], None]
"""Results of a stream, each with the sequence of its change."""
Streaming = Callable[[Params, Call], Events]


class JsonOperations(Operations):
    """The operations of one agent; implements `postroom_a2a.operations.Operations`.

    Args:
        push: where changes are pushed; None for an agent without push notifications.
        streams: most open streams at a time.
    """

    def __init__(
        self, tasks: TaskService, *, push: PushConfigs | None = None, streams: int = STREAMS
    ) -> None:
        self._tasks = tasks
        self._push = push
        self._single: dict[str, Single] = {
            "SendMessage": self._send,
            "GetTask": self._get,
            "ListTasks": self._list,
            "CancelTask": self._cancel,
        }
        if push is not None:
            self._single |= PushOperations(push).methods
        self._streaming: dict[str, Streaming] = {
            "SendStreamingMessage": self._send_and_follow,
            "SubscribeToTask": self._subscribe,
        }
        self._limit = ConcurrencyLimit(
            streams,
            lambda: RpcError(Code.SERVER_BUSY, "too many streams are open; try again later"),
        )

    def streams(self, method: str) -> bool:
        return method in STREAMING

    def begins(self, method: str) -> bool:
        return method in BEGINNING

    async def answer(self, call: Call) -> bytes:
        params = read_params(call)
        perform = self._single.get(call.method)
        try:
            if perform is None:
                return await self.other(call)
            return dumps(await perform(params, call))
        except PostroomError as error:
            raise _refused(params, error) from error

    async def stream(self, call: Call) -> AsyncGenerator[bytes]:
        params = read_params(call)
        perform = self._streaming.get(call.method)
        if perform is None:
            raise not_offered(call.method)
        with self._limit.slot():
            try:
                async with aclosing(perform(params, call)) as events:
                    async for sequence, event in events:
                        yield Numbered.of(dumps(event), sequence)
            except PostroomError as error:
                raise _refused(params, error) from error

    async def other(self, call: Call) -> bytes:
        """Answer a call of any other method, for a subclass; the result is JSON text."""
        raise not_offered(call.method)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────

    async def _send(self, params: Params, call: Call) -> dict[str, Any]:
        message, configuration, limit = _send_params(params)
        requester, push = call.caller, await self._push_in(configuration, message, call)
        task = message.get("taskId") or ""
        if task:
            after, again = await self._answer(message, requester)
        else:
            (task, again), after = await self._tasks.submit(message, requester, follow=False), 0
        with _stored(task):
            await self._push_to(push, task, requester, after)
        version = None
        with _stored(task):
            if configuration.get("returnImmediately") is not True:
                version = await self._tasks.wait(task, requester, WAIT)
            found = (version or await self._tasks.get(task, requester)).task
        if (said := whole_answer(found)) and configuration.get("returnImmediately") is not True:
            return {"message": _marked(said, again)}
        return {"task": _marked(shortened(found, limit), again)}

    async def _send_and_follow(self, params: Params, call: Call) -> Events:
        last = _last_event(call)
        message, configuration, limit = _send_params(params)
        requester, push = call.caller, await self._push_in(configuration, message, call)
        if task := message.get("taskId") or "":
            after, again = await self._answer(message, requester)
            first = (await self._tasks.get(task, requester)).task
        else:
            # From the first change on: a stream that is opened later shows the same.
            (task, again), after = await self._tasks.submit(message, requester, follow=True), 0
            with _stored(task):
                first = _as_asked((await self._tasks.get(task, requester)).task)
        with _stored(task):
            await self._push_to(push, task, requester, after)
        if last is None:
            yield after, {"task": _marked(shortened(first, limit), again)}
        else:
            after = max(after, last)
        async with aclosing(self._following(task, requester, after)) as changes:
            async for change in changes:
                if change.event is not None:
                    yield change.sequence, change.event
                if change.settled:
                    return

    async def _push_in(
        self, configuration: Params, message: Message, call: Call
    ) -> PushConfig | None:
        """The push notification config of a send, checked before anything begins; None without."""
        given = configuration.get("taskPushNotificationConfig")
        if not given:
            return None
        if self._push is None:
            raise not_offered("CreateTaskPushNotificationConfig")
        config = config_in(given, message.get("taskId") or "", call.version)
        await self._push.check(config, call.caller)
        return config

    async def _push_to(
        self, config: PushConfig | None, task: str, requester: str, after: int
    ) -> None:
        if config is not None and self._push is not None:
            await self._push.create(replace(config, task=task), requester, after=after)

    async def _answer(self, message: Message, requester: str) -> tuple[int, bool]:
        """Answer a task's question; returns the sequence of the change that asked it, and whether it has had that."""
        task = name_param(message, "taskId")
        version = await self._tasks.get(task, requester)
        context = message.get("contextId") or ""
        if context and context != version.task["contextId"]:
            raise RpcError(Code.INVALID_PARAMS, "the task belongs to another context", taskId=task)
        try:
            again = await self._tasks.answer(task, message, requester)
        except Conflict as error:
            raise RpcError(Code.UNSUPPORTED_OPERATION, error.message, taskId=task) from error
        return version.sequence, again

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────

    async def _get(self, params: Params, call: Call) -> Task:
        task, limit = name_param(params, "id"), history_length(params)
        return shortened((await self._tasks.get(task, call.caller)).task, limit)

    async def _list(self, params: Params, call: Call) -> dict[str, Any]:
        query = query_of(params)
        page = await self._tasks.list(query, call.caller)
        return {
            "tasks": page.tasks,
            "nextPageToken": page.next_page,
            "pageSize": query.limit,
            "totalSize": page.total,
        }

    async def _cancel(self, params: Params, call: Call) -> Task:
        task = name_param(params, "id")
        try:
            return await self._tasks.cancel(task, call.caller)
        except Conflict as error:
            raise RpcError(Code.TASK_NOT_CANCELABLE, error.message, taskId=task) from error

    async def _subscribe(self, params: Params, call: Call) -> Events:
        task, requester, last = name_param(params, "id"), call.caller, _last_event(call)
        version = await self._tasks.get(task, requester)
        if version.state.terminal and (last is None or last >= version.sequence):
            text = f"the task is {version.state.value}: nothing follows"
            raise RpcError(Code.UNSUPPORTED_OPERATION, text, taskId=task)
        after = version.sequence
        if last is None:
            yield after, {"task": version.task}
        else:
            after = last
        async with aclosing(self._following(task, requester, after)) as changes:
            async for change in changes:
                if change.event is not None:
                    yield change.sequence, change.event

    async def _following(
        self, task: str, requester: str, after: int
    ) -> AsyncGenerator[TaskChange, None]:
        """The changes of a task until it ends, for `WAIT` seconds at most."""
        deadline = asyncio.get_running_loop().time() + WAIT
        async with aclosing(self._tasks.follow(task, requester, after)) as changes:
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        change = await anext(changes)
                except (StopAsyncIteration, TimeoutError):
                    return
                yield change


def read_params(call: Call) -> Params:
    """The parameters of a call.

    Raises:
        RpcError: the parameters are not an object, or in an encoding or version that this server does not speak.
    """
    if call.binary:
        raise RpcError(Code.CONTENT_TYPE_NOT_SUPPORTED, "this server takes only JSON")
    version = {name.lower(): value for name, value in call.parameters.items()}.get("a2a-version")
    if version is not None and version.split(".")[:2] != VERSION.split("."):
        raise not_spoken()
    if call.params is None:
        return {}
    if not isinstance(call.params, dict):
        raise RpcError(Code.INVALID_PARAMS, "'params' has to be an object")
    try:
        return camel(call.params)
    except RecursionError as error:
        raise RpcError(Code.INVALID_PARAMS, "'params' is nested too deep") from error


def _last_event(call: Call) -> int | None:
    """The sequence behind which a stream is to go on; None for a new one, also where another server's id is given."""
    named = {name.lower(): value for name, value in call.parameters.items()}
    text = named.get(LAST_EVENT.lower(), "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def not_spoken() -> RpcError:
    """The refusal of another version."""
    text = f"only A2A {VERSION} is spoken here: send the header A2A-Version: {VERSION}"
    return RpcError(Code.VERSION_NOT_SUPPORTED, text)


def not_offered(method: str) -> RpcError:
    """The refusal of a method."""
    if method in PUSH:
        return RpcError(Code.PUSH_NOTIFICATION_NOT_SUPPORTED, "there are no push notifications")
    if method in UNSUPPORTED | BEGINNING | STREAMING:
        return RpcError(Code.UNSUPPORTED_OPERATION, f"{method} is not offered here")
    return RpcError(Code.METHOD_NOT_FOUND, f"there is no method {method[:80]!r}")


@contextmanager
def _stored(task: str) -> Generator[None]:
    """Name the task, which is stored with what was said, in an error that leaves it open."""
    try:
        yield
    except (EnvironmentFault, RequestTimeout) as error:
        text = f"it is stored, as task {task}, and more cannot be said now: {error.message}"
        refusal = RpcError.of(error)
        refusal.message = f"{text} (send it again with the same messageId)"
        refusal.about["taskId"] = task
        raise refusal from error


def _refused(params: Params, error: PostroomError) -> RpcError:
    """The error of a failed call; the same for a missing task and another requester's task."""
    message = params.get("message")
    about = message if isinstance(message, dict) else params
    task = about.get("taskId") or params.get("id")
    if type(error) is NotFound and isinstance(task, str):
        return RpcError(Code.TASK_NOT_FOUND, "there is no such task", taskId=task)
    return RpcError.of(error)


def _send_params(params: Params) -> tuple[Message, dict[str, Any], int | None]:
    """Message, configuration and history length in the parameters of a send."""
    message = check_message(params)
    configuration = params.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise RpcError(Code.INVALID_PARAMS, "'configuration' has to be an object")
    return message, configuration, history_length(configuration)


def _marked(found: dict[str, Any], again: bool) -> dict[str, Any]:
    """A task or a message, which says so if it answers a repetition."""
    return (
        {**found, "metadata": {**(found.get("metadata") or {}), REPEATED: True}} if again else found
    )


def _as_asked(task: Task) -> Task:
    """The task as it was submitted."""
    history = task.get("history") or []
    if state_of(task) is TaskState.SUBMITTED or not history:
        return task
    at = parse_time(str(task["status"].get("timestamp", "1970-01-01T00:00:00Z")))
    return new_task(task["id"], task["contextId"], history[0], at)
