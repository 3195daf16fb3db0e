"""One HTTP call to the control plane: credential, deadlines, retries, and errors as types.

`AsyncTransport` is for tasks, `Transport` for callers that wait (`client.wire`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2

from postroom.client.rules import (
    Endpoint,
    Locate,
    Outcome,
    Query,
    decoded,
    failed,
    judged,
    reported,
)
from postroom.client.wire import BlockingWire, Wire, blocking
from postroom.errors import PostroomError
from postroom_a2a.retry import RetryPolicy, perform_async

if TYPE_CHECKING:
    from postroom.client.async_websocket import AsyncWebSocket
    from postroom.client.locate import ServerAddress
    from postroom.client.websocket import WebSocket


class AsyncTransport(Endpoint):
    """Calls a control plane.

    Args:
        base: as for `Wire`.
        wire: how it waits; None for tasks of the loop that uses it first.
    """

    def __init__(
        self,
        locate: Locate,
        *,
        retry: RetryPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        org: str = "",
        base: httpx2.AsyncBaseTransport | None = None,
        wire: Wire | None = None,
    ) -> None:
        super().__init__(locate, retry=retry, clock=clock, org=org)
        self.wire = wire or Wire(base)
        self._made: list[httpx2.AsyncClient] = []
        self._renew()

    async def close(self) -> None:
        """Close all connections."""
        for http in self._made:
            await http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: Query | None = None,
        repeatable: bool = False,
        extra_time: float = 0.0,
    ) -> Any:
        """The JSON value in the control plane's answer, None for an empty answer.

        Args:
            json: the body, None for no body.
            repeatable: a second call with the same content has no second effect (see `Again`).
            extra_time: seconds that the answer may take beyond the usual.

        Raises:
            NotRunning: nobody listens at the address.
            RequestTimeout: no answer in time.
            Uncertain: the connection broke after a write was sent, and no later attempt shows its result.
            PeerError: the connection broke.
            ProtocolViolation: the answer is not JSON.
            PostroomError: the control plane's own error.
        """
        course = self._course(write=method != "GET", repeatable=repeatable)
        attempt = partial(self._attempt, method, path, json, params, extra_time)
        return decoded(await perform_async(course, attempt, self.wire.pause))

    async def _attempt(
        self, method: str, path: str, json: object, params: Query | None, extra_time: float
    ) -> Outcome:
        asked = self._request(json, params, extra_time)
        try:
            with self._faults():
                return judged(
                    await self._http.request(method, self._url(path), **asked), self.retry
                )
        except PostroomError as error:
            return failed(error)

    @asynccontextmanager
    async def exchange(
        self,
        method: str,
        path: str,
        *,
        silence: float,
        content: AsyncIterable[bytes] | bytes | None = None,
        params: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[httpx2.Response]:
        """A call whose body and answer are read as they come, without repetition.

        `silence` is the longest wait for the next bytes, in seconds. Raises the errors of `call`, also while the answer
        is being read.
        """
        with self._faults():
            async with self._http.stream(
                method,
                self._url(path),
                content=content,
                params=params,
                headers=self._headers() | dict(headers or {}),
                timeout=self._timeout(silence),
            ) as response:
                if response.is_error:
                    await response.aread()
                    raise reported(response)
                yield response

    @asynccontextmanager
    async def websocket(
        self, path: str, params: Query
    ) -> AsyncGenerator[AsyncWebSocket | WebSocket]:
        """An open WebSocket; raises the errors of `WebSocket.connect`."""
        link = await self.wire.socket(*self.place(path), params)
        try:
            yield link
        finally:
            link.close()

    def place(self, path: str) -> tuple[ServerAddress, str, Mapping[str, str]]:
        """For a WebSocket: where it leads, the URL there, and its headers."""
        return self._server, self._url(path), self._headers()

    @property
    def _http(self) -> httpx2.AsyncClient:
        self.wire.check()
        return self._made[-1]

    def _renew(self) -> None:
        # Others may still read from the old connections; they end with `close`.
        transport = self.wire.transport(self._server, self._connection())
        self._made.append(httpx2.AsyncClient(transport=transport, trust_env=False))


class Transport:
    """Calls a control plane, and blocks until it has answered.

    Args:
        sleep: waits so many seconds.
        base: as for `BlockingWire`.
    """

    def __init__(
        self,
        locate: Locate,
        *,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        org: str = "",
        base: httpx2.BaseTransport | None = None,
    ) -> None:
        wire = BlockingWire(base, sleep)
        self.inner = AsyncTransport(locate, retry=retry, clock=clock, org=org, wire=wire)

    close = blocking(AsyncTransport.close)
    call = blocking(AsyncTransport.call)

    @property
    def server(self) -> ServerAddress:
        """The address used last."""
        return self.inner.server

    def within(self, seconds: float | None) -> AbstractContextManager[None]:
        """As `Endpoint.within`."""
        return self.inner.within(seconds)

    def left(self) -> float:
        """Seconds until the end that `within` has set."""
        return self.inner.left()

    def websocket(self, path: str, params: Query) -> WebSocket:
        """An open WebSocket; raises the errors of `WebSocket.connect`."""
        from postroom.client.websocket import WebSocket  # most commands need none

        server, url, headers = self.inner.place(path)
        return WebSocket.connect(server, url, params, headers)
