"""One HTTP request and its answer, over ASGI 3."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from postroom_a2a.errors import InvalidInput, MessageTooLarge
from postroom_a2a.operations import LAST_EVENT

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


def whole_number(text: str, name: str) -> int:
    """A number in a query; raises InvalidInput."""
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InvalidInput(f"{name!r} has to be a whole number")
    return int(text)
