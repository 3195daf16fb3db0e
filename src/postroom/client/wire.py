"""The two ways of a call to the post room: by the tasks of an event loop, or by a thread that waits.

What a client does is written once, as coroutines over a `Wire`. On a `BlockingWire` nothing in them suspends, since
whatever they wait for returns when it is there: so `done` and `each` bring them to their end in the thread that calls,
without an event loop. Such a call is interrupted by Ctrl-C where it stands, works inside a running loop (which it holds
up), and leaves no thread that somebody would have to end.

To a post room of this machine the way is the unix socket in its state folder. A port belongs to whoever takes it first,
also after a post room was killed. Nobody else can take the place of a socket in a folder that is closed to others, and
before a key is sent the kernel says whose process listens there.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Generator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

import httpx2

from postroom.errors import InvalidInput
from postroom.http.unix import short_address

if TYPE_CHECKING:
    from postroom.client.async_websocket import AsyncWebSocket
    from postroom.client.locate import ServerAddress
    from postroom.client.rules import Query
    from postroom.client.websocket import WebSocket

P = ParamSpec("P")
T = TypeVar("T")


class Wire:
    """For tasks of the event loop in which it was used first.

    Args:
        base: the httpx2 transport to use; None for the socket of the post room if it has one, else TCP.
    """

    def __init__(self, base: httpx2.AsyncBaseTransport | None = None) -> None:
        self._base = base
        self._loop: object = None

    def transport(self, server: ServerAddress, trust: dict[str, Any]) -> httpx2.AsyncBaseTransport:
        """Connections to `server`; `trust` says whom they trust."""
        if self._base is not None:
            return self._base
        if server.socket:
            return AsyncNearTransport(server, trust)
        return httpx2.AsyncHTTPTransport(**trust)

    def check(self) -> None:
        """Raise InvalidInput where its connections belong to another event loop."""
        from asyncio import get_running_loop

        self._loop = self._loop or get_running_loop()
        if get_running_loop() is not self._loop:
            raise InvalidInput(
                "this client belongs to another event loop", remedy="make one in each loop"
            )

    async def work(self, call: Callable[..., T], *given: Any) -> T:
        """What `call` returns, which waits for a file."""
        from asyncio import to_thread

        return await to_thread(call, *given)

    async def socket(
        self, server: ServerAddress, url: str, headers: Mapping[str, str], query: Query
    ) -> AsyncWebSocket | WebSocket:
        """An open WebSocket at `url`, which is one of `server`."""
        from postroom.client.async_websocket import AsyncWebSocket

        return await AsyncWebSocket.to(server, url, query, headers)

    async def pause(self, seconds: float) -> None:
        """Wait."""
        from asyncio import sleep

        await sleep(seconds)


class BlockingWire(Wire):
    """For threads.

    Args:
        base: as for `Wire`, the blocking one.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        base: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__()
        self._blocking = base
        self._sleep = sleep

    def transport(self, server: ServerAddress, trust: dict[str, Any]) -> httpx2.AsyncBaseTransport:
        """As `Wire.transport`."""

        def made() -> httpx2.BaseTransport:
            if self._blocking is not None:
                return self._blocking
            if server.socket:
                return NearTransport(server, trust)
            return httpx2.HTTPTransport(**trust)

        return _Blocking(made)

    def check(self) -> None:
        """Any thread may use it."""

    async def work(self, call: Callable[..., T], *given: Any) -> T:
        """What `call` returns."""
        return call(*given)

    async def socket(
        self, server: ServerAddress, url: str, headers: Mapping[str, str], query: Query
    ) -> WebSocket:
        """As `Wire.socket`."""
        from postroom.client.websocket import WebSocket

        return WebSocket.connect(server, url, query, headers)

    async def pause(self, seconds: float) -> None:
        """Wait."""
        self._sleep(seconds)


class _Blocking(httpx2.AsyncBaseTransport):
    """A blocking transport in the form of the other kind; `make` makes it."""

    def __init__(self, make: Callable[[], httpx2.BaseTransport]) -> None:
        self._make = make
        self._base, self._pid = make(), os.getpid()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._pid != os.getpid():
            # After a fork the connections are the parent's: two would read one answer.
            self._base, self._pid = self._make(), os.getpid()
        if not isinstance(request.stream, httpx2.SyncByteStream):
            request.stream = _Sent(request.stream)
        answer = self._base.handle_request(request)
        if not isinstance(answer.stream, httpx2.AsyncByteStream):
            answer.stream = _Come(answer.stream)
        return answer

    async def aclose(self) -> None:
        if self._pid == os.getpid():
            self._base.close()


class _Sent(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, pieces: Any) -> None:
        self._pieces = pieces

    def __iter__(self) -> Generator[bytes]:
        return each(self._pieces)


class _Come(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        for piece in self._stream:
            yield piece

    async def aclose(self) -> None:
        self._stream.close()


def done(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine over a `BlockingWire` returns."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("what should block waits for an event loop")


def each(items: AsyncIterable[T]) -> Generator[T]:
    """What comes out of an iteration over a `BlockingWire`; closed with this generator."""
    found: Any = aiter(items)
    try:
        while True:
            try:
                item = done(anext(found))
            except StopAsyncIteration:
                return
            yield item
    finally:
        if isinstance(found, AsyncGenerator):
            done(found.aclose())


class Face(Generic[P, T]):
    """A method that does `call` with the object's `inner`, of which the object is the face for threads."""

    def __init__(self, call: Callable[Concatenate[Any, P], T]) -> None:
        self._call = call

    def __get__(self, face: Any, _: type | None = None) -> Callable[P, T]:
        if face is None:  # taken from the class, it is a function of the object
            return lambda *args, **given: self.__get__(args[0])(*args[1:], **given)
        return partial(self._call, face.inner)


def blocking(body: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Face[P, T]:
    """A method that returns when a coroutine of `inner` is done."""
    return Face(lambda inner, *args, **given: done(body(inner, *args, **given)))


def iterated(body: Callable[Concatenate[Any, P], AsyncIterable[T]]) -> Face[P, Generator[T]]:
    """The same for an iteration."""
    return Face(lambda inner, *args, **given: each(body(inner, *args, **given)))


# ── over a socket of this machine ──


class NearTransport(httpx2.HTTPTransport):
    """Connections to the socket of `server`, each to a process of its owner.

    Raises:
        NotRunning: its folder has gone.
    """

    def __init__(self, server: ServerAddress, trust: dict[str, Any]) -> None:
        self._server = server
        self._address = ExitStack()
        super().__init__(uds=_entered(self._address, server), **trust)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, over a new connection once its peer is known."""
        request.extensions = {**request.extensions, "trace": self._made}
        return super().handle_request(request)

    def close(self) -> None:
        """Close all connections."""
        super().close()
        self._address.close()

    def _made(self, event: str, about: Mapping[str, Any]) -> None:
        """Told by httpx2 of each step, a new connection before anything is sent over it."""
        if event == "connection.connect_unix_socket.complete":
            stream = about["return_value"]
            try:
                self._server.check(stream.get_extra_info("socket").fileno())
            except BaseException:
                stream.close()
                raise


class AsyncNearTransport(httpx2.AsyncHTTPTransport):
    """The same for tasks."""

    def __init__(self, server: ServerAddress, trust: dict[str, Any]) -> None:
        self._server = server
        self._address = ExitStack()
        super().__init__(uds=_entered(self._address, server), **trust)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """As `NearTransport.handle_request`."""
        request.extensions = {**request.extensions, "trace": self._made}
        return await super().handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        await super().aclose()
        self._address.close()

    async def _made(self, event: str, about: Mapping[str, Any]) -> None:
        if event == "connection.connect_unix_socket.complete":
            stream = about["return_value"]
            try:
                self._server.check(stream.get_extra_info("socket").fileno())
            except BaseException:
                await stream.aclose()
                raise


def _entered(address: ExitStack, server: ServerAddress) -> str:
    try:
        return address.enter_context(short_address(Path(server.socket)))
    except OSError as error:
        raise server.silent() from error
