"""A small HTTP/1.1 client: each request on a connection of its own, every wait and every answer with a bound."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
)
from contextlib import contextmanager
from typing import Any, Self

import h11

from postroom.errors import (
    BusDisconnected,
    PostroomError,
    ProtocolViolation,
    RequestTimeout,
    from_problem,
)
from postroom.http.connection import CHUNK, HttpConnection
from postroom.protocol.limits import MAX_HEAD

MAX_DOCUMENT = 64 * 1024
"""Bytes of a JSON answer, if nothing else is said."""

OVERHEAD = 2
"""How many times its body an answer may be long with all that its coding adds."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[], Awaitable[Streams]]
"""Opens a connection to the server."""

Headers = Iterable[tuple[str, str]]


def by_tcp(host: str, port: int, tls: ssl.SSLContext | None = None) -> Dial:
    """To a port, over TLS if there is a context for it."""
    return lambda: asyncio.open_connection(host, port, ssl=tls, limit=CHUNK)


class HttpClient:
    """Asks one server.

    Args:
        name: what errors call it, like "the control plane".
        headers: of each request; `host` among them.
        step: seconds to connect, and for a piece to be taken or to come; None where the caller has a deadline.
        answer: seconds from the end of a request to the head of its answer; None likewise.
    """

    def __init__(
        self,
        name: str,
        dial: Dial,
        headers: Mapping[str, str],
        *,
        step: float | None = 30.0,
        answer: float | None = 60.0,
    ) -> None:
        self._name = name
        self._dial = dial
        self._headers = dict(headers)
        self._step = step
        self._answer = answer

    async def ask(
        self,
        method: str,
        target: str,
        *,
        headers: Headers = (),
        body: bytes | AsyncIterable[bytes] = b"",
    ) -> HttpAnswer:
        """Send a request; returns when the head of its answer is there. The caller closes the answer.

        A body that is no `bytes` goes out as it comes, once the server has said that it wants it.

        Raises:
            BusDisconnected: nobody is there, or the connection broke.
            RequestTimeout: a wait took too long.
            ProtocolViolation: what came is not HTTP.
        """
        with faults(self._name):
            async with asyncio.timeout(self._step):
                streams = await self._dial()
        wire = HttpConnection(h11.CLIENT, *streams)
        exchange = HttpAnswer(self._name, wire, self._step)
        if not isinstance(body, bytes):
            # Not `close`: a server that answers in the midst of the body would cut its own answer off.
            coding = [("transfer-encoding", "chunked"), ("expect", "100-continue")]
        else:
            size = [("content-length", str(len(body)))] if body or method != "GET" else []
            coding = [*size, ("connection", "close")]
        shown = [*self._headers.items(), *headers, *coding]
        try:
            await exchange.send(h11.Request(method=method, target=target, headers=shown))
            if isinstance(body, bytes):
                await exchange.send(h11.Data(data=body))
                await exchange.send(h11.EndOfMessage())
                await exchange.begin(self._answer)
            else:
                await self._upload(exchange, body)
        except BaseException:
            exchange.close()
            raise
        return exchange

    async def _upload(self, exchange: HttpAnswer, body: AsyncIterable[bytes]) -> None:
        """Send the body if it is wanted; the answer may come before its end."""
        if await exchange.begin(self._answer, or_go_on=True):
            return

        async def send() -> None:
            async for data in body:
                await exchange.send(h11.Data(data=data))
            await exchange.send(h11.EndOfMessage())

        sending = asyncio.ensure_future(send())
        answering = asyncio.ensure_future(exchange.begin(None))
        try:
            await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                await sending
                with faults(self._name):
                    async with asyncio.timeout(self._answer):
                        await asyncio.wait({answering})
            await answering
        finally:
            for task in (sending, answering):
                task.cancel()
            await asyncio.wait({sending, answering})
            for task in (sending, answering):
                if not task.cancelled():
                    task.exception()  # whatever else went wrong says less


class HttpAnswer:
    """An answer whose head is there; its body is read as it comes.

    Attributes:
        headers: its names in lower case.
    """

    def __init__(self, name: str, wire: HttpConnection, step: float | None) -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self._name = name
        self._wire = wire
        self._step = step

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; what was not read is lost."""
        self._wire.abort()

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body as it comes. Raises as `HttpClient.ask`."""
        while not isinstance(event := await self._next(self._step), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise BusDisconnected(f"the answer of {self._name} broke off")
            yield bytes(event.data)

    async def whole(self, most: int = MAX_DOCUMENT) -> bytes:
        """The body, of `most` bytes.

        Raises:
            ProtocolViolation: it is longer, or much longer with what its coding adds.
        """
        body = bytearray()
        async for data in self.pieces():
            body += data
            if len(body) > most or self._wire.taken > OVERHEAD * most + MAX_HEAD:
                raise ProtocolViolation(f"the answer of {self._name} is over {most} bytes")
        return bytes(body)

    async def document(self, most: int = MAX_DOCUMENT) -> dict[str, Any]:
        """The JSON object that the body is.

        Raises:
            PostroomError: the one that an answer of 400 or more reports (RFC 9457).
        """
        body = await self.whole(most)
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        if self.status >= 400:
            raise from_problem(document if isinstance(document, dict) else {}, self.status)
        if not isinstance(document, dict):
            raise ProtocolViolation(f"the answer of {self._name} is not a JSON object")
        return document

    async def send(self, event: h11.Event) -> None:
        """Send a part of the request."""
        with faults(self._name):
            await self._wire.send(event, self._step)

    async def begin(self, timeout: float | None, *, or_go_on: bool = False) -> bool:
        """Wait for the head; with `or_go_on` also for the word to send the body. Returns whether it is the head."""
        while True:
            event = await self._next(timeout)
            if isinstance(event, h11.Response):
                self.status = event.status_code
                self.headers = [
                    (name.decode(), value.decode("latin-1")) for name, value in event.headers
                ]
                return True
            if not isinstance(event, h11.InformationalResponse):
                raise BusDisconnected(f"the answer of {self._name} ended before it began")
            if or_go_on:
                return False
            if self._wire.taken > MAX_HEAD:
                raise ProtocolViolation(f"{self._name} goes on asking")

    async def _next(self, timeout: float | None) -> Any:
        with faults(self._name):
            return await self._wire.next_event(timeout)


@contextmanager
def faults(name: str) -> Generator[None]:
    """Errors of a connection to `name` as ours."""
    try:
        yield
    except ProtocolViolation as error:
        raise ProtocolViolation(f"the answer of {name} is not HTTP: {error.message}") from error
    except (RequestTimeout, TimeoutError) as error:
        raise RequestTimeout(f"{name} did not answer in time") from error
    except PostroomError:
        raise
    except OSError as error:
        raise BusDisconnected(f"{name} does not answer: {error}") from error
