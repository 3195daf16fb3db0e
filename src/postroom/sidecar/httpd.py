"""A small HTTP/1.1 server for one machine's own programs: JSON in, JSON out, on h11.

The parser is h11's, since a parser of hostile input is no place for own code; a web framework would double the
sidecar's memory. Only what the local API needs: no TLS, no streaming, no compression.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

import h11

from postroom.errors import InvalidInput, MessageTooLarge, PostroomError, problem
from postroom.observe import get_logger
from postroom.protocol.envelope import MAX_ENVELOPE_BYTES

CONNECTIONS = 32
MAX_HEADER_BYTES = 16 * 1024
MAX_BODY_BYTES = 2 * MAX_ENVELOPE_BYTES
READ_TIMEOUT = 30.0
"""Seconds for one request to arrive, and between two requests of a connection."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """A request that has arrived whole; header names in lower case, the last one of a name counts."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


Handler = Callable[[Request], Awaitable[tuple[int, Any]]]
"""Gives status and JSON value, or raises a PostroomError that becomes a problem document."""


class HttpServer:
    """Listens on a loopback port from its making; answers inside its `async with` block."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._handler: Handler | None = None

    @property
    def port(self) -> int:
        """The loopback port."""
        return int(self._socket.getsockname()[1])

    def answer_with(self, handler: Handler) -> Self:
        """Set who answers."""
        self._handler = handler
        return self

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, sock=self._socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=1)
        self._socket.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or self._handler is None or len(self._connections) >= CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        try:
            await Conversation(reader, writer, self._handler).run()
        except (OSError, h11.ProtocolError) as error:
            _log.debug("a local connection ended: %s", error)
        except asyncio.CancelledError:
            # The server closes; asyncio would report the cancellation as an error.
            _log.debug("a local connection was cut")
        finally:
            self._connections.discard(task)
            writer.close()


class Conversation:
    """One connection: requests and their answers, one after the other."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BYTES)

    async def run(self) -> None:
        """Answer until the client or an error ends the connection.

        Raises:
            OSError, h11.ProtocolError: the connection broke, or the client broke the protocol twice.
        """
        while True:
            try:
                async with asyncio.timeout(READ_TIMEOUT):
                    request = await self._request()
            except h11.RemoteProtocolError as error:
                await self._respond(*_problem(InvalidInput(f"not HTTP: {error}")), close=True)
                return
            except MessageTooLarge as error:
                await self._respond(*_problem(error), close=True)
                return
            if request is None:
                return
            await self._respond(*await self._answer(request))
            if self._connection.our_state is not h11.DONE:
                return
            if self._connection.their_state is not h11.DONE:
                return
            self._connection.start_next_cycle()

    async def _answer(self, request: Request) -> tuple[int, Any]:
        try:
            return await self._handler(request)
        except PostroomError as error:
            return _problem(error)
        except Exception:  # noqa: BLE001 (one request must not end the worker; the log has the trace)
            _log.exception("the local API failed on %s %s", request.method, request.path)
            return _problem(PostroomError("the sidecar made a mistake; its log says more"))

    async def _request(self) -> Request | None:
        """The next request, None at the end of the connection."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._connection.next_event()
            if event is h11.NEED_DATA:
                await self._read()
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BODY_BYTES:
                    raise MessageTooLarge(f"a request has at most {MAX_BODY_BYTES} bytes")
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return _request(head, bytes(body))
            else:
                return None

    async def _read(self) -> None:
        if self._connection.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            self._writer.write(self._connection.send(go_on) or b"")
        self._connection.receive_data(await self._reader.read(64 * 1024))

    async def _respond(self, status: int, value: Any, *, close: bool = False) -> None:
        body = json.dumps(value).encode()
        kind = "application/problem+json" if status >= 400 else "application/json"
        headers = [("content-type", kind), ("content-length", str(len(body)))]
        if close:
            headers.append(("connection", "close"))
        for event in (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self._writer.write(self._connection.send(event) or b"")
        await self._writer.drain()


def _request(head: h11.Request, body: bytes) -> Request:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return Request(
        head.method.decode("ascii"), head.target.decode("ascii", errors="replace"), headers, body
    )


def _problem(error: PostroomError) -> tuple[int, Any]:
    document = problem(error)
    return int(document["status"]), document
