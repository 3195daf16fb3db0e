"""One side of an HTTP/1.1 connection: h11 over streams, with a deadline for each wait.

Client, server and gateway use it. The parser is h11's: hostile input is no place for a parser of our own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11

from postroom.errors import ProtocolViolation, RequestTimeout
from postroom.protocol.limits import MAX_HEAD, MAX_HEADERS

CHUNK = 64 * 1024
TURN = 16
"""Events, or reads, after which other tasks have a turn: one read can hold 10,000 chunks of one byte."""

Pace = Callable[[int], float]
"""Gives the seconds of pause after a piece of so many bytes."""


class HttpConnection:
    """A connection as h11 events.

    Args:
        pace: slows down a peer that sends too many small pieces.

    Attributes:
        taken: bytes that came in.
    """

    def __init__(
        self,
        role: type[h11.CLIENT | h11.SERVER],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pace: Pace | None = None,
        *,
        max_head: int = MAX_HEAD,
    ) -> None:
        self.http = h11.Connection(role, max_incomplete_event_size=max_head)
        self.reader = reader
        self.writer = writer
        self.taken = 0
        self._pace = pace
        self._turn = 0
        self._ended = False

    async def next_event(self, timeout: float | None) -> Any:
        """The next event.

        Raises:
            RequestTimeout: nothing came for `timeout` seconds.
            ProtocolViolation: the peer's bytes are not HTTP/1.1, or have too many headers.
            OSError: the connection broke, also by its end before an answer or in the middle of a body: so it ends with
                a process that was killed, and with a proxy that gives up.
        """
        while True:
            state = self.http.their_state
            try:
                event = self.http.next_event()
            except h11.RemoteProtocolError as error:
                if self._ended and self._broke_off(state):
                    raise ConnectionResetError("the connection ended too soon") from error
                raise ProtocolViolation(f"that is not HTTP/1.1: {error}") from error
            if event is not h11.NEED_DATA:
                if len(getattr(event, "headers", ())) > MAX_HEADERS:
                    raise ProtocolViolation(f"more than {MAX_HEADERS} headers")
                await self._take_turns(len(getattr(event, "data", b"")))
                return event
            if self.http.they_are_waiting_for_100_continue:
                await self.send(h11.InformationalResponse(status_code=100, headers=[]), timeout)
            await self.more(timeout)

    def _broke_off(self, state: Any) -> bool:
        """Whether a peer that ended in `state` spoke HTTP so far, or had not begun to."""
        left, _ = self.http.trailing_data
        return state is h11.SEND_BODY or (
            state is h11.SEND_RESPONSE and left[:5] == b"HTTP/"[: len(left)]
        )

    async def more(self, timeout: float | None) -> None:
        """Read the next bytes, or the end."""
        try:
            async with asyncio.timeout(timeout):
                data = await self.reader.read(CHUNK)
        except TimeoutError as error:
            raise RequestTimeout(f"nothing came for {timeout:g} s") from error
        self.taken += len(data)
        self._ended = not data
        self.http.receive_data(data)
        await self._take_turns(len(data))

    async def _take_turns(self, size: int) -> None:
        """Let other tasks run: a read of bytes that are here already does not wait."""
        wait = self._pace(size) if self._pace else 0.0
        self._turn = (self._turn + 1) % TURN
        if wait or not self._turn:
            await asyncio.sleep(wait)

    def put(self, event: Any) -> None:
        """Send one event without waiting for room; raises ProtocolViolation if HTTP forbids it now."""
        try:
            data = self.http.send(event)
        except h11.LocalProtocolError as error:
            raise ProtocolViolation(f"that cannot be sent as HTTP/1.1: {error}") from error
        if data:
            if self.writer.transport.is_closing():  # uvloop's transport would raise no OSError
                raise ConnectionResetError("the connection has ended")
            self.writer.write(data)

    async def send(self, event: Any, timeout: float | None) -> None:
        """Send one event, and wait until there is room for the next.

        Raises:
            RequestTimeout: the peer did not read for `timeout` seconds.
            ProtocolViolation: HTTP forbids the event now.
            OSError: the connection broke.
        """
        self.put(event)
        await self.drain(timeout)

    async def drain(self, timeout: float | None) -> None:
        """Wait until there is room for more. Raises as `send`."""
        try:
            async with asyncio.timeout(timeout):
                await self.writer.drain()
        except TimeoutError as error:
            raise RequestTimeout(f"nothing was taken for {timeout:g} s") from error

    async def gone(self) -> None:
        """Wait until the peer has closed the connection; keeps what it sends meanwhile, within bounds."""
        taken = 0
        while data := await self.reader.read(CHUNK):
            self.http.receive_data(data)
            taken += len(data)
            if taken > MAX_HEAD:
                raise ProtocolViolation(f"the peer sent over {MAX_HEAD} bytes before the answer")

    def abort(self) -> None:
        """End the connection at once."""
        self.writer.transport.abort()
