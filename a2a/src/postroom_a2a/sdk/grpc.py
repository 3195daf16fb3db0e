"""A2A 1.0 over gRPC: the service `lf.a2a.v1.A2AService` in front of any `Operations` (A2A 1.0, section 10).

Messages of the wire are protobuf, the operations speak JSON; `sdk.translation` stands between them. What HTTP says in
headers comes as metadata. Needs the package `grpcio`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import grpc
import grpc.aio
from a2a.types import a2a_pb2
from google.protobuf import empty_pb2
from google.protobuf.message import Message as Proto

from postroom_a2a.ecma_json import loads
from postroom_a2a.errors import InvalidInput, PostroomError
from postroom_a2a.json_operations import not_spoken
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.translation import OPERATIONS, V10, Operation
from postroom_a2a.sdk.translation.grpc_status import DETAILS, status_of

Empty: Any = getattr(empty_pb2, "Empty")  # noqa: B009 (made at run time, without a declaration)

SERVICE: str = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"].full_name

MOST_BYTES = 4 * 1024 * 1024
"""Bytes of one request by default."""

MOST_CALLS = 1000
"""Calls at the same time by default; streams are calls. Further ones are refused (RESOURCE_EXHAUSTED)."""

GRACE = 2.0
"""Seconds that open calls have at the end."""

PATIENCE = 60.0
"""Seconds that the reader of a stream has to take an event."""

_PRIVATE = frozenset({"authorization", "user-agent"})
"""Metadata that is no service parameter."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Incoming:
    """A call that has come in.

    Attributes:
        operation: as `translation.OPERATIONS` names it.
        tenant: names the agent, as its card's interface does; "" for none.
        metadata: by name in lower case, without binary values; of a name that was sent twice, its last value.
        authorization: each value of that name.
        peer: as gRPC writes it, such as `ipv4:127.0.0.1:4711`.
    """

    operation: Operation
    tenant: str
    metadata: Mapping[str, str]
    authorization: Sequence[str]
    peer: str
    ended: asyncio.Future[PostroomError] = field(repr=False)

    @property
    def path(self) -> str:
        """The path of its HTTP/2 request."""
        return f"/{SERVICE}/{self.operation.name}"

    def end(self, error: PostroomError) -> None:
        """Answer the caller with `error` at once. What the call has begun goes on, a stream does not."""
        if not self.ended.done():
            self.ended.set_result(error)


Perform = Callable[[Operations, str], Awaitable[None]]
"""Performs the call by the operations of an agent, for a proven caller ("" without proof), and answers it."""

Failure = PostroomError | RpcError

Door = Callable[[Incoming, Perform], Awaitable[None]]
"""Decides about a call: performs it once, or raises `RpcError` or an error of `postroom_a2a.errors`."""


class GrpcServer:
    """Listens for calls: `async with GrpcServer(door, "127.0.0.1:0") as server: server.port`.

    Args:
        address: `host:port`, port 0 for any free one.
        credentials: TLS; None for none.
        patience: seconds that the reader of a stream has to take an event; then the call is given up.

    Raises:
        InvalidInput: from entering; nothing can listen at `address`.
    """

    def __init__(
        self,
        door: Door,
        address: str,
        *,
        credentials: grpc.ServerCredentials | None = None,
        most_bytes: int = MOST_BYTES,
        most_calls: int = MOST_CALLS,
        patience: float = PATIENCE,
    ) -> None:
        self._door = door
        self._address = address
        self._credentials = credentials
        self._options = [
            ("grpc.max_receive_message_length", most_bytes),
            ("grpc.max_concurrent_streams", most_calls),
            ("grpc.so_reuseport", 0),  # two servers at one port would each get half of the calls
        ]
        self._most_calls = most_calls
        self._patience = patience
        self._going: set[asyncio.Task[Failure | None]] = set()
        self._server: grpc.aio.Server
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server(
            options=self._options, maximum_concurrent_rpcs=self._most_calls
        )
        self._server.add_generic_rpc_handlers((self._handlers(),))
        try:
            if self._credentials is None:
                self.port = self._server.add_insecure_port(self._address)
            else:
                self.port = self._server.add_secure_port(self._address, self._credentials)
        except RuntimeError as error:
            raise InvalidInput(f"gRPC cannot listen at {self._address}: {error}") from error
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(GRACE)
        for each in self._going:
            each.cancel()
        await asyncio.gather(*self._going, return_exceptions=True)

    def _handlers(self) -> grpc.GenericRpcHandler:
        make = {
            False: grpc.unary_unary_rpc_method_handler,
            True: grpc.unary_stream_rpc_method_handler,
        }
        methods = {
            each.name: make[each.streams](
                self._answering(each),
                request_deserializer=each.request.FromString,
                response_serializer=_serialized,
            )
            for each in OPERATIONS.values()
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _answering(self, operation: Operation) -> Callable[..., Awaitable[Proto | None]]:
        return partial(self._stream if operation.streams else self._answer, operation)

    async def _answer(self, operation: Operation, request: Any, context: Any) -> Proto | None:
        """Answer a call that is answered once."""
        incoming = _incoming(operation, request, context)
        answered: list[Proto] = []

        async def perform(operations: Operations, caller: str) -> None:
            call = _call(incoming, request, caller, context.time_remaining())
            answered.append(_result(operation, await operations.answer(call)))

        work = self._begin(incoming, perform)
        try:
            await asyncio.wait({work, incoming.ended}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # its caller has gone, or its deadline has passed
            work.cancel()
            raise
        error = work.result() if work.done() else incoming.ended.result()
        if error is not None:
            await _refuse(context, error)
        return answered[0] if answered else None

    async def _stream(self, operation: Operation, request: Any, context: Any) -> None:
        """Answer a call with a stream. One task makes the events and this one writes them.

        A write must not be cancelled: gRPC could not say after it how the stream has ended.
        """
        incoming = _incoming(operation, request, context)
        pipe = _Pipe()

        async def perform(operations: Operations, caller: str) -> None:
            call = _call(incoming, request, caller, context.time_remaining())
            async with aclosing(operations.stream(call)) as events:
                async for event in events:
                    await pipe.put(_result(operation, event))

        work = self._begin(incoming, perform)
        work.add_done_callback(lambda _: pipe.close())
        incoming.ended.add_done_callback(lambda _: work.cancel())
        try:
            while (event := await pipe.get()) is not None:
                async with asyncio.timeout(self._patience):
                    await context.write(event)
                if incoming.ended.done():
                    break
        except BaseException:  # its caller has gone, reads nothing, or its deadline has passed
            work.cancel()
            raise
        await asyncio.wait({work})
        error = incoming.ended.result() if incoming.ended.done() else work.result()
        if error is not None:
            await _refuse(context, error)

    def _begin(self, incoming: Incoming, perform: Perform) -> asyncio.Task[Failure | None]:
        """Let a call through the door; the task's result is the error that answers it, if any."""
        work = asyncio.create_task(self._through(incoming, perform), name=incoming.path)
        self._going.add(work)
        work.add_done_callback(self._going.discard)
        return work

    async def _through(self, incoming: Incoming, perform: Perform) -> Failure | None:
        try:
            await self._door(incoming, perform)
        except (PostroomError, RpcError) as error:
            return error
        except Exception:  # noqa: BLE001 (its text is for the log alone)
            _log.exception("%s failed", incoming.path)
            return RpcError(Code.INTERNAL_ERROR, "Internal error")
        return None


class _Pipe:
    """One event on its way to the caller; who makes the next one waits."""

    def __init__(self) -> None:
        self._event: Proto | None = None
        self._closed = False
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    async def put(self, event: Proto) -> None:
        await self._empty.wait()
        self._event = event
        self._empty.clear()
        self._filled.set()

    def close(self) -> None:
        self._closed = True
        self._filled.set()

    async def get(self) -> Proto | None:
        """The next event; None after the last."""
        await self._filled.wait()
        event, self._event = self._event, None
        if not self._closed:
            self._filled.clear()
        self._empty.set()
        return event


def _incoming(operation: Operation, request: Any, context: Any) -> Incoming:
    metadata: dict[str, str] = {}
    authorization: list[str] = []
    for name, value in context.invocation_metadata() or ():
        if not isinstance(value, str):
            continue
        metadata[name.lower()] = value
        if name.lower() == "authorization":
            authorization.append(value)
    ended = asyncio.get_running_loop().create_future()
    return Incoming(operation, request.tenant, metadata, authorization, context.peer(), ended)


def _call(incoming: Incoming, request: Any, caller: str, seconds: float | None) -> Call:
    # None means 0.3 (section 3.6.2), which this service is not.
    if incoming.metadata.get("a2a-version", "").split(".")[:2] != V10.version.split("."):
        raise not_spoken()
    parameters = {name: value for name, value in incoming.metadata.items() if name not in _PRIVATE}
    return Call(
        None,
        incoming.operation.name,
        V10.write_params(incoming.operation, request),
        parameters=parameters,
        caller=caller,
        deadline=time.time() + seconds if seconds is not None else 0.0,
    )


def _result(operation: Operation, answer: bytes) -> Proto:
    return Empty() if operation.result is None else V10.read_result(operation, loads(answer))


def _serialized(message: Proto) -> bytes:
    return message.SerializeToString()


async def _refuse(context: Any, error: Failure) -> None:
    code, status = status_of(error)
    context.set_trailing_metadata(((DETAILS, status.SerializeToString()),))
    await context.abort(code, status.message)
