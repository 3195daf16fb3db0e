"""One HTTP/1.1 connection of a worker: its requests in turn, and refusals as problem documents.

`ControlProxy` is what serves the control plane's API: each request is recorded, written anew and passed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import h11

from postroom.errors import (
    PROBLEM_TYPE,
    EnvironmentFault,
    InvalidInput,
    PostroomError,
    ProtocolViolation,
    RequestTimeout,
    http_status,
    problem,
)
from postroom.gateway.connection import GatewayConnection
from postroom.gateway.http.exchange import (
    DEFAULT_TIMEOUTS,
    Exchange,
    RequestRecord,
    Timeouts,
    onward,
    without_user,
)
from postroom.http.connection import HttpConnection
from postroom.protocol.audit import DENIED, OUT

LINGER = 2.0
MAX_LINGER = 1024 * 1024
"""Bytes of a refused request's body that are read before the connection closes, so that the client sees the refusal."""

Handle = Callable[[h11.Request], Awaitable[None]]
"""Answers a request; the session turns what it raises into a problem document, unless an answer has begun."""

Dialer = Callable[[str], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Opens a connection to the API for the worker with the given uid."""

HOST = "postroom"
"""Name of the control plane inside a sandbox."""


class HttpSession:
    """Reads requests and hands each to `handle`, until the connection ends.

    Args:
        conn: also records what cannot be read as a request.
    """

    def __init__(self, conn: GatewayConnection, near: HttpConnection, timeouts: Timeouts) -> None:
        self._conn = conn
        self._near = near
        self._timeouts = timeouts
        self._method = b""

    async def run(self, handle: Handle) -> None:
        """Serve until the worker ends the connection or falls silent, or an answer cannot be finished.

        Raises:
            StateUnwritable: the log cannot keep an audit record, so the request was refused.
        """
        near = self._near
        try:
            while (request := await self._next()) is not None:
                await self._serve(handle, request)
                if near.http.our_state is h11.DONE and near.http.their_state is h11.DONE:
                    near.http.start_next_cycle()
                else:
                    break
        except OSError:  # the worker has gone; each request has its records
            pass
        finally:
            await self._close()

    async def _next(self) -> h11.Request | None:
        near = self._near
        try:
            if not near.http.trailing_data[0]:
                await near.more(self._timeouts.idle)
            async with asyncio.timeout(self._timeouts.head):
                event = await near.next_event(self._timeouts.head)
        except TimeoutError:
            late = RequestTimeout("the request's head did not come in time")
            self._record(late.message)
            await self.refuse(late)
            return None
        except RequestTimeout:
            return None
        except ProtocolViolation as error:
            self._record("that is not HTTP/1.1")  # without the bytes: they may hold a secret
            await self.refuse(error, 400)
            return None
        if not isinstance(event, h11.Request):
            return None
        self._method = event.method
        return event

    def _record(self, reason: str) -> None:
        self._conn.write(direction=OUT, verdict=DENIED, reason=reason)

    async def _serve(self, handle: Handle, request: h11.Request) -> None:
        try:
            await handle(request)
        except PostroomError as error:
            if self._near.http.our_state is not h11.SEND_RESPONSE:
                raise  # the answer has begun: it can only be cut
            await self.refuse(error)

    async def refuse(self, error: PostroomError, status: int = 0) -> None:
        """Answer with `error` as a problem document (RFC 9457)."""
        near, status = self._near, status or http_status(error)
        if near.http.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        body = json.dumps(problem(error) | {"status": status}).encode()
        headers = [
            ("content-type", PROBLEM_TYPE),
            ("content-length", str(len(body))),
        ]
        if not self._ended():
            headers.append(("connection", "close"))
        wait = self._timeouts.body
        reason = HTTPStatus(
            status
        ).phrase.encode()  # all that some programs show of a refused tunnel
        await near.send(h11.Response(status_code=status, reason=reason, headers=headers), wait)
        if self._method != b"HEAD":
            await near.send(h11.Data(data=body), wait)
        await near.send(h11.EndOfMessage(), wait)

    def _ended(self) -> bool:
        """Whether the whole request has arrived, so that another may follow."""
        http = self._near.http
        with contextlib.suppress(h11.RemoteProtocolError):
            if http.their_state is h11.SEND_BODY:
                http.next_event()
        return http.their_state is h11.DONE

    async def _close(self) -> None:
        """Close the connection once the client has read the answer, or has taken too long."""
        writer = self._near.writer
        taken = 0
        try:
            async with asyncio.timeout(LINGER):
                if writer.can_write_eof() and not writer.is_closing():
                    writer.write_eof()
                while taken < MAX_LINGER and (data := await self._near.reader.read(65536)):
                    taken += len(data)
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError):
            pass
        finally:
            self._near.abort()


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

        await HttpSession(conn, near, self._timeouts).run(handle)

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
