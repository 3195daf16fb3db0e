"""One HTTP request and its answer over ASGI 3: what every binding needs of it, and of the server behind it.

Results may stream as server-sent events (WHATWG HTML, section 9.2). `id:` is the sequence of a change, so that a client
that comes back with `Last-Event-ID` misses nothing. The end of the client's connection ends the stream at once; its
task goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, MutableMapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from postroom_a2a.bounds import MAX_LEVELS, MAX_VALUES
from postroom_a2a.errors import MessageTooLarge
from postroom_a2a.operations import LAST_EVENT, Numbered, Operations
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.strict_json import TooMuch, bounded

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = b"application/json"

PATIENCE = 60.0
"""Seconds that the reader of a stream has to make room for its next piece."""


class ClientGone(Exception):
    """The client has closed its connection: nobody reads an answer."""


class ClientStalled(ClientGone):
    """The client takes nothing of its stream: its connection is to be cut, since what it has not taken is kept."""


class Exchange:
    """One HTTP request and its answer.

    Args:
        path: the part of the request's path that is below the address of the agent.

    Attributes:
        scope: of ASGI; who serves the request may note things there under names of its own.
        method: the verb.
        started: the answer has begun.
    """

    __slots__ = ("_headers", "_receive", "_send", "method", "path", "scope", "started")

    def __init__(self, scope: Scope, receive: Receive, send: Send, path: str | None = None) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = (
            scope["path"].removeprefix(scope.get("root_path", "")) if path is None else path
        )
        self.started = False
        self._receive = receive
        self._send = send
        self._headers: dict[str, str] = {}
        for raw, value in scope["headers"]:
            name = raw.decode("latin-1")
            text = value.decode("latin-1")
            # Several headers of one name are one list (RFC 9110, section 5.3).
            self._headers[name] = (
                f"{self._headers[name]}, {text}" if name in self._headers else text
            )

    # ── the request ─────────────────────────────────────────────────────────────────────────────────────

    def header(self, name: str) -> str:
        """A header by its name in small letters, "" without one."""
        return self._headers.get(name, "")

    @property
    def content_type(self) -> str:
        """The media type of the body, without its parameters."""
        return self.header("content-type").partition(";")[0].strip().lower()

    def query(self) -> dict[str, str]:
        """The values of the query; of a name that comes twice the last one counts."""
        given: bytes = self.scope.get("query_string", b"")
        if not given:
            return {}
        return dict(parse_qsl(given.decode("latin-1"), keep_blank_values=True, max_num_fields=64))

    def parameters(self) -> dict[str, str]:
        """The service parameters of A2A (1.0, sections 3.2.6 and 3.6.1), and where a stream is to go on."""
        found = {
            name: self._headers[name.lower()]
            for name in PARAMETERS
            if name.lower() in self._headers
        }
        if VERSION not in found and VERSION.encode() in self.scope.get("query_string", b""):
            found[VERSION] = self.query().get(VERSION, "")
        return found

    async def body(self, limit: int) -> bytes:
        """The body.

        Raises:
            MessageTooLarge: it is over `limit` bytes.
            ClientGone: it ended before its time.
        """
        announced = self.header("content-length")
        if announced.isdecimal() and int(announced) > limit:
            raise MessageTooLarge(f"the request's body is over {limit} bytes")
        pieces: list[bytes] = []
        taken = 0
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientGone
            piece = message.get("body", b"")
            taken += len(piece)
            if taken > limit:
                raise MessageTooLarge(f"the request's body is over {limit} bytes")
            pieces.append(piece)
            if not message.get("more_body"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def gone(self) -> None:
        """Return when the client has closed the connection; only after the body."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def while_there(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which is cancelled when the client goes.

        Raises:
            ClientGone: it went.
        """
        watching: asyncio.Task[None] | None = None
        # In the caller's own task: one of its own would answer two turns of the loop later.
        try:
            async with asyncio.timeout(None) as limit:
                watching = asyncio.create_task(self._watch(limit))
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise ClientGone from None
        finally:
            if watching is not None:
                watching.cancel()

    async def _watch(self, limit: asyncio.Timeout) -> None:
        """End `limit` when the client goes."""
        await self.gone()
        limit.reschedule(0.0)

    # ── the answer ──────────────────────────────────────────────────────────────────────────────────────

    async def answer(
        self, status: int, body: bytes, kind: bytes = JSON, *headers: tuple[bytes, bytes]
    ) -> None:
        """Send the whole answer; that to HEAD without its body."""
        head = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *headers]
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        body = b"" if self.method == "HEAD" else body
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, status: int, *headers: tuple[bytes, bytes]) -> None:
        """Begin an answer in pieces."""
        self.started = True
        await self._send(
            {"type": "http.response.start", "status": status, "headers": list(headers)}
        )

    async def piece(self, body: bytes, *, more: bool = True) -> None:
        """Send a piece of it; raises ClientStalled if there is no room for it within `PATIENCE`."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError as error:
            raise ClientStalled from error


VERSION = "A2A-Version"
EXTENSIONS = "A2A-Extensions"
PARAMETERS = (VERSION, EXTENSIONS, LAST_EVENT)


# ── the server behind it ──────────────────────────────────────────────────────────────────────────


MAX_BODY = 4 * 1024 * 1024
"""Bytes of a request's body by default."""

BEAT = 15.0
"""Seconds of silence after which a stream gets an empty comment by default, so that both ends notice its end."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for.

    Attributes:
        method: its name in A2A 1.0, whatever the client speaks.
        door: by which binding it came: `a2a+jsonrpc` or `a2a+rest`.
        version: of A2A that the client speaks.
    """

    method: str
    door: str
    version: str


MEDIA_TYPES = frozenset({"application/json", "application/a2a+json"})
"""Media types of a request's body."""


def read_json(exchange: Exchange, body: bytes, most: int = MAX_VALUES) -> Any:
    """The JSON value in a body, which has `most` values at most.

    Raises:
        RpcError: it is of another media type, not JSON, nested too deep, or has too many values.
    """
    if exchange.content_type not in MEDIA_TYPES:
        text = "the Content-Type has to be application/json"
        raise RpcError(Code.CONTENT_TYPE_NOT_SUPPORTED, text)
    try:
        return bounded(body, MAX_LEVELS, most)
    except TooMuch as error:
        raise RpcError(Code.INVALID_REQUEST, f"the body is too much: {error}") from error
    except ValueError as error:
        raise RpcError(Code.PARSE_ERROR, "the body is not JSON") from error


async def _anybody(_exchange: Exchange) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Front:
    """What every binding needs.

    Attributes:
        operations_of: the operations of the agent that a request is for; they speak A2A 1.0. It raises what
            `admit` raises, and `NotFound` for an agent that is not there.
        admit: proves who calls, before the body is read; returns the caller's name, "" without proof. It raises
            `Unauthorized`, `Forbidden`, or `Refused` for one who asks too much.
        streaming: counts an open stream of a caller as long as the context lasts; raises `Refused` for one too many.
        max_body: bytes of a request's body.
        max_values: values of the JSON in it.
        beat: seconds of silence after which a stream gets an empty comment.
    """

    operations_of: Callable[[Exchange, Asked], Awaitable[Operations]]
    admit: Callable[[Exchange], Awaitable[str]] = _anybody
    streaming: Callable[[Exchange, str], AbstractContextManager[None]] = lambda _exchange, _caller: (
        nullcontext()
    )
    max_body: int = MAX_BODY
    max_values: int = MAX_VALUES
    beat: float = BEAT


# ── server-sent events ────────────────────────────────────────────────────────────────────────────


QUIET = b": quiet\n\n"

EVENT_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
"""The last one is for proxies that would hold back an answer until it is long enough."""

Write = Callable[[bytes], bytes]


def event(data: bytes, result: bytes = b"") -> bytes:
    """One event; its id is that of `result`. `data` is JSON text on one line."""
    if isinstance(result, Numbered):
        return b"id: %d\ndata: %b\n\n" % (result.sequence, data)
    return b"data: %b\n\n" % data


async def send_events(
    exchange: Exchange,
    results: AsyncGenerator[bytes, None],
    write: Write,
    failed: Callable[[Exception], bytes],
    beat: float,
) -> None:
    """Answer with a stream, once it has begun: a refusal before its first result is raised.

    Args:
        write: makes the data of an event of a result.
        failed: makes the data of the last event of a stream that broke off; raises what is not for the client.
    """
    gone = asyncio.ensure_future(exchange.gone())
    step: asyncio.Future[bytes | None] | None = None
    try:
        async with aclosing(results):
            try:
                step = asyncio.ensure_future(anext(results, None))
                while await _came(step, gone, exchange, beat):
                    result = step.result()
                    if not exchange.started:
                        await exchange.begin(200, *EVENT_HEADERS)
                    if result is None:
                        break
                    await exchange.piece(event(write(result), result))
                    step = asyncio.ensure_future(anext(results, None))
            except Exception as error:
                if not exchange.started or isinstance(error, ClientGone):
                    raise
                await exchange.piece(event(failed(error)))
            finally:
                if step is not None and not step.done():
                    step.cancel()
                    await asyncio.wait((step,))
        await exchange.piece(b"", more=False)
    finally:
        gone.cancel()


async def _came(
    step: asyncio.Future[bytes | None], gone: asyncio.Future[None], exchange: Exchange, beat: float
) -> bool:
    """Wait for the next result; silence of `beat` seconds is told to the client. Raises ClientGone."""
    while not step.done():
        await asyncio.wait((step, gone), timeout=beat, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            raise ClientGone
        if not step.done():
            if not exchange.started:
                await exchange.begin(200, *EVENT_HEADERS)
            await exchange.piece(QUIET)
    return True
