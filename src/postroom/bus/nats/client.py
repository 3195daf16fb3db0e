"""nats-py's client with the traps closed that would leave a connection dead; `bus.natspy` has those of its reader.

The class reaches into nats-py's inner parts, so the dependency is pinned to one release line and the contract suite
runs against it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from nats.aio.client import Client, Srv
from nats.errors import Error
from nats.protocol.parser import PING

from postroom_a2a.nats.natspy import harden


@contextmanager
def _as_lost() -> Generator[None]:
    """Whatever goes wrong while a connection is made is a lost connection, to be tried again.

    A peer that is gone in the midst of a TLS handshake shows as an assertion that failed, or as a transport that is
    None; the library takes such for the end of the client.
    """
    try:
        yield
    except (OSError, Error, TimeoutError):
        raise
    except Exception as error:
        raise ConnectionResetError(f"the connection could not be made: {error!r}") from error


class RobustClient(Client):
    """A client whose reader survives bad frames, and whose handshakes that fail are tried again."""

    def __init__(self) -> None:
        super().__init__()
        harden(self)

    async def _connect_to_server(self, s: Srv) -> None:
        self.hang_up()  # a handshake that failed left its socket open
        with _as_lost():
            await super()._connect_to_server(s)

    async def _process_connect_init(self) -> None:
        with _as_lost():
            await super()._process_connect_init()
        writer = getattr(self._transport, "_io_writer", None)
        reader = getattr(self._transport, "_io_reader", None)
        if writer is None or reader is None or writer.get_extra_info("sslcontext") is None:
            return
        # The library makes the stream for TLS by hand and leaves it half done: it would read without a bound, and
        # asyncio would complain at its end.
        if getattr(reader, "_transport", None) is None:
            reader.set_transport(writer.transport)
        protocol = writer.transport.get_protocol()
        if isinstance(protocol, asyncio.StreamReaderProtocol):
            protocol._over_ssl = True  # noqa: SLF001

    async def _attempt_reconnect(self) -> None:
        # The library waits until a closing socket has sent what it holds, which a hanging peer never takes.
        self.hang_up()
        try:
            await super()._attempt_reconnect()
        except Exception as error:  # noqa: BLE001 (the task has no other observer)
            await self._error_cb(error)
            await self._close(Client.CLOSED)

    async def end(self) -> None:
        """Close for good. A task that swallowed its cancellation while it connected again ends here too."""
        await self.close()
        tasks = (
            self._reconnection_task,
            self._reading_task,
            self._ping_interval_task,
            self._flusher_task,
        )
        running = {t for t in tasks if t and not t.done() and t is not asyncio.current_task()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=1)
            self.hang_up()  # what such a task has opened since
            await asyncio.sleep(0)  # asyncio closes the socket in its next turn

    def hang_up(self) -> None:
        """Close the socket now, whatever it still holds."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            # asyncio's TLS transport, once closed, has nothing left to abort, and Python 3.11.2 trips over that.
            with suppress(AttributeError):
                writer.transport.abort()

    def write_out(self) -> None:
        """Put everything that is buffered on the wire now, so that a following PING cannot overtake it."""
        if self._transport is not None and self._pending:
            self._transport.writelines(self._pending[:])
            self._pending = []
            self._pending_data_size = 0

    def ping(self) -> asyncio.Future[Any]:
        """Send a PING behind everything sent so far; the future is done when the server has come to it.

        Do not cancel the future. It stays undone when the connection breaks.
        """
        self.write_out()
        pong: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._transport is not None:
            self._pongs.append(pong)
            self._transport.write(PING)
        return pong

    async def end_interest(self, sid: int) -> None:
        """Tell the server to send nothing more to subscription `sid`, but take what is on its way."""
        if self.is_connected:
            with suppress(Error, OSError):
                await self._send_unsubscribe(sid)

    @property
    def address(self) -> str:
        """Address of the server that it is connected to, "" for none."""
        return self.connected_url.geturl() if self.connected_url else ""

    @property
    def server_id(self) -> str:
        """Id of the server that it is, or was last, connected to."""
        return str(self._server_info.get("server_id", ""))

    def take_unsent(self, former: RobustClient) -> None:
        """Send what `former`, whose connection broke, has kept for later."""
        for command in former._pending:
            if command.startswith((b"PUB ", b"HPUB ")):
                self._pending.append(command)
                self._pending_data_size += len(command)
        self.write_out()
