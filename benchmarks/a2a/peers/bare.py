"""JSON-RPC with a client that does next to nothing: bytes built once, one kept-alive connection per call under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NoReturn
from urllib.parse import urlsplit

from google.protobuf.json_format import MessageToJson

from benchmarks.a2a.peers import agent
from benchmarks.a2a.peers.http import serve
from benchmarks.a2a.peers.kinds import Options

__all__ = ["BareCaller", "connect", "serve"]


class BareCaller:
    """Connections are opened as they are needed, and kept."""

    def __init__(self, stack: AsyncExitStack, address: str) -> None:
        self._stack = stack
        self._host, self._port = urlsplit(address).hostname or "", urlsplit(address).port or 0
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._built: dict[str, bytes] = {}

    async def unary(self, content: str) -> None:
        """One call; the body of the answer is only looked at for the word that it must have."""
        reader, writer = self._free.pop() if self._free else await self._open()
        writer.write(self._bytes(content))
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(size)
        if b'"result"' not in body:
            raise ValueError(f"no result: {body[:200]!r}")
        self._free.append((reader, writer))

    async def stream(self, content: str) -> NoReturn:
        """It does not read streams."""
        raise NotImplementedError

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        self._stack.callback(writer.close)
        return reader, writer

    def _bytes(self, content: str) -> bytes:
        if content not in self._built:
            body = frame(content)
            head = (
                f"POST / HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nA2A-Version: 1.0\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            self._built[content] = head.encode() + body
        return self._built[content]


def frame(content: str) -> bytes:
    """A JSON-RPC request that carries `content`."""
    params = MessageToJson(agent.request(content), indent=None)
    return b'{"jsonrpc":"2.0","id":"1","method":"SendMessage","params":%s}' % params.encode()


@asynccontextmanager
async def connect(options: Options) -> AsyncGenerator[BareCaller]:
    """A client without connections yet."""
    async with AsyncExitStack() as stack:
        yield BareCaller(stack, options.address)
