"""The first line of a connection through a door, read without taking anything that comes after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from postroom.errors import PostroomError, ProtocolViolation
from postroom.protocol.preface import MAX_BYTES


class Silence(PostroomError):
    """A connection ended before it said anything, as when a sandbox tries its door: nothing to refuse."""


class FirstLine(asyncio.Protocol):
    """Reads the first line of a connection, and not a byte more than has arrived with it.

    Attributes:
        line: the line, and what arrived after it.
    """

    def __init__(self, enter: Callable[[asyncio.Transport, FirstLine], None]) -> None:
        self._enter = enter
        self._data = b""
        self._transport: asyncio.Transport
        self.line: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        self._transport = cast("asyncio.Transport", transport)
        self._enter(self._transport, self)

    def data_received(self, data: bytes) -> None:
        """Of asyncio."""
        self._data += data
        end = self._data.find(b"\n", 0, MAX_BYTES) + 1
        if self.line.done() or (not end and len(self._data) < MAX_BYTES):
            return
        self._transport.pause_reading()
        if end:
            self.line.set_result((self._data[:end], self._data[end:]))
            self._data = b""
        else:
            self._end(ProtocolViolation("no preface line"))

    def eof_received(self) -> bool:
        """Of asyncio."""
        self.connection_lost(None)
        return self._transport.get_extra_info("sslcontext") is None  # TLS ends both ways at once

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        """Of asyncio."""
        if not self.line.done():
            said = (
                ProtocolViolation("no preface line") if self._data else Silence("it said nothing")
            )
            self._end(said)

    def _end(self, error: PostroomError) -> None:
        self.line.set_exception(error)
        self.line.exception()  # a closed door leaves nobody to await it
