"""The control plane's API through a worker's door: each request is recorded, written anew and passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import h11

from postroom.errors import EnvironmentFault, InvalidInput
from postroom.gateway.connection import GatewayConnection
from postroom.gateway.http.exchange import DEFAULT_TIMEOUTS, Exchange, Timeouts
from postroom.gateway.http.headers import onward
from postroom.gateway.http.request_record import RequestRecord, without_user
from postroom.gateway.http.session import Session
from postroom.http.connection import HttpConnection

Dialer = Callable[[str], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Opens a connection to the API for the worker with the given uid."""

HOST = "postroom"
"""Name of the control plane inside a sandbox."""


class ControlProxy:
    """The proxy of the protocol `http`."""

    def __init__(self, dial: Dialer, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        self._dial = dial
        self._timeouts = timeouts

    async def __call__(
        self, conn: GatewayConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one connection to its end.

        Raises:
            PostroomError: an answer that had begun could not be finished.
        """
        near = HttpConnection(h11.SERVER, reader, writer, conn.rate_limit.piece)

        async def handle(request: h11.Request) -> None:
            await self._pass(conn, near, request)

        await Session(conn, near, self._timeouts).run(handle)

    async def _pass(
        self, conn: GatewayConnection, near: HttpConnection, request: h11.Request
    ) -> None:
        path = request.target.partition(b"?")[0].decode("ascii")
        record = RequestRecord(
            conn, request, f"http://{HOST}{path}" if path[:1] == "/" else without_user(path)
        )
        if not path.startswith("/") or request.method == b"CONNECT":
            error = InvalidInput(
                "this door serves the control plane's API only", remedy="ask for a path"
            )
            record.denied(error)
            raise error
        record.allowed()
        try:
            far_reader, far_writer = await self._dial(conn.spec.uid)
        except OSError as error:
            raise EnvironmentFault(f"the API cannot be reached: {error.strerror}") from error
        far = HttpConnection(h11.CLIENT, far_reader, far_writer)
        exchange = Exchange(near, far, self._timeouts)
        headers = onward(list(request.headers), HOST, {})
        await exchange.recorded(record, request.method, request.target, headers)
