"""A2A 1.0 over gRPC: the service `lf.a2a.v1.A2AService` in front of any `Operations` (A2A 1.0, section 10).

Messages of the wire are protobuf, the operations speak JSON; `sdk.translation` stands between them. What HTTP says in
headers comes as metadata. Needs the package `grpcio`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Self
from urllib.parse import unquote
from weakref import WeakValueDictionary

import grpc
import grpc.aio
from a2a.types import a2a_pb2
from google.protobuf import empty_pb2
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Proto

from postroom_a2a.ecma_json import loads
from postroom_a2a.errors import InvalidInput, PostroomError, Refused, RequestTimeout
from postroom_a2a.json_operations import not_spoken
from postroom_a2a.operations import Call, Door, Greet, Incoming, Operations, Perform
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk import grpc_services
from postroom_a2a.sdk.grpc_services import DETAILS, status_of
from postroom_a2a.sdk.translation import OPERATIONS, V10, Operation

Empty: Any = getattr(empty_pb2, "Empty")  # noqa: B009 (made at run time, without a declaration)

SERVICE: str = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"].full_name

MOST_BYTES = 4 * 1024 * 1024
"""Bytes of one request by default."""

MOST_CALLS = 1000
"""Calls of one caller at the same time by default; streams are calls. Further ones are refused (RESOURCE_EXHAUSTED)."""

ALL_CALLS = 10
"""Calls of all callers, as a multiple of those of one."""

READ_AT_ONCE = 8
"""Requests of one caller that are read at a time: each takes its bytes of memory."""

READING = 30.0
"""Seconds for reading a request."""

IDLE = 300.0
"""Seconds after which a connection without a call is closed; a client makes another when it has one."""

HANDSHAKE = 10.0
"""Seconds in which a connection has to say that it is one."""

GRACE = 2.0
"""Seconds that open calls have at the end."""

PATIENCE = 60.0
"""Seconds that the reader of a stream has to take an event."""

_PRIVATE = frozenset({"authorization", "user-agent"})
"""Metadata that is no service parameter."""

_log = logging.getLogger(__name__)


Failure = PostroomError | RpcError


class GrpcServer:
    """Listens for calls: `async with GrpcServer(door, "127.0.0.1:0") as server: server.port`.

    Args:
        address: `host:port`, port 0 for any free one.
        certificate: reads the certificate with its chain and its key (PEM), before each handshake; None for no TLS.
        most_calls: of one caller.
        patience: seconds that the reader of a stream has to take an event; then the call is given up.
        reading: seconds that a caller has to send a request.
        greet: looks at each call before its request is read.

    Raises:
        InvalidInput: from entering; nothing can listen at `address`.
    """

    def __init__(
        self,
        door: Door,
        address: str,
        *,
        certificate: Callable[[], bytes] | None = None,
        most_bytes: int = MOST_BYTES,
        most_calls: int = MOST_CALLS,
        patience: float = PATIENCE,
        reading: float = READING,
        greet: Greet | None = None,
    ) -> None:
        self._door = door
        self._greet = greet
        self._address = address
        self._certificate = certificate
        self._options = [
            ("grpc.max_receive_message_length", most_bytes),
            ("grpc.max_concurrent_streams", most_calls),
            ("grpc.so_reuseport", 0),  # two servers at one port would each get half of the calls
            # Otherwise the peer's pace decides how much of a request is taken before anybody reads it.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.max_connection_idle_ms", int(IDLE * 1000)),
            ("grpc.server_handshake_timeout_ms", int(HANDSHAKE * 1000)),
        ]
        self._most_calls = most_calls
        self._patience = patience
        self._reading = reading
        self._callers: WeakValueDictionary[str, _Caller] = WeakValueDictionary()
        self._going: set[asyncio.Task[Failure | None]] = set()
        self._server: grpc.aio.Server
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server(
            options=self._options, maximum_concurrent_rpcs=ALL_CALLS * self._most_calls
        )
        others = grpc_services.handlers(SERVICE, self._let_in, self._patience)
        self._server.add_generic_rpc_handlers((self._handlers(), *others))
        try:
            if self._certificate is None:
                self.port = self._server.add_insecure_port(self._address)
            else:
                shown = _credentials(self._certificate)
                self.port = self._server.add_secure_port(self._address, shown)
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
        # Of a single request gRPC would take all bytes before it says who calls; on the wire both are the same.
        make = {
            False: grpc.stream_unary_rpc_method_handler,
            True: grpc.stream_stream_rpc_method_handler,
        }
        methods = {
            each.name: make[each.streams](self._answering(each), response_serializer=_serialized)
            for each in OPERATIONS.values()
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _answering(self, operation: Operation) -> Callable[..., Awaitable[Proto | None]]:
        return partial(
            self._admitted, self._stream if operation.streams else self._answer, operation
        )

    async def _admitted(
        self, answer: Any, operation: Operation, _requests: Any, context: Any
    ) -> Proto | None:
        """Answer a call: who has no business here is refused before its request takes any memory."""
        incoming = _incoming(operation.name, f"/{SERVICE}/{operation.name}", context)
        caller = self._caller(incoming)
        refusal: Failure | None = None
        try:
            if self._greet is not None:
                await self._greet(incoming)
            with caller.call(self._most_calls):
                async with asyncio.timeout(self._reading), caller.reading:
                    request = await _read(operation, context)
                incoming.tenant = request.tenant
                return await answer(operation, incoming, request, context)
        except TimeoutError:
            refusal = RequestTimeout(f"the request did not come within {self._reading:g} s")
        except (PostroomError, RpcError) as error:
            refusal = error
        await _refuse(context, refusal)
        return None

    def _caller(self, incoming: Incoming) -> _Caller:
        named = "\n".join((*incoming.authorization, incoming.metadata.get("x-api-key", "")))
        return self._callers.setdefault(named.strip() or incoming.peer, _Caller())

    @asynccontextmanager
    async def _let_in(self, method: str, context: Any, *, known: bool) -> AsyncGenerator[None]:
        """See `grpc_services.Admit`."""
        incoming = _incoming(method.rpartition("/")[2], method, context)
        try:
            if known and self._greet is not None:
                await self._greet(incoming)
            with self._caller(incoming).call(self._most_calls):
                yield
        except (PostroomError, RpcError) as error:
            await _refuse(context, error)

    async def _answer(
        self, operation: Operation, incoming: Incoming, request: Any, context: Any
    ) -> Proto | None:
        """Answer a call that is answered once."""
        answered: list[Proto] = []

        async def perform(operations: Operations, caller: str) -> None:
            call = _call(operation, incoming, request, caller, context)
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

    async def _stream(
        self, operation: Operation, incoming: Incoming, request: Any, context: Any
    ) -> None:
        """Answer a call with a stream. One task makes the events and this one writes them.

        A write must not be cancelled: gRPC could not say after it how the stream has ended.
        """
        pipe = _Pipe()

        async def perform(operations: Operations, caller: str) -> None:
            call = _call(operation, incoming, request, caller, context)
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


class _Caller:
    """The calls of one caller."""

    def __init__(self) -> None:
        self.reading = asyncio.Semaphore(READ_AT_ONCE)
        self._calls = 0

    @contextmanager
    def call(self, most: int) -> Generator[None]:
        """Count a call; raises Refused where there are `most`."""
        if self._calls >= most:
            raise Refused(f"{most} calls of yours are open, the most that one caller can have")
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1


async def _read(operation: Operation, context: Any) -> Any:
    """The request of a call. Raises RpcError for one that is none."""
    data = await context.read()
    if data is grpc.aio.EOF:
        raise RpcError(Code.INVALID_REQUEST, "the call has no request")
    try:
        return operation.request.FromString(data)
    except DecodeError as error:
        raise RpcError(Code.PARSE_ERROR, f"the request is no {operation.name}Request") from error


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


def _incoming(method: str, path: str, context: Any) -> Incoming:
    """The call, whose tenant is not known before its request."""
    metadata: dict[str, str] = {}
    authorization: list[str] = []
    for name, value in context.invocation_metadata() or ():
        if not isinstance(value, str):
            continue
        metadata[name.lower()] = value
        if name.lower() == "authorization":
            authorization.append(value)
    ended = asyncio.get_running_loop().create_future()
    peer = _address(context.peer())
    return Incoming(method, path, "", metadata, authorization, peer, ended)


def _address(peer: str) -> str:
    """The IP address in what gRPC says of a caller: `ipv4:192.0.2.1:4711`, `ipv6:%5B::1%5D:4711`."""
    family, _, rest = unquote(peer).partition(":")
    host = rest.rpartition(":")[0].strip("[]")
    return host if family in {"ipv4", "ipv6"} else ""


def _credentials(certificate: Callable[[], bytes]) -> grpc.ServerCredentials:
    last = b""

    def read() -> Any:
        """The certificate where it has changed, else None."""
        nonlocal last
        try:
            pem = certificate()
        except OSError as error:  # the former one stays
            _log.warning("the certificate cannot be read: %s", error)
            return None
        if pem == last:
            return None
        last = pem
        return grpc.ssl_server_certificate_configuration([(pem, pem)])

    first = read()
    if first is None:
        raise InvalidInput("there is no certificate for gRPC")
    return grpc.dynamic_ssl_server_credentials(first, read)


def _call(
    operation: Operation, incoming: Incoming, request: Any, caller: str, context: Any
) -> Call:
    # None means 0.3 (section 3.6.2), which this service is not.
    if incoming.metadata.get("a2a-version", "").split(".")[:2] != V10.version.split("."):
        raise not_spoken()
    seconds: float | None = context.time_remaining()
    parameters = {name: value for name, value in incoming.metadata.items() if name not in _PRIVATE}
    return Call(
        None,
        operation.name,
        V10.write_params(operation, request),
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
