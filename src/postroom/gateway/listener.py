"""The gateway's listener for sandboxes on other machines: TLS, and one address for all workers' doors.

A connection is a stranger until its preface shows a worker's token. Strangers are few at a time and have little
time. The process log counts them now and then: a record for each would let them flood the audit log.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable

from postroom.errors import PortTaken, PostroomError
from postroom.gateway.port import DEADLINES, DoorDeadlines
from postroom.gateway.stream_proxy import FirstLine, cut
from postroom.observe import get_logger
from postroom.observe.supervision import well
from postroom_a2a.retry import RetryPolicy

log = get_logger(__name__)

STRANGERS = 128
"""Connections without a token at a time; the listener closes more at once."""

QUIET = 60.0
"""Seconds between two log lines about refused strangers."""

RETRY = RetryPolicy(base=0.5, cap=0.5)
"""The pause when the system can accept no more."""

Admit = Callable[[asyncio.Transport, FirstLine], Awaitable[None]]
"""Lets a connection in whose first line has come; raises a PostroomError if the token opens no door."""


def bind_listener(host: str, port: int) -> socket.socket:
    """A socket at that address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=STRANGERS)
    except OSError as error:
        raise PortTaken(
            f"the gateway cannot listen on {host} port {port}: {error.strerror}",
            remedy="choose another address: --gateway-listen ADDR:PORT",
        ) from error
    listener.setblocking(False)
    return listener


class TlsListener:
    """Accepts connections, makes the TLS handshake, reads the preface, and hands over.

    Args:
        listener: `close` closes it.
        deadlines: seconds that a handshake and a preface may take.

    Attributes:
        refused: connections so far that it closed.
    """

    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext,
        admit: Admit,
        *,
        deadlines: DoorDeadlines = DEADLINES,
        most: int = STRANGERS,
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._admit = admit
        self._deadlines = deadlines
        self._most = most
        self._strangers: set[asyncio.Task[None]] = set()
        self._told = float("-inf")
        self.refused = 0

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._listener.getsockname()[1])

    async def run(self) -> None:
        """Accept until cancelled.

        Raises:
            OSError: the system can accept no more now.
        """
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._listener)
            well()
            if len(self._strangers) >= self._most:
                connection.close()
                self._refuse(f"over {self._most} connections without a token")
                continue
            task = loop.create_task(self._greet(connection), name="stranger at the gateway")
            self._strangers.add(task)
            task.add_done_callback(self._strangers.discard)

    async def close(self) -> None:
        """End the listening, once `run` has ended, and every stranger."""
        self._listener.close()
        for task in self._strangers:
            task.cancel()
        await asyncio.gather(*self._strangers, return_exceptions=True)

    async def _greet(self, connection: socket.socket) -> None:
        transport: asyncio.Transport | None = None
        first_line = FirstLine(_nothing)
        try:
            async with asyncio.timeout(2 * self._deadlines.preface):
                # Not the protocol that comes back: uvloop returns that of TLS.
                opened, _ = await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: first_line,
                    connection,
                    ssl=self._tls,
                    ssl_handshake_timeout=self._deadlines.preface,
                    ssl_shutdown_timeout=self._deadlines.flush,
                )
                transport = opened
                async with asyncio.timeout(self._deadlines.preface):
                    await asyncio.shield(first_line.line)
            await self._admit(transport, first_line)
        except (PostroomError, TimeoutError, OSError) as error:
            self._refuse(str(error) or type(error).__name__)
            if transport is not None:
                cut(transport)
            else:
                connection.close()
        except asyncio.CancelledError:
            if transport is not None:
                cut(transport)
            raise

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        now = time.monotonic()
        if now - self._told >= QUIET:
            self._told = now
            log.warning(
                "the gateway's listener refused a connection (%d so far): %s", self.refused, reason
            )


def _nothing(_: asyncio.Transport, __: FirstLine) -> None:
    pass
