"""A kept-alive HTTP/1.1 connection that does almost nothing, so that a benchmark measures the server.

A full client spends as much processor time on a request as the server does, on the same few cores.
"""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

TIMEOUT = 30.0


class Connection:
    """One connection; one request at a time.

    Args:
        url: of the server, `http://host:port`.
        token: bearer token, "" for none.
    """

    def __init__(self, url: str, token: str = "") -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._token = f"Authorization: Bearer {token}\r\n" if token else ""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect; a connection that there was is closed."""
        self._close()
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    async def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, seconds: float = TIMEOUT
    ) -> bytes:
        """Make a request; returns the body of the answer.

        Raises:
            RuntimeError: the status is not 200 to 299.
            TimeoutError: no answer within so many seconds.
        """
        if self._reader is None or self._writer is None:
            raise RuntimeError("the connection is not open")
        content = json.dumps(body).encode() if body is not None else b""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n{self._token}"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)
        async with asyncio.timeout(seconds):
            status, answer = await _answer(self._reader)
        if not 200 <= status < 300:
            raise RuntimeError(f"{method} {path}: {status} {answer[:500]!r}")
        return answer


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first, *headers = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    sizes = [line for line in headers if line.lower().startswith(b"content-length:")]
    size = int(sizes[0].partition(b":")[2]) if sizes else 0
    return int(first.split()[1]), await reader.readexactly(size)
