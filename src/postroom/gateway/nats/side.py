"""The common part of both ends of a NATS connection through a door."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from postroom.gateway.connection import GatewayConnection
from postroom.gateway.nats.stream import Piece

WRITE_BUFFER = 512 * 1024
"""Bytes that one side may leave untaken before the gateway stops reading the other."""

PIECE = 32 * 1024
"""Bytes that are read at once, so that other connections get a turn; more for a body that passes unread."""

_READ = memoryview(bytearray(256 * 1024))
"""The buffer that every side reads into: a piece is copied out in the same turn."""


class Side(asyncio.BufferedProtocol):
    """When an end is read from, and how it ends.

    Args:
        ended: gets how the connection ends.
    """

    peer: Side

    def __init__(
        self, conn: GatewayConnection, transport: asyncio.Transport, ended: asyncio.Future[str]
    ) -> None:
        self.conn = conn
        self.transport = transport
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended = ended
        self._holds = {"start"}
        # What asyncio's transport ignores after its end, uvloop's refuses with an error: here and below.
        if transport.is_closing():
            self.end("it was closed early")
            return
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        transport.set_protocol(self)
        transport.pause_reading()

    def hold(self, why: str) -> None:
        """Stop reading here until `release` with the same reason."""
        self._holds.add(why)
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def release(self, why: str) -> None:
        """Drop that reason; without any reason left, read on."""
        self._holds.discard(why)
        if not self._holds and not self.transport.is_closing():
            self.transport.resume_reading()

    def end(self, reason: str) -> None:
        """End the connection."""
        if not self._ended.done():
            self._ended.set_result(reason)

    def pass_on(self, pieces: Sequence[Piece]) -> None:
        """Write to the other side."""
        if self.peer.transport.is_closing():
            return
        if len(pieces) == 1:
            piece = pieces[0]
            self.peer.transport.write(piece)
            self.conn.passed += len(piece)
        elif pieces:
            self.peer.transport.writelines(pieces)
            self.conn.passed += sum(map(len, pieces))

    @property
    def half_open(self) -> bool:
        """What asyncio expects at the end of the input: TLS ends both ways at once."""
        return self.transport.get_extra_info("sslcontext") is None

    @property
    def ahead(self) -> int:
        """Bytes still to come of a body that passes."""
        raise NotImplementedError

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's signature)
        """Of asyncio."""
        return _READ if self.ahead > PIECE else _READ[:PIECE]

    def buffer_updated(self, nbytes: int) -> None:
        """Of asyncio."""
        self.data_received(_READ[:nbytes].tobytes())

    def data_received(self, data: bytes) -> None:
        """Take the next piece."""
        raise NotImplementedError

    def pause_writing(self) -> None:
        """Of asyncio: this end takes nothing at the moment."""
        self.peer.hold("slow")

    def resume_writing(self) -> None:
        """Of asyncio."""
        self.peer.release("slow")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        """Of asyncio."""
        if not self.lost.done():
            self.lost.set_result(None)
