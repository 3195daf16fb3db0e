"""The same as `transport` for tasks of an event loop: nothing blocks it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2

from postroom.client.rules import (
    EVENT_STREAM,
    Endpoint,
    Locate,
    Outcome,
    Query,
    decoded,
    failed,
    judged,
    reported,
)
from postroom.errors import PostroomError
from postroom_a2a.retry import RetryPolicy, perform_async


class AsyncTransport(Endpoint):
    """Calls a control plane. Each method is the one of `Transport` with its name, and raises the same errors."""

    def __init__(
        self,
        locate: Locate,
        *,
        retry: RetryPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        org: str = "",
        base: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(locate, retry=retry, clock=clock, org=org)
        self._base = base
        self._http = self._connections()
        self._old: list[httpx2.AsyncClient] = []

    async def close(self) -> None:
        """Close all connections."""
        for http in (*self._old, self._http):
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
        """As `Transport.call`."""
        course = self._course(write=method != "GET", repeatable=repeatable)
        attempt = partial(self._attempt, method, path, json, params, extra_time)
        return decoded(await perform_async(course, attempt))

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
    async def stream(
        self, path: str, params: Query, *, silence: float
    ) -> AsyncGenerator[httpx2.Response]:
        """As `Transport.stream`."""
        async with self.exchange(
            "GET", path, silence=silence, params=params, headers=EVENT_STREAM
        ) as answer:
            yield answer

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
        """As `Transport.exchange`."""
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

    @staticmethod
    async def decoded(response: httpx2.Response) -> Any:
        """As `Transport.decoded`."""
        await response.aread()
        return decoded(response)

    def _renew(self) -> None:
        # Other tasks may still read from the old connections; they end with `close`.
        self._old.append(self._http)
        self._http = self._connections()

    def _connections(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=self._base, **self._connection())
