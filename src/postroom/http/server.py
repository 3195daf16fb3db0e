"""A small HTTP/1.1 server for the programs of one machine: JSON in, JSON out, on h11.

A web framework would double the sidecar's memory. The server has only what the local API needs: no TLS, no
compression. The body of a PUT and a `Content` pass as a stream, since a sidecar should not hold them. `Events` go out
as server-sent events.

It listens on a loopback port, and on further ports and unix sockets if asked to. The port is inside the sandbox; the
socket can be reached from outside by a program that may open its folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl

import h11

from postroom.errors import (
    PROBLEM_TYPE,
    InvalidInput,
    MessageTooLarge,
    PostroomError,
    ProtocolViolation,
    RequestTimeout,
    problem,
)
from postroom.http.connection import CHUNK, HttpConnection
from postroom.http.unix import bind_unix
from postroom.observe import get_logger
from postroom.protocol.limits import MAX_LOCAL_BODY, MAX_LOCAL_HEAD

CONNECTIONS = 128
"""Connections at a time; a request that waits for a task holds one."""

READ_TIMEOUT = 30.0
"""Seconds for a request to arrive, for the client to read its answer, and between two requests of a connection."""

LINGER = 5.0
"""Seconds to read the rest of a refused body: to close the connection before that would lose the answer."""

SILENCE = 3.0
"""Seconds without an event after which a stream sends a comment."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request that has arrived, except for a streamed body.

    Attributes:
        content: the body of a PUT, as it comes; None for other methods.
        path: as it was sent, with the query.
        headers: names in lower case; the last one of a name counts.
        abandoned: tells whether the client has closed the connection.
    """

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    abandoned: Callable[[], bool] = field(default=lambda: False, compare=False)
    content: AsyncIterable[bytes] | None = field(default=None, compare=False)

    @property
    def target(self) -> str:
        """The path without the query."""
        return self.path.partition("?")[0]

    @property
    def query(self) -> dict[str, str]:
        """The query's values; the last one of a name counts."""
        return dict(parse_qsl(self.path.partition("?")[2]))

    @property
    def is_json(self) -> bool:
        """Whether its Content-Type is JSON."""
        kind = self.headers.get("content-type", "").partition(";")[0]
        return kind.strip().lower() == "application/json"


@dataclass(frozen=True, slots=True)
class Content:
    """A body that is sent as it comes.

    Attributes:
        headers: of the answer, with `content-length`.
        pieces: the body; an error in it cuts the connection.
        close: called at the end in any case.
    """

    headers: tuple[tuple[str, str], ...]
    pieces: AsyncIterable[bytes]
    close: Callable[[], None]


_BREAKS = tuple((one.encode(), f"\\u{ord(one):04x}".encode()) for one in "\x85\u2028\u2029")
"""Characters that end a line for readers who split more than the standard of server-sent events says."""


def _on_one_line(text: bytes) -> bytes:
    for raw, escaped in _BREAKS:
        text = text.replace(raw, escaped)
    return text


@dataclass(frozen=True, slots=True)
class Events:
    """A stream of server-sent events, one for each JSON text, until the texts end or the client goes away."""

    texts: AsyncGenerator[bytes, None]


Answer = tuple[int, Any | Content | Events]
Handler = Callable[[HttpRequest], Awaitable[Answer]]
"""Gives status and JSON value, `Content` or `Events`; a PostroomError becomes a problem document."""


class HttpServer:
    """Holds a loopback port, 0 for any free one, from its making; answers inside its `async with` block."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self._handlers: list[tuple[socket.socket, Handler]] = []
        self._paths: list[Path] = []
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The loopback port."""
        return int(self._socket.getsockname()[1])

    def answer_with(self, handler: Handler) -> Self:
        """Set the handler of the port."""
        self._handlers.append((self._socket, handler))
        return self

    def also_on(self, port: int, handler: Handler) -> Self:
        """Let `handler` answer on a further loopback port, or log that the port is taken."""
        try:
            listener = socket.create_server(("127.0.0.1", port))
        except OSError as error:
            _log.warning("port %d cannot be listened on: %s", port, error)
            return self
        self._handlers.append((listener, handler))
        return self

    def also_at(self, path: Path, handler: Handler) -> Self:
        """Let `handler` answer on a unix socket at `path`, too. Where there can be none, the log says why."""
        try:
            listener = bind_unix(path)
        except OSError as error:
            _log.warning("the server has no socket at %s: %s", path, error)
            return self
        self._handlers.append((listener, handler))
        self._paths.append(path)
        return self

    async def __aenter__(self) -> Self:
        for listener, handler in self._handlers:
            accept = partial(self._accept, handler)
            self._servers.append(await asyncio.start_server(accept, sock=listener))
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=1)
        self._socket.close()
        for path in self._paths:
            with contextlib.suppress(OSError):
                path.unlink()

    async def _accept(
        self, handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        try:
            await HttpExchange(reader, writer, handler).run()
        except (OSError, ProtocolViolation, RequestTimeout) as error:
            _log.debug("a local connection ended: %s", error)
        except asyncio.CancelledError:
            # The server closes; asyncio's server would report the cancellation as an error.
            _log.debug("a local connection was cut")
        finally:
            self._connections.discard(task)
            writer.close()


class HttpExchange:
    """One connection: its requests and answers, one after the other."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler
    ) -> None:
        self._connection = HttpConnection(h11.SERVER, reader, writer, max_head=MAX_LOCAL_HEAD)
        self._handler = handler

    async def run(self) -> None:
        """Answer until the client or an error ends the connection."""
        http = self._connection.http
        while True:
            try:
                async with asyncio.timeout(READ_TIMEOUT):
                    request = await self._request()
            except ProtocolViolation as error:
                await self._respond(*_problem(InvalidInput(error.message)), close=True)
                return
            except MessageTooLarge as error:
                await self._respond(*_problem(error), close=True)
                return
            if request is None:
                return
            status, value = await self._answer(request)
            if isinstance(value, Content):
                await self._send_content(status, value)
            elif isinstance(value, Events):
                await self._send_events(status, value)
            else:
                await self._respond(status, value)
            if http.their_state is h11.SEND_BODY:
                await self._linger()
            if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                return
            http.start_next_cycle()

    async def _answer(self, request: HttpRequest) -> tuple[int, Any]:
        try:
            return await self._handler(request)
        except PostroomError as error:
            return _problem(error)
        except Exception:  # noqa: BLE001 (one request must not end the worker; the log has the trace)
            _log.exception("the local API failed on %s %s", request.method, request.path)
            return _problem(
                PostroomError("the sidecar failed on this request; its log has the error")
            )

    async def _request(self) -> HttpRequest | None:
        """The next request, None at the end of the connection."""
        head: h11.Request | None = None
        body = bytearray()
        abandoned = self._connection.reader.at_eof
        while True:
            event = await self._connection.next_event(None)
            if isinstance(event, h11.Request):
                head = event
                if head.method == b"PUT":
                    return _request(head, b"", abandoned, self._pieces())
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_LOCAL_BODY:
                    raise MessageTooLarge(
                        f"the request's body has more than {MAX_LOCAL_BODY} bytes"
                    )
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return _request(head, bytes(body), abandoned)
            else:
                return None

    async def _pieces(self) -> AsyncGenerator[bytes]:
        """The body of the request, as it comes; raises InvalidInput or RequestTimeout."""
        while True:
            try:
                event = await self._connection.next_event(READ_TIMEOUT)
            except RequestTimeout as error:
                raise RequestTimeout(
                    f"no piece of the upload came for {READ_TIMEOUT:g} s"
                ) from error
            except (OSError, ProtocolViolation) as error:
                raise InvalidInput("the connection broke before the end of the upload") from error
            if not isinstance(event, h11.Data):
                return
            yield bytes(event.data)

    async def _respond(self, status: int, value: Any, *, close: bool = False) -> None:
        body = json.dumps(value).encode()
        kind = PROBLEM_TYPE if status >= 400 else "application/json"
        headers = [("content-type", kind), ("content-length", str(len(body)))]
        if close:
            headers.append(("connection", "close"))
        self._connection.put(h11.Response(status_code=status, headers=headers))
        self._connection.put(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def _send_content(self, status: int, content: Content) -> None:
        try:
            self._connection.put(h11.Response(status_code=status, headers=list(content.headers)))
            async for data in content.pieces:
                await self._send(h11.Data(data=data))
            await self._send(h11.EndOfMessage())
        except PostroomError as error:
            self._connection.abort()  # so that the client does not take the part for the whole
            raise ConnectionAbortedError(str(error)) from error
        finally:
            content.close()

    async def _send_events(self, status: int, events: Events) -> None:
        """Send events as they come; in silence send comments, which fail once the client has gone."""
        headers = [("content-type", "text/event-stream"), ("cache-control", "no-store")]
        coming: asyncio.Task[bytes | None] | None = None
        try:
            await self._send(h11.Response(status_code=status, headers=headers))
            while not self._connection.reader.at_eof():
                if coming is None:
                    coming = asyncio.create_task(_next(events.texts))
                await asyncio.wait({coming}, timeout=SILENCE)
                if not coming.done():
                    await self._send(h11.Data(data=b":\n\n"))
                    continue
                text, coming = coming.result(), None
                if text is None:
                    await self._send(h11.EndOfMessage())
                    return
                await self._send(h11.Data(data=b"data: " + _on_one_line(text) + b"\n\n"))
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.wait({coming})
            await events.texts.aclose()

    async def _send(self, part: h11.Event) -> None:
        try:
            await self._connection.send(part, READ_TIMEOUT)
        except RequestTimeout:
            self._connection.abort()  # a client that does not read must not hold a connection
            raise

    async def _linger(self) -> None:
        with contextlib.suppress(TimeoutError, OSError):
            self._connection.writer.write_eof()
            async with asyncio.timeout(LINGER):
                while await self._connection.reader.read(CHUNK):
                    pass


async def _next(texts: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(texts, None)


def _request(
    head: h11.Request,
    body: bytes,
    abandoned: Callable[[], bool],
    content: AsyncIterable[bytes] | None = None,
) -> HttpRequest:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    method, path = head.method.decode("ascii"), head.target.decode("ascii", errors="replace")
    return HttpRequest(method, path, headers, body, abandoned, content)


def _problem(error: PostroomError) -> tuple[int, Any]:
    document = problem(error)
    return int(document["status"]), document
