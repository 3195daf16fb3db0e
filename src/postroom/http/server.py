"""A small HTTP/1.1 server for one machine's own programs: JSON in, JSON out, on h11.

A web framework would double the sidecar's memory. Only what the local API needs: no TLS, no compression. A PUT and
the answer to it, or a `Content`, pass as a stream: they may be larger than what a sidecar should hold. `Events` go
out as server-sent events.

It listens on a loopback port, and where it is asked to, on a unix socket, too: the port is behind the wall, the
socket can be reached from outside by who may open the folder that it is in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
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
from postroom.observe import get_logger
from postroom.protocol.limits import MAX_LOCAL_BODY, MAX_LOCAL_HEAD

CONNECTIONS = 128
"""At once; a request that waits for a task holds one."""

READ_TIMEOUT = 30.0
"""Seconds for one request to arrive, for its answer to be read, and between two requests of a connection."""

LINGER = 5.0
"""Seconds in which the rest of a body that nobody wants is read: a connection closed before would lose the answer."""

SILENCE = 3.0
"""Seconds without an event after which a stream says that it is still there."""

MAX_ADDRESS = 103
"""Bytes of a socket's address that every system takes (Linux takes 107)."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request that has arrived, but for a body that is a stream.

    Attributes:
        content: the body of a PUT, as it comes; None for other methods.
        path: as it was sent, with the query.
        headers: names in lower case, the last one of a name counts.
        abandoned: tells whether the client has closed the connection, so nobody waits for the answer.
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
        """The query's values by name; the last one of a name counts."""
        return dict(parse_qsl(self.path.partition("?")[2]))

    @property
    def is_json(self) -> bool:
        """Whether the body claims to be JSON."""
        kind = self.headers.get("content-type", "").partition(";")[0]
        return kind.strip().lower() == "application/json"


@dataclass(frozen=True, slots=True)
class Content:
    """A body that is sent as it comes.

    Attributes:
        headers: of the answer; a `content-length` among them.
        pieces: the body; an error in it cuts the connection.
        close: called in any case, at the end.
    """

    headers: tuple[tuple[str, str], ...]
    pieces: AsyncIterable[bytes]
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Events:
    """An answer that goes on: a server-sent event for each JSON text, until there is no more or nobody reads."""

    texts: AsyncGenerator[bytes, None]


Answer = tuple[int, Any | Content | Events]
Handler = Callable[[HttpRequest], Awaitable[Answer]]
"""Gives status and JSON value, `Content` or `Events`, or raises a PostroomError that becomes a problem document."""


class HttpServer:
    """Listens on a loopback port from its making; answers inside its `async with` block.

    Args:
        port: the loopback port, 0 for any free one.
    """

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
        """Set who answers on the port."""
        self._handlers.append((self._socket, handler))
        return self

    def also_on(self, port: int, handler: Handler) -> Self:
        """Let `handler` answer on a further loopback port. Where that is taken, the log says so."""
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
            _log.warning("there is no socket at %s: %s", path, error)
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
            # The server closes; asyncio would report the cancellation as an error.
            _log.debug("a local connection was cut")
        finally:
            self._connections.discard(task)
            writer.close()


class HttpExchange:
    """One connection: requests and their answers, one after the other."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler
    ) -> None:
        self._wire = HttpConnection(h11.SERVER, reader, writer, max_head=MAX_LOCAL_HEAD)
        self._handler = handler

    async def run(self) -> None:
        """Answer until the client or an error ends the connection.

        Raises:
            OSError, ProtocolViolation: the connection broke, or the client broke the protocol twice.
        """
        http = self._wire.http
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
                await self._pass_on(status, value)
            elif isinstance(value, Events):
                await self._tell(status, value)
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
            return _problem(PostroomError("the sidecar made a mistake; its log says more"))

    async def _request(self) -> HttpRequest | None:
        """The next request, None at the end of the connection."""
        head: h11.Request | None = None
        body = bytearray()
        abandoned = self._wire.reader.at_eof
        while True:
            event = await self._wire.next_event(None)
            if isinstance(event, h11.Request):
                head = event
                if head.method == b"PUT":
                    return _request(head, b"", abandoned, self._pieces())
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_LOCAL_BODY:
                    raise MessageTooLarge(f"a request has at most {MAX_LOCAL_BODY} bytes")
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return _request(head, bytes(body), abandoned)
            else:
                return None

    async def _pieces(self) -> AsyncGenerator[bytes]:
        """The rest of the request.

        Raises:
            InvalidInput: the client broke off.
            RequestTimeout: nothing more comes.
        """
        while True:
            try:
                event = await self._wire.next_event(READ_TIMEOUT)
            except RequestTimeout as error:
                raise RequestTimeout("the upload does not go on") from error
            except (OSError, ProtocolViolation) as error:
                raise InvalidInput("the upload broke off") from error
            if not isinstance(event, h11.Data):
                return
            yield bytes(event.data)

    async def _respond(self, status: int, value: Any, *, close: bool = False) -> None:
        body = json.dumps(value).encode()
        kind = PROBLEM_TYPE if status >= 400 else "application/json"
        headers = [("content-type", kind), ("content-length", str(len(body)))]
        if close:
            headers.append(("connection", "close"))
        self._wire.put(h11.Response(status_code=status, headers=headers))
        self._wire.put(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def _pass_on(self, status: int, content: Content) -> None:
        try:
            self._wire.put(h11.Response(status_code=status, headers=list(content.headers)))
            async for data in content.pieces:
                await self._send(h11.Data(data=data))
            await self._send(h11.EndOfMessage())
        except PostroomError as error:
            self._wire.abort()  # so that what came is not taken for the whole
            raise ConnectionAbortedError(str(error)) from error
        finally:
            content.close()

    async def _tell(self, status: int, events: Events) -> None:
        """Send events as they come; in silence a comment, and a look whether the client is still there."""
        headers = [("content-type", "text/event-stream"), ("cache-control", "no-store")]
        coming: asyncio.Task[bytes | None] | None = None
        try:
            await self._send(h11.Response(status_code=status, headers=headers))
            while not self._wire.reader.at_eof():
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
                await self._send(h11.Data(data=b"data: " + text + b"\n\n"))
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.wait({coming})
            await events.texts.aclose()

    async def _send(self, part: h11.Event) -> None:
        try:
            await self._wire.send(part, READ_TIMEOUT)
        except RequestTimeout:
            self._wire.abort()  # who does not read must not hold a connection
            raise

    async def _linger(self) -> None:
        with contextlib.suppress(TimeoutError, OSError):
            self._wire.writer.write_eof()
            async with asyncio.timeout(LINGER):
                while await self._wire.reader.read(CHUNK):
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


def bind_unix(path: Path) -> socket.socket:
    """A socket at `path` that nobody can connect to yet; what is left of a killed run there is replaced.

    Raises:
        OSError: there can be none.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        if len(os.fsencode(path)) <= MAX_ADDRESS:
            listener.bind(os.fspath(path))
        else:
            _bind_by_folder(listener, path)
        # Nobody can connect before `listen`, so it is never open to others.
        path.chmod(0o600)
    except OSError:
        listener.close()
        raise
    return listener


def _bind_by_folder(listener: socket.socket, path: Path) -> None:
    """Linux only: the folder is named by an open descriptor, so the address is short."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
