"""Any `RequestHandler` of the SDK as `Operations`.

Rules: docs/binding.md, Operations and Errors.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from a2a.auth.user import UnauthenticatedUser, User
from a2a.server.context import ServerCallContext
from a2a.utils.errors import A2AError, TaskNotCancelableError
from google.protobuf.message import DecodeError, Message

from a2a import types
from postroom_a2a.binding.frames import CONTENT
from postroom_a2a.errors import MessageTooLarge, PostroomError
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.translation import METHODS
from postroom_a2a.sdk.translation.table import OPERATIONS, Dialect, Operation, rpc_error
from postroom_a2a.sdk.translation.versions import V03, V10

if TYPE_CHECKING:
    from a2a.server.request_handlers.request_handler import RequestHandler

    from postroom_a2a.sdk.references import LargeContent

VERSION = "a2a-version"
EXTENSIONS = frozenset({"a2a-extensions", "x-a2a-extensions"})
"""Names of service parameters in lower case; the second of these is 0.3's."""

_WAITING = frozenset(
    {types.TaskState.TASK_STATE_INPUT_REQUIRED, types.TaskState.TASK_STATE_AUTH_REQUIRED}
)
_NOBODY = UnauthenticatedUser()
_ANSWERS: dict[type, str] = {types.Task: "task", types.Message: "message"}
_EVENTS: dict[type, str] = {
    **_ANSWERS,
    types.TaskStatusUpdateEvent: "status_update",
    types.TaskArtifactUpdateEvent: "artifact_update",
}
_HELD = {types.SendMessageResponse: _ANSWERS, types.StreamResponse: _EVENTS}


def _described(kind: Any) -> Any:
    return kind.DESCRIPTOR


# (type of the holder, type held) -> the member's name in JSON, and its tag: a holder is written around what it would
# hold, without a copy of it.
_AROUND = {
    (holder, held): (member.json_name.encode(), bytes([member.number << 3 | 2]))
    for holder, names in _HELD.items()
    for held, name in names.items()
    for member in (_described(holder).fields_by_name[name],)
}

_log = logging.getLogger(__name__)


class Requester(User):
    """A caller that the server has proof of, as the SDK's `User`."""

    def __init__(self, uid: str) -> None:
        self._uid = uid

    @property
    def is_authenticated(self) -> bool:
        """True: the server has proof."""
        return True

    @property
    def user_name(self) -> str:
        """The caller's uid."""
        return self._uid


def user_of(call: Call) -> User:
    """The proven caller as the SDK's `User`; without proof, an unauthenticated one."""
    return Requester(call.caller) if call.caller else _NOBODY


@dataclass(frozen=True, slots=True)
class _Method:
    """A method of either version, and the handler's function for it."""

    operation: Operation
    dialect: Dialect
    perform: Callable[[Any, ServerCallContext], Any]


class SdkOperations(Operations):
    """The operations of an SDK `RequestHandler`, in both versions of A2A and both encodings.

    The handler's context has the service parameters in `state["headers"]`, each under its name as sent and in lower
    case, as with the SDK's HTTP servers; further `state["method"]`, `state["request_id"]`, and `state["task_id"]` where
    the server chooses the id of a task.

    Args:
        user: gives the handler the user of a call.
        content: stores large content that a caller takes by reference; None sends all content along.
    """

    def __init__(
        self,
        handler: RequestHandler,
        *,
        user: Callable[[Call], User] = user_of,
        content: LargeContent | None = None,
    ) -> None:
        self._user = user
        self._content = content
        self._handler = handler
        self._at_work = getattr(handler, "at_work", None)
        self._methods = {
            name: _Method(operation, dialect, getattr(handler, operation.handler))
            for name, (operation, dialect) in METHODS.items()
        }
        legacy = self._methods[OPERATIONS["GetTaskPushNotificationConfig"].legacy]
        self._methods[legacy.operation.legacy] = replace(legacy, perform=self._push_config)

    def streams(self, method: str) -> bool:
        """Whether `method` answers with a stream."""
        found = self._methods.get(method)
        return found is not None and found.operation.streams

    def begins(self, method: str) -> bool:
        """Whether `method` may begin work."""
        found = self._methods.get(method)
        return found is not None and found.operation.begins

    async def answer(self, call: Call) -> bytes:
        method = self._method(call, streams=False)
        try:
            request = _read(call, method)
            context = self._context(call, method, request)
            _note_task(call, method, request)
            result = await method.perform(request, context)
            if self._content is not None:
                result = await self._fitting(result, context)
            return _write(call, method, result, request)
        except RpcError as error:
            error.plain = method.dialect is V03
            raise
        except Exception as error:
            raise _refusal(error, call, method) from error

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        method = self._method(call, streams=True)
        try:
            request = _read(call, method)
            context = self._context(call, method, request)
            _note_task(call, method, request)
            async with aclosing(method.perform(request, context)) as events:
                async for event in events:
                    yield _write(call, method, await self._fitting(event, context), request)
        except RpcError as error:
            error.plain = method.dialect is V03
            raise
        except Exception as error:
            raise _refusal(error, call, method) from error

    async def _push_config(
        self, asked: types.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> types.TaskPushNotificationConfig:
        """One push setting; 0.3 may name just the task, and means the one that was made so, or else the first."""
        handler = self._handler
        if asked.id:
            return await handler.on_get_task_push_notification_config(asked, context)
        every = types.ListTaskPushNotificationConfigsRequest(task_id=asked.task_id)
        there = (await handler.on_list_task_push_notification_configs(every, context)).configs
        found = next((each for each in there if each.id == asked.task_id), None)
        if found is None and not there:
            raise RpcError(Code.TASK_NOT_FOUND, f"no push notification of {asked.task_id} is set")
        return found or there[0]

    # ── for a door that keeps requests ──────────────────────────────────────────────────────────────

    def at_work(self, call: Call) -> Callable[[], Awaitable[None]] | None:
        """The wait for work that goes on after the call's answer; None if no work does."""
        return self._at_work(call.task_id) if self._at_work and call.task_id else None

    async def lost(self, call: Call) -> bytes | None:
        """End the task of a call that a process began and did not end.

        Returns:
            The task as the call's result; None where the agent knows none, or the task still waits for this call.
        """
        method = self._method(call, streams=self.streams(call.method))
        try:
            request = _read(call, method)
            context = self._context(call, method, request)
            answers = _note_task(call, method, request)
            task = await self._end(call.task_id, context)
            if task is None or (answers and task.status.state in _WAITING):
                return None
            return _write(call, method, task, request)
        except (A2AError, RpcError):
            return None

    async def _end(self, task_id: str, context: ServerCallContext) -> types.Task | None:
        handler = self._handler
        if (lose := getattr(handler, "on_task_lost", None)) is not None:
            return await lose(task_id, context)
        try:
            return await handler.on_cancel_task(types.CancelTaskRequest(id=task_id), context)
        except TaskNotCancelableError:
            return await handler.on_get_task(types.GetTaskRequest(id=task_id), context)

    async def _fitting(self, result: Any, context: ServerCallContext) -> Any:
        """The result, with large content by reference if the caller asked for that."""
        if self._content is None or CONTENT not in context.requested_extensions:
            return result
        return await self._content.detach(result) if isinstance(result, Message) else result

    def _method(self, call: Call, *, streams: bool) -> _Method:
        method = self._methods.get(call.method)
        if method is None:
            raise RpcError(Code.METHOD_NOT_FOUND, f"Method not found: {call.method}")
        if method.operation.streams is not streams:
            rule = "with a stream" if method.operation.streams else "once"
            raise RpcError(Code.UNSUPPORTED_OPERATION, f"{call.method} answers {rule}")
        return method

    def _context(self, call: Call, method: _Method, request: Any) -> ServerCallContext:
        headers, extensions = _parameters(call.parameters, method.dialect)
        state: dict[str, Any] = {
            "headers": headers,
            "method": call.method,
            "request_id": call.id,
        }
        if call.task_id:
            state["task_id"] = call.task_id
        return ServerCallContext(
            user=self._user(call),
            state=state,
            tenant=request.tenant,
            requested_extensions=extensions,
        )


def _parameters(parameters: Mapping[str, str], dialect: Dialect) -> tuple[dict[str, str], set[str]]:
    """The service parameters in both spellings, and the extensions among them.

    Raises:
        RpcError: VERSION_NOT_SUPPORTED, if they state another major version than the method's.
    """
    headers: dict[str, str] = {}
    extensions: set[str] = set()
    if not parameters:
        return headers, extensions
    for name, value in parameters.items():
        small = name.lower()
        headers[name] = headers[small] = value
        if small == VERSION:
            major = value.strip().partition(".")[0]
            if major and major != dialect.version.partition(".")[0]:
                text = f"the method belongs to A2A {dialect.version}, not to version {value}"
                raise RpcError(Code.VERSION_NOT_SUPPORTED, text)
        elif small in EXTENSIONS:
            extensions.update(uri for each in value.split(",") if (uri := each.strip()))
    return headers, extensions


def _note_task(call: Call, method: _Method, request: Any) -> bool:
    """Put the task that a call answers into the call; returns whether it answers one."""
    if not method.operation.begins or not request.message.task_id:
        return False
    call.task_id = request.message.task_id
    return True


def _read(call: Call, method: _Method) -> Any:
    if not call.binary:
        return method.dialect.read_params(method.operation, call.params)
    if method.dialect is V03:
        raise RpcError(Code.CONTENT_TYPE_NOT_SUPPORTED, "A2A 0.3 has no protobuf on this binding")
    try:
        return method.operation.request.FromString(call.params or b"")
    except (DecodeError, TypeError) as error:
        name = method.operation.request.__name__
        raise RpcError(Code.INVALID_PARAMS, f"the params are not a {name}") from error


def _write(call: Call, method: _Method, result: Any, request: Any) -> bytes:
    operation = method.operation
    if operation.result is None:
        return b"" if call.binary else b"null"
    if result is None and operation.result is types.Task:
        raise RpcError(Code.TASK_NOT_FOUND, f"Task not found: {request.id}")
    around = _AROUND.get((operation.result, type(result)))
    if around is not None and method.dialect is V10:
        name, tag = around
        if not call.binary:
            return b'{"%b":%b}' % (name, method.dialect.result_text(operation, result, request))
        body = result.SerializeToString()
        return b"%b%b%b" % (tag, _varint(len(body)), body)
    message = result
    if not isinstance(result, operation.result):
        field = _HELD.get(operation.result, {}).get(type(result))
        if field is None:
            text = f"the agent answered {operation.name} with {type(result).__name__}"
            raise RpcError(Code.INVALID_AGENT_RESPONSE, text)
        message = operation.result(**{field: result})
    if call.binary:
        return message.SerializeToString()
    return method.dialect.result_text(operation, message, request)


def _varint(number: int) -> bytes:
    if number < 1 << 14:  # nearly every message
        return bytes((number & 127 | 128, number >> 7)) if number > 127 else bytes((number,))
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _refusal(error: Exception, call: Call, method: _Method) -> RpcError:
    """The error that answers the call; the text of an unexpected error goes only to the log."""
    if isinstance(error, A2AError):
        return rpc_error(error, method.dialect)
    if isinstance(error, PostroomError):
        refusal = RpcError.of(error)
        if isinstance(
            error, MessageTooLarge
        ):  # the request had room; what the agent made of it has none
            refusal.code = Code.INTERNAL_ERROR
    else:
        _log.error("%s failed", call.method, exc_info=error)
        refusal = RpcError(Code.INTERNAL_ERROR, "Internal error")
    refusal.plain = method.dialect is V03
    return refusal
