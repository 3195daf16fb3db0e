"""The sandbox's one door, seen from inside: loopback ports whose connections lead to the gateway.

NATS and HTTP clients want a TCP address, the gateway is a Unix socket. Each connection to a door opens one to
the gateway, says in a preface line what it speaks and whose it is, and is then pumped both ways
(docs/architecture.md, The two walls).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

from postroom.observe import get_logger
from postroom.protocol.preface import Preface

CONNECTIONS = 32
"""Connections through one door at once; more are closed."""

CHUNK = 64 * 1024
CONNECT_TIMEOUT = 5.0

_log = get_logger(__name__)


class Door:
    """A loopback port for one protocol; an asynchronous context manager that is open inside its block.

    Args:
        gateway: path of the gateway's Unix socket.
        preface: first line of each connection.
        port: the loopback port, 0 for any free one.
    """

    def __init__(self, gateway: str, preface: Preface, port: int = 0) -> None:
        self._gateway = gateway
        self._wanted = port
        self._preface = preface
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The loopback port."""
        if self._server is None:
            raise RuntimeError("the door is not open")
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self._wanted, limit=CHUNK
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=CONNECT_TIMEOUT)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        try:
            await self._relay(reader, writer)
        except OSError as error:
            _log.debug("a connection through the %s door ended: %s", self._preface.protocol, error)
        except asyncio.CancelledError:
            # The door closes; asyncio's server would report the cancellation as an error.
            _log.debug("a connection was cut with its door")
        finally:
            self._connections.discard(task)
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            far_reader, far_writer = await asyncio.open_unix_connection(self._gateway, limit=CHUNK)
        try:
            far_writer.write(self._preface.encode())
            ways = [
                asyncio.ensure_future(_pump(reader, far_writer)),
                asyncio.ensure_future(_pump(far_reader, writer)),
            ]
            try:
                await asyncio.gather(*ways)
            finally:
                for way in ways:
                    way.cancel()
        finally:
            far_writer.close()
            with contextlib.suppress(OSError):
                await far_writer.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction, until its end, which is passed on; `drain` holds the reader back."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
