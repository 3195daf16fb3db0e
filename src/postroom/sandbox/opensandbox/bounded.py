"""Answers of bounded size: execd runs in the container, so a worker could have written them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

MAX_ANSWER_BYTES = 32 * 1024 * 1024


class TooLong(httpx.TransportError):
    """An answer is over the bound."""


class BoundedTransport(httpx.AsyncBaseTransport):
    """A transport that fails on answers that are too long.

    Args:
        inner: does the work and is closed with this one.
        most: bytes of one answer.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, most: int = MAX_ANSWER_BYTES) -> None:
        self._inner = inner
        self._most = most

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Of httpx."""
        answer = await self._inner.handle_async_request(request)
        if not isinstance(answer.stream, httpx.AsyncByteStream):
            raise TooLong("an answer of unknown length")
        answer.stream = _Counted(answer.stream, self._most)
        return answer

    async def aclose(self) -> None:
        """Of httpx."""
        await self._inner.aclose()


class _Counted(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, most: int) -> None:
        self._inner = inner
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            self._left -= len(piece)
            if self._left < 0:
                raise TooLong("the sandbox's answer is too long")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
