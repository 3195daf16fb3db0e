"""What both ends of a NATS connection through a door share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from postroom.gateway.connection import GatewayConnection
from postroom.gateway.nats.stream import Piece

WRITE_BUFFER = 512 * 1024
"""Bytes that may wait to be taken by one side before the other is not read."""

PIECE = 32 * 1024
"""Bytes that are read at once, so that the others have something to do while the rest is judged; of a body that is
passed on unread it is more."""

_READ = memoryview(bytearray(256 * 1024))
"""Where every side reads to: a piece is copied out in the same turn."""


class Side(asyncio.BufferedProtocol):
    """What both ends share: when they are read from, and how they end.

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
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        transport.set_protocol(self)
        transport.pause_reading()
        if transport.is_closing():
            self.end("it was closed early")

    def hold(self, why: str) -> None:
        """Do not read here until `release` with the same reason."""
        self._holds.add(why)
        self.transport.pause_reading()

    def release(self, why: str) -> None:
        """That reason is gone."""
        self._holds.discard(why)
        if not self._holds and not self.transport.is_closing():
            self.transport.resume_reading()

    def end(self, reason: str) -> None:
        """The connection is over."""
        if not self._ended.done():
            self._ended.set_result(reason)

    def pass_on(self, pieces: Sequence[Piece]) -> None:
        """Write to the other side."""
        if len(pieces) == 1:
            self.peer.transport.write(pieces[0])
        elif pieces:
            self.peer.transport.writelines(pieces)
        self.conn.passed += sum(map(len, pieces))

    @property
    def half_open(self) -> bool:
        """What asyncio is to be answered at the end of what comes: TLS ends both ways at once."""
        return self.transport.get_extra_info("sslcontext") is None

    @property
    def ahead(self) -> int:
        """Bytes that are to come of a body that is passed on."""
        raise NotImplementedError

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's signature)
        """Of asyncio."""
        return _READ if self.ahead > PIECE else _READ[:PIECE]

    def buffer_updated(self, nbytes: int) -> None:
        """Of asyncio."""
        self.data_received(_READ[:nbytes].tobytes())

    def data_received(self, data: bytes) -> None:
        """The next piece came."""
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
