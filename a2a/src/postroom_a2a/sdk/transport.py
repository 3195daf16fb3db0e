"""The SDK's client transport over NATS: its operations over any `Caller`, in A2A 1.0 or 0.3, as JSON or protobuf.

After `register`, the SDK's `ClientFactory` makes clients for cards with a NATS interface.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from a2a.client import ClientConfig, ClientFactory
from a2a.client.client import ClientCallContext
from a2a.client.service_parameters import with_a2a_extensions
from a2a.client.transports.base import ClientTransport
from a2a.utils.constants import TransportProtocol
from a2a.utils.errors import A2AError
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Proto

from a2a import types
from postroom_a2a.binding.frames import CONTENT, Request, Response
from postroom_a2a.binding.subjects import (
    BINDINGS,
    CORE,
    CORE_BINARY,
    DURABLE_BINARY,
    SENDER_TOKEN,
    subject_of,
)
from postroom_a2a.durable.answer_reader import AnswerReader, shared
from postroom_a2a.durable.client import DurableCaller
from postroom_a2a.durable.streams import namespace_of
from postroom_a2a.errors import InvalidInput, PostroomError, ProtocolViolation, RequestTimeout
from postroom_a2a.live.calling import (
    RETRY,
    Caller,
    CoreCaller,
    RetryingCaller,
    new_id,
    reply_prefix,
)
from postroom_a2a.nats.deadlines import EXCEEDED
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.retry import RetryPolicy
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.errors import client_error
from postroom_a2a.sdk.translation import OPERATIONS, V03, V10, Dialect, Operation, a2a_error

if TYPE_CHECKING:
    from postroom_a2a.nats.port import Connection
    from postroom_a2a.sdk.references import LargeContent


TIMEOUT = 30.0
"""Seconds for an answer, and for the first frame of a stream, by default."""

CANCEL_TIMEOUT = 10.0
"""Seconds for the cancel of an abandoned task."""

VERSION = "A2A-Version"
EXTENSIONS = "A2A-Extensions"
LEGACY_EXTENSIONS = "X-A2A-Extensions"

_FINAL = frozenset(
    {
        types.TaskState.TASK_STATE_COMPLETED,
        types.TaskState.TASK_STATE_FAILED,
        types.TaskState.TASK_STATE_CANCELED,
        types.TaskState.TASK_STATE_REJECTED,
    }
)

_log = logging.getLogger(__name__)


class NatsA2ATransport(ClientTransport):
    """The operations of one agent; the connection below stays open when this is closed.

    Errors in an answer are the SDK's (`TaskNotFoundError`, ...); a call without an answer raises one of
    `postroom_a2a.sdk.errors`.

    Args:
        caller: closed with this.
        card: of the agent, None if unknown.
        binary: speak protobuf (1.0 only, to a server of this binding).
        timeout: seconds for an answer, and for the first frame of a stream; a call's context may state others.
        cancel_abandoned: cancel the task of a streamed message whose reader stops before its end.
        content: fetches large content that the agent sends by reference; None for no references.
    """

    def __init__(
        self,
        caller: Caller,
        card: types.AgentCard | None = None,
        *,
        dialect: Dialect = V10,
        binary: bool = False,
        timeout: float = TIMEOUT,
        cancel_abandoned: bool = False,
        content: LargeContent | None = None,
    ) -> None:
        self._caller = caller
        self._content = content
        self._card = card
        self._dialect = dialect
        self._binary = binary
        self._timeout = timeout
        self._cancel_abandoned = cancel_abandoned
        self._cancelling: set[asyncio.Task[None]] = set()
        # Protobuf frames are always 1.0, and 0.3 has no such parameter.
        self._stated = {VERSION: dialect.version} if dialect is V10 and not binary else {}

    async def send_message(
        self, request: types.SendMessageRequest, *, context: ClientCallContext | None = None
    ) -> types.SendMessageResponse:
        """Send a message and wait for its task or message."""
        return await self._call("SendMessage", request, context)

    async def send_message_streaming(
        self, request: types.SendMessageRequest, *, context: ClientCallContext | None = None
    ) -> AsyncGenerator[types.StreamResponse]:
        """Send a message and follow its task."""
        task_id, ended = "", False
        async with aclosing(self._stream("SendStreamingMessage", request, context)) as events:
            try:
                async for event in events:
                    task_id, ended = task_id or _task_of(event), ended or _is_last(event)
                    yield event
                ended = True
            except A2AError:
                ended = True  # the reader gets the error, and decides
                raise
            finally:
                if task_id and not ended and self._cancel_abandoned:
                    self._cancel_later(task_id, context)

    async def get_task(
        self, request: types.GetTaskRequest, *, context: ClientCallContext | None = None
    ) -> types.Task:
        """A task in its present state."""
        return await self._call("GetTask", request, context)

    async def list_tasks(
        self, request: types.ListTasksRequest, *, context: ClientCallContext | None = None
    ) -> types.ListTasksResponse:
        """A page of tasks; A2A 0.3 has no such operation."""
        return await self._call("ListTasks", request, context)

    async def cancel_task(
        self, request: types.CancelTaskRequest, *, context: ClientCallContext | None = None
    ) -> types.Task:
        """Cancel a task."""
        return await self._call("CancelTask", request, context)

    async def create_task_push_notification_config(
        self,
        request: types.TaskPushNotificationConfig,
        *,
        context: ClientCallContext | None = None,
    ) -> types.TaskPushNotificationConfig:
        """Set a URL for push notifications of a task."""
        return await self._call("CreateTaskPushNotificationConfig", request, context)

    async def get_task_push_notification_config(
        self,
        request: types.GetTaskPushNotificationConfigRequest,
        *,
        context: ClientCallContext | None = None,
    ) -> types.TaskPushNotificationConfig:
        """One push notification setting of a task."""
        return await self._call("GetTaskPushNotificationConfig", request, context)

    async def list_task_push_notification_configs(
        self,
        request: types.ListTaskPushNotificationConfigsRequest,
        *,
        context: ClientCallContext | None = None,
    ) -> types.ListTaskPushNotificationConfigsResponse:
        """All push notification settings of a task."""
        return await self._call("ListTaskPushNotificationConfigs", request, context)

    async def delete_task_push_notification_config(
        self,
        request: types.DeleteTaskPushNotificationConfigRequest,
        *,
        context: ClientCallContext | None = None,
    ) -> None:
        """Delete a push notification setting."""
        await self._call("DeleteTaskPushNotificationConfig", request, context)

    async def subscribe(
        self, request: types.SubscribeToTaskRequest, *, context: ClientCallContext | None = None
    ) -> AsyncGenerator[types.StreamResponse]:
        """A task in its present state, then its events."""
        async with aclosing(self._stream("SubscribeToTask", request, context)) as events:
            async for event in events:
                yield event

    async def get_extended_agent_card(
        self,
        request: types.GetExtendedAgentCardRequest,
        *,
        context: ClientCallContext | None = None,
    ) -> types.AgentCard:
        """The agent's card for known callers, or the card at hand if it has no other."""
        if self._card is not None and not self._card.capabilities.extended_agent_card:
            return self._card
        return await self._call("GetExtendedAgentCard", request, context)

    async def close(self) -> None:
        """Finish cancels on their way, and close the caller."""
        if self._cancelling:
            await asyncio.wait(self._cancelling, timeout=CANCEL_TIMEOUT)
        await self._caller.close()

    # ── one call ─────────────────────────────────────────────────────────────────────────────────────

    async def _call(self, name: str, message: Proto, context: ClientCallContext | None) -> Any:
        operation = OPERATIONS[name]
        try:
            request = self._request(operation, message, context)
            seconds = self._seconds(context)
            if context is not None and context.timeout:
                request.deadline = time.time() + seconds
            response = await self._caller.call(request, timeout=seconds)
            result = self._result(operation, response)
            return await self._whole(result) if self._content is not None else result
        except RpcError as error:
            raise a2a_error(error) from error
        except PostroomError as error:
            raise client_error(error) from error

    async def _stream(
        self, name: str, message: Proto, context: ClientCallContext | None
    ) -> AsyncGenerator[types.StreamResponse, None]:
        operation = OPERATIONS[name]
        try:
            request = self._request(operation, message, context)
            responses = self._caller.stream(request, timeout=self._seconds(context))
            async with aclosing(responses):
                async for response in responses:
                    yield await self._whole(self._result(operation, response))
        except RpcError as error:
            raise a2a_error(error) from error
        except PostroomError as error:
            raise client_error(error) from error

    def _request(
        self, operation: Operation, message: Proto, context: ClientCallContext | None
    ) -> Request:
        given = (context.service_parameters if context is not None else None) or {}
        parameters = {**self._stated, **given} if given else self._stated
        if self._content is not None:
            parameters = dict(parameters)
            with_a2a_extensions([CONTENT])(parameters)
        if self._dialect is V03 and EXTENSIONS in parameters:
            parameters.setdefault(LEGACY_EXTENSIONS, parameters[EXTENSIONS])
        if self._binary:
            params: Any = message.SerializeToString()
        else:
            params = self._dialect.params_text(operation, message)
        method = self._dialect.method(operation)
        return Request(new_id(), method, params, binary=self._binary, parameters=parameters)

    async def _whole(self, message: Any) -> Any:
        """A result, with content in place of references."""
        if self._content is not None and message is not None:
            await self._content.attach(message)
        return message

    def _result(self, operation: Operation, response: Response) -> Any:
        if response.error is not None:
            raise _late(response.error) or response.error
        if not response.binary:
            return self._dialect.read_result(operation, response.result)
        if operation.result is None:
            return None
        try:
            return operation.result.FromString(response.result or b"")
        except DecodeError as error:
            raise ProtocolViolation(f"the result is not a {operation.result.__name__}") from error

    def _seconds(self, context: ClientCallContext | None) -> float:
        seconds = (context.timeout if context is not None else None) or self._timeout
        if not seconds > 0:  # also for NaN
            raise InvalidInput(f"a timeout has to be more than 0 seconds, not {seconds}")
        return seconds

    # ── abandoned tasks ──────────────────────────────────────────────────────────────────────────────

    def _cancel_later(self, task_id: str, context: ClientCallContext | None) -> None:
        """Cancel a task in the background, since its reader must not wait."""
        cancel = asyncio.create_task(self._cancel(task_id, context))
        self._cancelling.add(cancel)
        cancel.add_done_callback(self._cancelling.discard)

    async def _cancel(self, task_id: str, context: ClientCallContext | None) -> None:
        parameters = context.service_parameters if context is not None else None
        limited = ClientCallContext(timeout=CANCEL_TIMEOUT, service_parameters=parameters)
        try:
            await self.cancel_task(types.CancelTaskRequest(id=task_id), context=limited)
        except A2AError as error:
            _log.warning("the abandoned task %s could not be cancelled: %s", task_id, error)


def _late(error: RpcError) -> RequestTimeout | None:
    """The time-out for a server's error about a passed deadline; None for another error."""
    if error.code != Code.INTERNAL_ERROR or not error.message.startswith(EXCEEDED):
        return None
    return RequestTimeout(error.message, remedy="give the call more time, or compare the clocks")


def _task_of(event: types.StreamResponse) -> str:
    match event.WhichOneof("payload"):
        case "task":
            return event.task.id
        case "status_update":
            return event.status_update.task_id
        case "artifact_update":
            return event.artifact_update.task_id
    return ""


def _is_last(event: types.StreamResponse) -> bool:
    match event.WhichOneof("payload"):
        case "task":
            return event.task.status.state in _FINAL
        case "status_update":
            return event.status_update.status.state in _FINAL
        case "message":
            return True
    return False


# ── in the client factory ─────────────────────────────────────────────────────────────────────────


def register(
    factory: ClientFactory | ClientConfig,
    connection: Connection,
    *,
    sender: str = "",
    timeout: float = TIMEOUT,
    cancel_abandoned: bool = False,
    compatible: bool = False,
    content: LargeContent | None = None,
    durable: Callable[[str], Caller] | None = None,
    retry: RetryPolicy = RETRY,
) -> ClientFactory:
    """Register every form of this binding at a client factory, and return the factory.

    Clients of one connection share their subscriptions for answers; closing a client leaves the connection open.

    Args:
        factory: or the configuration to make one with; ours become the last of its bindings.
        connection: an open one, ours or of nats-py.
        sender: token of this caller, for agents whose card has the extension `urn:postroom:a2a:sender-token:1`.
        timeout: seconds for an answer, and for the first frame of a stream.
        cancel_abandoned: cancel the task of a streamed message whose reader stops before its end.
        compatible: take any subject from a URL, as the wire `a2a-nats/1` does, even one that no call can go to.
        content: fetches large content that agents send by reference; None for no references.
        durable: makes the caller of a request subject; None for `DurableCaller` with its defaults.
        retry: repeats a call, within its time, while the server is busy.
    """
    config = factory if isinstance(factory, ClientConfig) else factory._config  # noqa: SLF001 (it has no other door)
    offered = config.supported_protocol_bindings
    if not offered:  # empty means the SDK's default, which naming ours must not take away
        offered.append(TransportProtocol.JSONRPC)
    offered.extend(label for label in BINDINGS if label not in offered)
    if isinstance(factory, ClientConfig):
        factory = ClientFactory(config)
    common = shared(connection)

    def mailbox(prefix: str = "") -> Mailbox:
        if prefix not in common.mailboxes:
            common.mailboxes[prefix] = Mailbox(connection, prefix=prefix)
        return common.mailboxes[prefix]

    def core(card: types.AgentCard, subject: str) -> Caller:
        own = _sender(card, sender)
        prefix = reply_prefix(subject, own)
        return CoreCaller(connection, subject, mailbox=mailbox(prefix), sender=own)

    def stored(_: types.AgentCard, subject: str) -> Caller:
        if durable is not None:
            return durable(subject)
        namespace = namespace_of(subject)
        if namespace not in common.responses:
            common.responses[namespace] = AnswerReader(
                connection, namespace=namespace, mailbox=mailbox()
            )
        return DurableCaller(connection, subject, responses=common.responses[namespace])

    for label in BINDINGS:
        make = core if label in {CORE, CORE_BINARY} else stored

        def produce(
            card: types.AgentCard,
            url: str,
            _: ClientConfig,
            *,
            label: str = label,
            make: Callable[[types.AgentCard, str], Caller] = make,
        ) -> NatsA2ATransport:
            binary = label in {CORE_BINARY, DURABLE_BINARY}
            legacy = not binary and _is_legacy(card, label, url)
            return NatsA2ATransport(
                RetryingCaller(make(card, subject_of(url, compatible=compatible)), retry),
                card,
                dialect=V03 if legacy else V10,
                binary=binary,
                timeout=timeout,
                cancel_abandoned=cancel_abandoned,
                content=content,
            )

        factory.register(label, produce)
    return factory


def _is_legacy(card: types.AgentCard, label: str, url: str) -> bool:
    """Whether the interface is of 0.3 only; one without a version counts as 1.0."""
    versions = {
        interface.protocol_version
        for interface in card.supported_interfaces
        if interface.protocol_binding == label and interface.url == url
    }
    return bool(versions) and all(version.startswith("0.") for version in versions)


def _sender(card: types.AgentCard, sender: str) -> str:
    """The token to append for this card, "" for none."""
    for extension in card.capabilities.extensions:
        if extension.uri == SENDER_TOKEN:
            if extension.required and not sender:
                raise InvalidInput(
                    f"{card.name!r} takes calls only from a caller with a sender token: give `sender`"
                )
            return sender
    return ""
