"""One side of an HTTP/1.1 exchange: h11 over streams, with a deadline for each wait."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import h11

from postroom.errors import ProtocolViolation, RequestTimeout
from postroom.gateway.allowance import Allowance

CHUNK = 64 * 1024
MAX_HEAD = 64 * 1024
"""Bytes of a request line or a status line with its headers."""

MAX_HEADERS = 256
"""Lines of a head: 16,000 fit into its bytes, and all of them are looked at."""

SMALL = 1024
"""Bytes: a piece of a body counts against what a worker may put through if it has fewer; large ones are cheap."""

TURN = 16
"""Events, or reads, after which everybody else has a turn: a piece can hold 10,000 chunks of one byte."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that an exchange may keep us waiting.

    Attributes:
        head: for the rest of a request's head, once it has begun.
        idle: for the next request of a connection.
        body: for the next piece of a request's body, and for a reader to take a piece.
        answer: for the next piece of an answer; a model may think for long before it says a word.
        connect: for the upstream to be open.
    """

    head: float = 15.0
    idle: float = 120.0
    body: float = 60.0
    answer: float = 900.0
    connect: float = 20.0


DEFAULT_PATIENCE = Patience()


class Wire:
    """A connection as h11 events.

    Args:
        role: `h11.SERVER` towards the sandbox, `h11.CLIENT` towards the upstream.
        reader, writer: its streams.
        allowance: what each event and each small read of this side counts against; who is over it is slowed down.
    """

    def __init__(
        self,
        role: type[h11.CLIENT | h11.SERVER],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        allowance: Allowance | None = None,
    ) -> None:
        self.http = h11.Connection(role, max_incomplete_event_size=MAX_HEAD)
        self.reader = reader
        self.writer = writer
        self._allowance = allowance
        self._turn = 0

    async def next_event(self, timeout: float) -> Any:
        """The next event.

        Raises:
            RequestTimeout: nothing came for `timeout` seconds.
            ProtocolViolation: what came is not HTTP/1.1, or has too many headers.
            OSError: the connection broke.
        """
        while True:
            try:
                event = self.http.next_event()
            except h11.RemoteProtocolError as error:
                raise ProtocolViolation(f"that is not HTTP/1.1: {error}") from error
            if event is not h11.NEED_DATA:
                if len(getattr(event, "headers", ())) > MAX_HEADERS:
                    raise ProtocolViolation(f"more than {MAX_HEADERS} headers")
                await self._take_turns(len(getattr(event, "data", b"")))
                return event
            if self.http.they_are_waiting_for_100_continue:
                await self.send(h11.InformationalResponse(status_code=100, headers=[]), timeout)
            await self.more(timeout)

    async def more(self, timeout: float) -> None:
        """Take what comes, or its end."""
        try:
            async with asyncio.timeout(timeout):
                data = await self.reader.read(CHUNK)
        except TimeoutError as error:
            raise RequestTimeout(f"nothing came for {timeout:g} s") from error
        self.http.receive_data(data)
        await self._take_turns(len(data))

    async def _take_turns(self, size: int) -> None:
        """What is here already is read without waiting, so nobody else would be served until all of it was."""
        wait = self._allowance.take(1, 0) if self._allowance and size < SMALL else 0.0
        self._turn = (self._turn + 1) % TURN
        if wait or not self._turn:
            await asyncio.sleep(wait)

    async def send(self, event: Any, timeout: float) -> None:
        """Send one event, and wait until there is room for the next.

        Raises:
            RequestTimeout: it was not taken within `timeout` seconds.
            ProtocolViolation: the other side may not be sent that.
            OSError: the connection broke.
        """
        try:
            data = self.http.send(event)
        except h11.LocalProtocolError as error:
            raise ProtocolViolation(f"what came cannot be passed on: {error}") from error
        if data:
            self.writer.write(data)
            try:
                async with asyncio.timeout(timeout):
                    await self.writer.drain()
            except TimeoutError as error:
                raise RequestTimeout(f"nothing was taken for {timeout:g} s") from error

    async def gone(self) -> None:
        """Wait until the other side has ended its connection; what it sends meanwhile is kept, within bounds."""
        taken = 0
        while data := await self.reader.read(CHUNK):
            self.http.receive_data(data)
            taken += len(data)
            if taken > MAX_HEAD:  # it does not read, it only talks
                raise ProtocolViolation("too much came before the answer")

    def abort(self) -> None:
        """End the connection at once."""
        self.writer.transport.abort()
